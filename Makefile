# Every target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.
#
#   PYTHON         the interpreter that the environment is made with
#   TORCH_OPTIONS  options for installing torch, such as an index that has its CPU build
#   WORKERS        test processes

PYTHON ?= python3
TORCH_OPTIONS ?=
WORKERS ?= 2

BIN := .venv/bin
READY := .venv/.ready
# One thread a process: two processes whose threads wait for each other's cores are many times slower.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := test
.PHONY: demo test test-slow compile lint format types contracts docs check clean

# Torch goes first and alone: with its exact version named, no other build can come in as a dependency.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(TORCH_OPTIONS) "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cpu,dev,plot]'
	touch $@

demo: $(READY)
	$(BIN)/rlt-hw probe
	$(BIN)/rlt-hw generate --model demo:ouro --exit-threshold 0.5 --show-depth \
		--prompt "$$(printf 'Q: Leo has 70 green toys and 41 new toys. How many toys does Leo have in all?\nA:')"

test: $(READY)
	$(PYTEST) --dist loadfile

test-slow: $(READY)
	$(PYTEST) --dist worksteal -m 'slow and not compile'

compile: $(READY)
	$(PYTEST) --dist worksteal -m compile tests/backends/kernels

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

docs: $(READY)
	$(BIN)/python docs/check.py

check: test lint types contracts docs

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
