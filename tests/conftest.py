pytest_plugins = [
    "headrace.testing",  # first: it is to be looked at by pytest before others import it
    "tests.plugins.skips",
    "tests.plugins.interrupts",
    "tests.plugins.property_tests",
    "tests.database",
]
