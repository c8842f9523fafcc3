# Every target sets up what it needs; the second time that takes no time.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

VENV  := .venv
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# The first interpreter that is new enough; `make PYTHON=/path/to/python …` chooses another.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

# uv installs faster, where it is there. Where it fails, pip does it, which has settings that uv does not read.
UV ?= $(shell command -v uv 2>/dev/null)

# Every platform's hashes; versions stay as they are unless UPGRADE is --upgrade.
PINS = --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header $(UPGRADE)

# `make e2e CLUSTER=kind` uses kind in place of the project's own cluster.
CLUSTER ?= own

# Finds mistakes in the workflows of the forge; Go fetches and builds it once
ACTIONLINT = github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# More arguments for pytest, e.g. `make test ARGS="-k chain -x"`. WORKERS=0 runs the tests one after the other. There are
# more workers than cores because many tests wait for processes most of their time. Folders that take long begin first
# (tests/support/scheduling.py), and the short files at the end keep all workers busy.
ARGS ?=
WORKERS ?= 3
SLOW ?=

# Seconds after which a test on nodes gives up a wait. It is long because Pods of Spark that share few cores take minutes.
NODES_HANG_GUARD ?= 900

# Nodes of Kubernetes, their base image, and cuts in the network between processes
NODE_PACKAGES = containerd runc containernetworking-plugins nftables conntrack iproute2 iptables util-linux debootstrap
TRACE_PACKAGES = strace
IMAGE_PACKAGES = docker.io
CHAOS_PACKAGES = e2fsprogs iproute2 nftables util-linux
SPARK_PACKAGES = openjdk-17-jre-headless maven

.PHONY: help venv gen gen-check lint lint-ruff lint-format lint-types lint-imports lint-vocabulary lint-constructors lint-units lint-workflows format test test-quick mutations demo bench bench-spark chaos e2e \
	chaos-packages spark-packages spark-jars cluster-packages image-packages cluster-build dist pins clean \
	reference reference-check docs

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## create .venv with everything for development (about 1.7 GB, two minutes)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt install python3 python3-venv" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } || \
		{ echo "could not create $(VENV); on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "installing everything for development into $(VENV): about 1.7 GB (Spark is a third of it), two minutes or so"
	@{ test -n "$(UV)" && $(UV) pip install --quiet --python $(PY) -e '.[dev]'; } || \
		$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

gen: $(STAMP) ## generate the protobuf stubs
	$(PY) tools/gen.py

gen-check: $(STAMP) ## fail if the generated stubs differ from the .proto files
	$(PY) tools/gen.py --check

lint: $(STAMP) ## ruff, mypy, import layers, retired words, constructors, workflows, generated files; all of them, even if one fails
	@$(MAKE) --keep-going lint-ruff lint-format lint-types lint-imports lint-vocabulary lint-constructors lint-units lint-workflows gen-check reference-check

lint-ruff: $(STAMP)
	$(VENV)/bin/ruff check .

lint-format: $(STAMP)
	$(VENV)/bin/ruff format --check .

lint-types: $(STAMP)
	$(VENV)/bin/mypy

lint-imports: $(STAMP)
	$(VENV)/bin/lint-imports

lint-vocabulary: $(STAMP)
	$(PY) tools/check_vocabulary.py
	$(PY) tools/check_prose.py

lint-constructors: $(STAMP)
	$(PY) tools/check_constructors.py

lint-units: $(STAMP)
	$(PY) tools/check_units.py

# actionlint is a program in Go: where Go is not there, only zizmor runs.
lint-workflows: $(STAMP)
	$(VENV)/bin/zizmor --offline --no-progress --quiet .github/workflows
	@if command -v go >/dev/null; then go run $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml; \
		else echo "actionlint needs Go, which is not installed; only zizmor looked at the workflows" >&2; fi

format: $(STAMP) ## let ruff fix and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

test: $(STAMP) ## the tests that need no Kubernetes nodes; with SLOW=yes also those of more than five seconds each
	$(PY) -m pytest tests -m "not chaos and not e2e$(if $(SLOW),, and not slow)" -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--durations=80 --durations-min=5 $(ARGS)

test-quick: $(STAMP) ## unit and property tests, in less than two minutes
	$(PY) -m pytest tests/unit tests/property -m "not slow" -n $(WORKERS) $(ARGS)

mutations: $(STAMP) ## break the packages one rule at a time; each time the tests named for it must fail (some minutes)
	$(PY) -m tests.mutations $(ARGS)

demo: $(STAMP) ## a real data set through SeaweedFS, a leader and brokers, all local processes
	$(PY) -m examples.demo

bench: $(STAMP) ## measure
	$(PY) -m benchmarks.run

bench-spark: $(STAMP) ## measure reads, streams, writes and compaction of Spark (half an hour; ARGS="--only read")
	$(PY) -m benchmarks.spark $(ARGS)

chaos: $(STAMP) ## kill, pause and cut off real processes for ten minutes (as root also the network, clocks and a disk)
	$(PY) -m pytest tests/chaos -s $(ARGS)

# The whole run tests the Dockerfiles, too. With a selection, images are built without Docker unless it is there, which is faster.
e2e: $(if $(filter kind,$(CLUSTER)),$(STAMP),cluster-build $(if $(ARGS),,image-packages)) ## real Pods on real nodes, on this machine (needs root and Go); or CLUSTER=kind
	SMQ_E2E_CLUSTER=$(CLUSTER) SMQ_TEST_HANG_GUARD=$(NODES_HANG_GUARD) $(PY) -m pytest tests/e2e $(if $(filter kind,$(CLUSTER)),--ignore=tests/e2e/test_cluster.py --ignore=tests/e2e/test_ip_families.py) $(ARGS)

chaos-packages: ## install the Debian packages with which chaos cuts the network, steps clocks and freezes a disk (needs root)
	@dpkg -s $(CHAOS_PACKAGES) >/dev/null 2>&1 || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(CHAOS_PACKAGES); }

spark-packages: $(STAMP) ## install Java for Spark, and Maven, unless they are there (needs root)
	@(cd tests && command -v mvn >/dev/null && \
		$(abspath $(PY)) -c 'import sys; from support.spark.java import find_java; sys.exit(find_java() is None)') || \
		{ apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(SPARK_PACKAGES); }

spark-jars: $(STAMP) ## fetch the jars with which Spark reads S3, once (about 30 MB, needs Maven)
	@$(PY) tools/spark_jars.py

cluster-packages: ## install the Debian packages that nodes of Kubernetes and traces need (needs root)
	@dpkg -s $(NODE_PACKAGES) $(TRACE_PACKAGES) >/dev/null 2>&1 || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(NODE_PACKAGES) \
		$(TRACE_PACKAGES); }

image-packages: ## install Docker, with which the tests of the Dockerfiles build them (needs root)
	@docker info >/dev/null 2>&1 || dpkg -s $(IMAGE_PACKAGES) >/dev/null 2>&1 || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(IMAGE_PACKAGES); }

cluster-build: $(STAMP) ## build Kubernetes for tests, once, in some minutes (needs Go)
	$(PY) -m tests.e2e.cluster build

reference: $(STAMP) ## generate docs/reference from the code
	$(PY) tools/reference.py

reference-check: $(STAMP)
	$(PY) tools/reference.py --check

docs: reference-check ## build the documentation as a site in build/site; broken links are errors
	@$(PY) -c 'import mkdocs, mkdocstrings' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(PY) -m mkdocs build --strict

dist: $(STAMP) ## a release in dist/: wheel, sdist, chart, the images' build contexts, SBOMs, checksums; the same bytes for a commit
	$(PY) tools/dist.py $(ARGS)

pins: $(STAMP) ## pin what goes into the images (requirements/); UPGRADE=--upgrade takes newer versions
	$(PY) -m pip install --quiet --disable-pip-version-check uv
	@cd requirements; for extra in broker operator spark; do \
		../$(VENV)/bin/uv pip compile $(PINS) --extra $$extra ../pyproject.toml -o $$extra.txt; done; \
		../$(VENV)/bin/uv pip compile $(PINS) build.in -o build.txt

clean: ## remove the virtual environment, caches and local data
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .smq build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
