pytest_plugins = ["tests.plugins.skips", "tests.plugins.property_tests", "tests.database"]
