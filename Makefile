# Everything below runs on a bare machine with Python 3.11, pip and make. PYTHON may name another interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check bench install clean

demo: install
	HF_HUB_OFFLINE=1 $(BIN)/s2p loop configs/demo.yaml

test: install check
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	set -e; for f in tests/benchmarks/bench_*.py; do echo "== $$f"; HF_HUB_OFFLINE=1 $(BIN)/python $$f; done

install: $(STAMP)

# torch and torchvision first and together: a resolver that meets them apart can pick a pair whose operators do not match.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch torchvision
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info
