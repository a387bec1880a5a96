# Every command a person needs. `make demo` and `make test` set up what they use.
# With an environment of your own (a container, a cluster image): make demo PYTHON=python3 VENV=
SYSTEM_PYTHON ?= python3
VENV ?= .venv
ifeq ($(VENV),)
PYTHON ?= python3
export PYTHONPATH := common:client:scheduler:evaluator_server:training:gateway:testing:deploy/python:cli:$(PYTHONPATH)
READY :=
else
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
endif
PROTO_VENV := .venv-proto
TRAINERS_VENV := .venv-trainers
RELEASE_VENV := .venv-release

.PHONY: help setup setup-trainers demo check test test-together test-alone test-pure test-one test-gpu test-trainers chaos fmt lint typecheck proto proto-check layout bench tiny-rl dashboards docs release-check matrix sbom clean

help:
	@echo "make demo       judge 81 real candidates (76 without a GPU) through a real scheduler and evaluator (GPU if there is one)"
	@echo "make check      lint, typecheck and the pure tests, in a minute"
	@echo "make test       run the tests that need no GPU, with a sample of the corpora and of random examples (CORPUS=whole: all)"
	@echo "make test-one   run one test: T=tests/rpc/test_tls.py::test_name"
	@echo "make test-gpu   run all tests on this machine's NVIDIA GPU"
	@echo "make test-trainers  run the tests of the verl and TRL adapters, in an environment of their own (2 GB, Python 3.11 or 3.12)"
	@echo "make chaos      break a scheduler and its nodes in every known way; writes docs/reliability.md"
	@echo "make fmt        format: ruff, buf; make lint: ruff, buf lint; make typecheck: mypy"
	@echo "make proto      generate the stubs from protos/; make proto-check: fail when they are stale"
	@echo "make layout     show how the packages depend on each other: sizes, arrows, floors, circles"
	@echo "make docs       write docs/api.md from the protos, and build the site (build/docs/docs/index.html)"
	@echo "make bench      run the benchmarks and print their tables"
	@echo "make dashboards  write the JSON of Grafana's dashboards (deploy/dashboards)"
	@echo "make release-check  build wheel and sdist, check them, install each extra into an environment of its own (EXTRAS='base scheduler')"
	@echo "make matrix     install and smoke-test under every Python from 3.11 that this machine has"
	@echo "make sbom       bill of materials and licences of each extra, in build/sbom"
	@echo "make tiny-rl    train a tiny policy through real rewards and draw its curves (half an hour on two cores)"

setup: $(READY)

setup-trainers: $(TRAINERS_VENV)/.ready

# constraints.txt holds the versions that were tested.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(SYSTEM_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "KernelDyno needs Python 3.11 or newer; set SYSTEM_PYTHON=/path/to/python3.11")'
	$(SYSTEM_PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(PYTHON) examples/demo.py

# Markers of tests are described in pyproject.toml. CORPUS=whole: all candidates of corpus/ and all random examples, and not a
# sample of them; CORPUS=part: a part that the commit decides (tests/sampling.py).
CORPUS ?= sample
# Tests wait as well as compute: three workers more than there are processors; each takes half a gigabyte.
PROCESSORS := $(shell nproc)
WORKERS ?= $(shell n=$$(($(PROCESSORS) + 3)); echo $$((n < 8 ? n : 8)))
# Files with tests that must have the machine to themselves: to collect all others as well takes seconds.
ALONE = $(sort $(shell grep -rl "pytest.mark.alone" tests --include="test_*.py"))
# Where the environment forbids to write bytecode, each of the thousand processes of the tests would compile our sources anew.
unexport PYTHONDONTWRITEBYTECODE

# Static checks and the pure tests, beside each other.
check: $(READY)
	$(MAKE) --no-print-directory -j2 --output-sync=target lint typecheck test-pure

test-pure: $(READY)
	$(PYTHON) -m pytest -q -m "pure and not gpu" --ignore=tests/trainers -n $(PROCESSORS) --dist loadfile

test: $(READY)
	$(MAKE) --no-print-directory test-together
	$(MAKE) --no-print-directory test-alone

# Files that may run beside each other, each on one worker.
test-together: $(READY)
	$(PYTHON) -m pytest -m "not gpu and not alone" --corpus=$(CORPUS) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests that must have the machine to themselves.
test-alone: $(READY)
	$(PYTHON) -m pytest -m "alone and not gpu" --corpus=$(CORPUS) $(ALONE)

# make test-one T=tests/rpc/test_tls.py::test_x, or any other arguments of pytest.
test-one: $(READY)
	$(PYTHON) -m pytest $(T)

test-gpu: $(READY)
	KERNELDYNO_REQUIRE_GPU=1 $(PYTHON) -m pytest

# verl and TRL pin versions that the rest does not want; constraints-trainers.txt holds those that were tested. Their own
# warnings are theirs, and hypothesis, which tests/conftest.py sets up, is not among them.
$(TRAINERS_VENV)/.ready: pyproject.toml constraints-trainers.txt
	$(SYSTEM_PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13) and "verl needs Python 3.11 or 3.12; set SYSTEM_PYTHON")'
	$(SYSTEM_PYTHON) -m venv $(TRAINERS_VENV)
	$(TRAINERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-trainers.txt -e '.[trainers-dev]'
	touch $@

# A test starts evaluators, which want Triton, from the other environment.
test-trainers: $(TRAINERS_VENV)/.ready $(READY)
	KERNELDYNO_REQUIRE_VERL=1 $(TRAINERS_VENV)/bin/python -m pytest tests/trainers --confcutdir=tests/trainers -W default -p no:warnings

chaos: $(READY)
	$(PYTHON) -m tests.chaos.run --all --report docs/reliability.md

lint: $(READY)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(VENV)/bin/buf lint
	$(VENV)/bin/buf format -d --exit-code

fmt: $(READY)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
	$(VENV)/bin/buf format -w

typecheck: $(READY)
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy --config-file tests/mypy.ini

$(PROTO_VENV)/.ready: proto-requirements.txt
	$(SYSTEM_PYTHON) -m venv $(PROTO_VENV)
	$(PROTO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r proto-requirements.txt
	touch $@

proto: $(PROTO_VENV)/.ready
	mkdir -p build
	$(PROTO_VENV)/bin/buf format -w
	$(PROTO_VENV)/bin/buf lint
	$(PROTO_VENV)/bin/buf build -o build/image.binpb
	PATH=$(CURDIR)/$(PROTO_VENV)/bin:$$PATH $(PROTO_VENV)/bin/python -m grpc_tools.protoc --descriptor_set_in=build/image.binpb \
	  --python_out=common --grpc_python_out=common --mypy_out=common --mypy_grpc_out=common \
	  $$(cd protos && find . -name '*.proto' | sed 's|^\./||' | sort)

proto-check: proto
	git diff --exit-code -- protos common/kerneldyno/v1

layout: $(READY)
	$(PYTHON) tools/layout.py

bench: $(READY)
	$(PYTHON) -m benchmarks.throughput
	$(PYTHON) -m benchmarks.throughput --batch violent --seconds 300
	$(PYTHON) -m benchmarks.accuracy
	$(PYTHON) -m benchmarks.overhead
	$(PYTHON) -m benchmarks.scheduler_load
	$(PYTHON) -m benchmarks.locality
	$(PYTHON) -m benchmarks.rewards
	$(PYTHON) -m benchmarks.training

tiny-rl: $(READY)
	$(PYTHON) examples/tiny_rl/train.py --preset small --out build/tiny_rl
	$(PYTHON) examples/tiny_rl/plot.py build/tiny_rl/results.json --images build/tiny_rl

dashboards: $(READY)
	$(PYTHON) -m deploy.dashboards

# The pages, as a site: build/docs/docs/index.html.
docs: $(READY)
	$(PYTHON) docs/api_reference.py
	$(PYTHON) -m sphinx -q -W --keep-going -c docs . build/docs

# hatchling, build, twine and CycloneDX, apart from what they look at.
$(RELEASE_VENV)/.ready: pyproject.toml constraints.txt
	$(SYSTEM_PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	touch $@

release-check: $(RELEASE_VENV)/.ready
	$(RELEASE_VENV)/bin/python tools/release/check.py $(if $(EXTRAS),--only $(EXTRAS))

matrix: $(RELEASE_VENV)/.ready
	$(RELEASE_VENV)/bin/python tools/release/matrix.py $(PYTHONS)

sbom: $(RELEASE_VENV)/.ready
	$(RELEASE_VENV)/bin/python tools/release/sbom.py $(EXTRAS)

clean:
	rm -rf build dist $(VENV) $(PROTO_VENV) $(TRAINERS_VENV) $(RELEASE_VENV)
