# Everything a fresh clone needs is made here: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_VENV := .venv-bench
# Which benchmarks `make bench` runs.
BENCH ?= prepare load plan

.PHONY: demo test check format soak bench clean help

help:
	@echo "make demo    prepare a corpus that every Python has on disk, verify and show it"
	@echo "make test    format, lint, types, import contracts, tests"
	@echo "make check   the same without the tests"
	@echo "make soak    long runs: an hour of kills and restarts, ten gigabytes of input"
	@echo "make bench   compare with peers, in their own environment; results under bench/results"
	@echo "             (BENCH=load for one of prepare, load, plan; BENCH_ARGS=--quick to try)"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	@rm -rf demo
	$(BIN)/penstock demo --out_dir demo

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: check
	$(BIN)/python -m pytest

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak --timeout 7200

$(BENCH_VENV)/.installed: bench/requirements.txt bench/requirements-alone.txt constraints.txt pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
		--editable '.[bench]' --requirement bench/requirements.txt
	$(BENCH_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --no-deps \
		--requirement bench/requirements-alone.txt
	@touch $@

bench: $(BENCH_VENV)/.installed
	set -e; for name in $(BENCH); do $(BENCH_VENV)/bin/python bench/$$name.py $(BENCH_ARGS); done

clean:
	rm -rf $(VENV) $(BENCH_VENV) demo bench/work
