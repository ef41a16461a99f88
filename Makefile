# make demo, make test: each sets up everything it needs in .venv and is quick the second time.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
JOBS ?= 2
# Tests and demo start hundreds of processes: none of them compiles what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test interop check conformance sim crash fuzz mutation bench docs clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e ".[dev,spark]"
	touch $@

demo: setup
	$(BIN)/postroad demo

# Not needed, but Spark starts in half the time with it.
build/spark.jsa: .venv/.ready
	-$(BIN)/python -m tests.spark_classes $@

test: setup build/spark.jsa
	$(PYTEST) -n $(JOBS) --dist loadgroup --no-loadscope-reorder

# Runs other products against real nodes; needs a JDK (17 or later) and Maven.
interop: setup
	POSTROAD_INTEROP_REQUIRED=1 $(PYTEST) -q -n $(JOBS) --dist loadgroup tests/interop -m interop --interop=build/interop.json $(if $(RECORD),--record)
	$(if $(RECORD),$(BIN)/python -m tests.interop.shapes)
	$(BIN)/python -m tests.interop.page build/interop.json docs/interoperability.md

check: setup
	$(BIN)/ruff check src tests pipelines
	$(BIN)/ruff format --check src tests pipelines
	$(BIN)/mypy
	$(BIN)/lint-imports

conformance: setup build/spark.jsa
	$(PYTEST) -q -n $(JOBS) --dist loadgroup --no-loadscope-reorder --conformance=build/conformance.json

sim: setup
	$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),200) --jobs $(JOBS)

crash: setup
	$(BIN)/python -m tests.crash --messages 5000 --kills 50 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.crash --messages 1000 --kills 10 --workers 2 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.crash.large --mib 1024 --kills 12 $(if $(SEED),--seed $(SEED))

fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt atheris
	$(BIN)/python tests/fuzz/run.py --seconds $(or $(SECONDS),60)

mutation: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt mutmut
	$(BIN)/python -m tests.mutation --count $(or $(COUNT),60) --seed $(or $(SEED),1) --jobs $(JOBS)

docs: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt mkdocs-material
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in build/site: open build/site/index.html."

bench: setup
	$(BIN)/postroad bench wire
	$(BIN)/postroad bench push
	$(BIN)/postroad bench retry
	$(BIN)/postroad bench pull
	$(BIN)/postroad bench hub
	$(BIN)/postroad bench bundle
	$(BIN)/postroad bench large
	$(BIN)/postroad bench pipeline

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
