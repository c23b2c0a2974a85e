# Everything runs in .venv, which the first target to need it creates. Stamps in it say what is
# up to date, so nothing is installed twice. The tests use the built wheel, as users will.

PYTHON ?= python3
ARGS ?=
# The second PostgreSQL that `make test-all` tests on: a system's 15, or else whichever it has.
PG_BIN ?= $(patsubst %/initdb,%,$(firstword $(wildcard /usr/lib/postgresql/15/bin/initdb /usr/lib/postgresql/*/bin/initdb)))

BIN := .venv/bin
# An environment that forbids it makes every process that a test starts compile all it imports, which takes longer than its work.
unexport PYTHONDONTWRITEBYTECODE
# Tests that run at a time, each with a PostgreSQL of its own: one more than there are cores, because a part of a test is waiting.
TESTS_AT_A_TIME ?= $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 2) + 1, 9))')
PYTEST = $(BIN)/python -m pytest -n $(TESTS_AT_A_TIME) --dist worksteal
# Compiled when it is imported: most of it never is.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# A lock lists every package, so pip resolves nothing. If it did, an older pip would refuse a lock as soon as a newer
# release of a locked package exists that another package requires with an extra.
PIP_INSTALL_LOCK := $(PIP_INSTALL) --require-hashes --no-deps -r

# For every Python and system that we support, and without the address of a registry.
LOCK = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" $(ARGS)

# Folders are listed too: their time changes when a file is deleted.
SOURCES := pyproject.toml README.md LICENSE $(shell find src ! -name __pycache__ ! -name '*.pyc')
TESTED := $(SOURCES) Makefile CONTRIBUTING.md mkdocs.yml $(shell find $(wildcard tests/. docs/. bench/. examples/.) ! -name __pycache__ ! -name '*.pyc')
# `make test` passed on exactly these files; passing with skips is another matter than without.
TEST_STAMP := .venv/.tested$(HEADRACE_TEST_ALL)

.PHONY: cluster pictures house golden help run test test-all test-matrix defects check audit lock format requirements commands docs faults soak bench bench-peers bench-scaling performance install clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

run: .venv/.runnable ## start Headrace with a demo: PostgreSQL, API, dashboard
	@$(BIN)/headrace up --demo

cluster: .venv/.installed .venv/.cluster ## start three PostgreSQLs under Patroni, with etcd and HAProxy, to try a failover
	@$(BIN)/python examples/patroni

test: .venv/.installed ## run the tests, but for the long ones (ARGS="-k lease" picks some)
	@rm -f $(TEST_STAMP)
	@$(PYTEST) -m "not long and not rest" $(ARGS)
	@$(if $(ARGS),,touch $(TEST_STAMP))

test-all: $(TEST_STAMP) .venv/.cluster ## run the long tests too, and the engine's on a second PostgreSQL
	@$(PYTEST) -m "(long or rest) and not matrix" || [ $$? -eq 5 ] # 5: there are none
ifneq ($(PG_BIN),)
	@echo "The engine's tests on $$($(PG_BIN)/postgres --version)"
	@HEADRACE_PG_BIN=$(PG_BIN) $(PYTEST) -m "not long" $(wildcard tests/engine tests/client tests/pgmq)
else
	@echo "Not tested on a second PostgreSQL: none in /usr/lib/postgresql (PG_BIN=<its bin folder> names one)."
	@[ -z "$$HEADRACE_TEST_ALL" ]
endif

test-matrix: .venv/.installed .venv/.cluster .venv/.postgresqls ## run what takes too long for test-all, and all of the engine's tests on PostgreSQL 16, 17 and every one of the system
	@$(PYTEST) -m matrix
	@for bin in $(patsubst %/initdb,%,$(wildcard /usr/lib/postgresql/*/bin/initdb)) .venv/postgresql-*/native/bin; do \
	  echo "All of the engine's tests on $$($$bin/postgres --version)"; \
	  HEADRACE_PG_BIN=$$(realpath $$bin) $(PYTEST) $(wildcard tests/engine tests/client tests/pgmq) || exit 1; \
	done
	@echo "All of the engine's tests in a database that shares its ids"
	@HEADRACE_TEST_STRIDE=64 $(PYTEST) $(wildcard tests/engine tests/client)
	@echo "All of the clients' tests over three shards"
	@HEADRACE_TEST_SHARDS=3 $(PYTEST) $(wildcard tests/client)

house: .venv/.dependencies ## print how large the house is, beside 0.1 (ARGS=--files names files)
	@$(BIN)/python -m tests.house.measure $(ARGS)

defects: .venv/.installed ## spoil a copy of the tree in forty ways, and see the tests notice (ARGS="07 12" picks some)
	@$(BIN)/python -m tests.defects $(ARGS)

# Only test-all asks for this: a `make test` that has just passed is not repeated.
$(TEST_STAMP): $(TESTED)
	@$(MAKE) --no-print-directory test ARGS=

check: .venv/.installed .venv/.audited ## formatting, lint, types, import contracts, requirements, dependencies
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python -m mypy --no-error-summary
	@said=$$($(BIN)/lint-imports --no-logo) || { echo "$$said"; exit 1; }
	@$(BIN)/python -m tests.requirements --check
	@$(BIN)/python -m tests.commands --check
	@$(BIN)/python -m bench.page --check
	@echo "All checks passed."

audit: ## list what is installed with Headrace (dist/headrace.cdx.json), and ask the registry for known vulnerabilities
	@rm -f .venv/.audited
	@$(MAKE) --no-print-directory .venv/.audited

lock: .venv/.created ## write the requirements-*.lock anew, after a change of pyproject.toml (ARGS=--upgrade: the newest of all)
	@$(PIP_INSTALL) uv
	@$(LOCK) --extra all --extra dev --output-file requirements-dev.lock
	@$(LOCK) --extra docs --constraints requirements-dev.lock --output-file requirements-docs.lock
	@$(LOCK) --extra cluster --constraints requirements-dev.lock --output-file requirements-cluster.lock
	@$(LOCK) --extra audit --constraints requirements-dev.lock --output-file requirements-audit.lock

format: .venv/.dependencies ## format the code and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

requirements: .venv/.installed ## write docs/requirements.md and docs/documents anew
	@$(BIN)/python -m tests.requirements
	@$(BIN)/python -m tests.hostile

commands: .venv/.installed ## write the reference of the command line in docs/cli.md anew
	@$(BIN)/python -m tests.commands

golden: .venv/.installed ## write the files anew that tests compare with: signatures, the API, statements, the catalogue, docs/cli.md
	@HEADRACE_WRITE_SURFACE=1 HEADRACE_WRITE_TRANSCRIPT=1 HEADRACE_WRITE_CATALOGUE=1 $(BIN)/python -m pytest -q tests/house tests/engine/test_migrate.py -k "transcript or surface or catalogue"
	@$(BIN)/python -m tests.commands

docs: .venv/.docs ## build the documentation's site, into site/
	@said=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$said"; exit 1; }
	@echo "The documentation is in site/index.html."

faults: .venv/.installed .venv/.cluster ## disturb real processes in every way we know of, and balance the accounts (ARGS="kills replica" picks some)
	@$(BIN)/python -m tests.laboratory --report $(ARGS)

soak: .venv/.installed ## a million events, while workers and PostgreSQL are killed (ARGS="--events 50000" is less)
	@$(BIN)/python -m tests.laboratory.soak --report $(ARGS)

pictures: .venv/.installed ## take the pictures of the dashboard anew (docs/pictures)
	@HEADRACE_WRITE_PICTURES=1 $(BIN)/python -m pytest -q -m "" tests/browser/test_pictures.py

bench-peers: .venv/.installed ## install the queues that bench compares with, below .venv/peers
	@$(BIN)/python -m bench.peers

bench: .venv/.installed ## measure
	@$(BIN)/python -m bench $(ARGS)

bench-scaling: .venv/.installed ## measure what grows with what, and what lasts: 100 minutes (ARGS=--short: a look)
	@$(BIN)/python -m bench.scaling $(ARGS)

performance: .venv/.installed ## write docs/performance.md, its charts and README's figures anew, from what was measured last
	@$(BIN)/python -m bench.page

install: .venv/.installed ## only make .venv

clean: ## remove what the other targets made
	@rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headrace needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Creating .venv"
	@$(PYTHON) -m venv .venv
	@touch $@

# What a first look needs, and no more.
.venv/.runnable: $(SOURCES) | .venv/.created
	@echo "Installing Headrace"
	@$(PIP_INSTALL) '.[all]'
	@touch $@

.venv/.dependencies: requirements-dev.lock | .venv/.created
	@echo "Installing the dependencies"
	@$(PIP_INSTALL_LOCK) requirements-dev.lock
	@touch $@

.venv/.docs: requirements-docs.lock | .venv/.dependencies
	@echo "Installing what builds the documentation"
	@$(PIP_INSTALL_LOCK) requirements-docs.lock
	@touch $@

.venv/.cluster: requirements-cluster.lock | .venv/.dependencies
	@echo "Installing Patroni and etcd"
	@$(PIP_INSTALL_LOCK) requirements-cluster.lock
	@touch $@

.venv/.postgresqls: tests/postgresqls.py | .venv/.created
	@echo "Fetching PostgreSQL 16 and 17"
	@$(BIN)/python -m tests.postgresqls 16 17 >/dev/null
	@touch $@

# What is installed does not change in between, and what is known of it hardly.
.venv/.audited: pyproject.toml requirements-audit.lock tests/dependencies.py tests/bundled.py .venv/.dependencies
	@$(PIP_INSTALL_LOCK) requirements-audit.lock
	@$(BIN)/python -m tests.dependencies
	@touch $@

.venv/.installed: $(SOURCES) .venv/.dependencies
	@echo "Building and installing the wheel"
	@rm -f dist/*.whl
	@said=$$($(BIN)/hatchling build --target wheel --directory dist 2>&1) || { echo "$$said"; exit 1; }
	@$(PIP_INSTALL) --force-reinstall --no-deps dist/*.whl
	@touch $@ .venv/.runnable
