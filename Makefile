# make demo, make test: each sets up everything it needs in .venv and is quick the second time.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
JOBS ?= 2
# Tests and demo start hundreds of processes: none of them compiles what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test interop check conformance sim crash chaos attack fuzz mutation bench docs lock audit sbom clean

setup: .venv/.ready

# Installs only files whose hashes are locked in constraints.txt and constraints/*.txt.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation

.venv/.ready: pyproject.toml constraints.txt constraints/build.txt constraints/dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP_INSTALL) -r constraints/build.txt
	$(PIP_INSTALL) -r constraints.txt -r constraints/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
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

# Storms over real nodes, judged by what is documented; ends by itself (make chaos SECONDS=60 MESSAGES=500 SEED=1).
chaos: setup build/spark.jsa
	$(BIN)/python -m tests.chaos --seconds $(or $(SECONDS),1200) --messages $(or $(MESSAGES),20000) $(if $(SEED),--seed $(SEED)) $(if $(RECORD),--record)

fuzz: setup
	$(PIP_INSTALL) -r constraints/fuzz.txt
	$(BIN)/python -m tests.fuzz.run $(if $(RUNS),--runs $(RUNS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TARGET),--target $(TARGET)) --jobs $(JOBS)
	$(BIN)/python -m tests.fuzz.stateful --steps $(or $(STEPS),2000) $(if $(SEED),--seed $(SEED))

# Attacks nodes that it starts on this machine's loopback; ends by itself (make attack SECONDS=300 ONLY=replays).
attack: setup
	$(BIN)/python -m tests.attack.campaign $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ONLY),--only "$(ONLY)")

mutation: setup
	$(PIP_INSTALL) -r constraints/mutation.txt
	$(BIN)/python -m tests.mutation $(if $(REQUIREMENTS),--requirements) --count $(or $(COUNT),60) --seed $(or $(SEED),1) --jobs $(JOBS)

docs: setup
	$(PIP_INSTALL) -r constraints/site.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m tests.docs.site build/site
	@echo "The site is in build/site: open build/site/index.html."

# Release tools live in a virtual environment of their own: they bring their own pip.
build/release/.ready: constraints/build.txt constraints/release.txt
	test -x build/release/bin/python || $(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints/release.txt
	touch $@

# Writes the locked versions and hashes; keeps the versions that are locked (make lock UPGRADE=1 takes the newest).
COMPILE := build/release/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header $(if $(UPGRADE),--upgrade)
lock: build/release/.ready
	$(COMPILE) pyproject.toml --extra spark --extra s3 -o constraints.txt
	for group in build dev fuzz mutation site release; do \
	  $(COMPILE) --group $$group -c constraints.txt -o constraints/$$group.txt || exit 1; done

# Looks up every locked version among the published vulnerabilities; needs PyPI.
audit: build/release/.ready
	for file in constraints.txt constraints/*.txt; do \
	  echo "$$file" && build/release/bin/pip-audit --progress-spinner off --strict --disable-pip --require-hashes -r $$file || exit 1; done

# Writes the bill of materials of the product with its Spark and S3 parts, as CycloneDX: build/postroad.cdx.json.
sbom: build/release/.ready
	rm -rf build/sbom && $(PYTHON) -m venv --without-pip build/sbom
	build/release/bin/uv pip install --quiet --python build/sbom/bin/python --build-constraints constraints/build.txt --require-hashes -r constraints.txt
	build/release/bin/uv pip install --quiet --python build/sbom/bin/python --build-constraints constraints/build.txt --no-deps .
	sed "s/^dynamic = .*/version = \"$$(build/sbom/bin/python -c 'import postroad; print(postroad.__version__)')\"/" pyproject.toml >build/sbom/pyproject.toml
	build/release/bin/cyclonedx-py environment build/sbom/bin/python --pyproject build/sbom/pyproject.toml --output-reproducible --output-format JSON --output-file build/postroad.cdx.json
	rm -rf build/sbom
	@echo "The bill of materials is in build/postroad.cdx.json."

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
