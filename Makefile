# make demo    set up, then run the main job end to end
# make test    set up, then every check and every test but the soak
# make check   format, lint, types, layers, house rules, tests without servers: under a minute
# make bench   measure against peers and limits: a table, under a quarter of an hour
# make soak    the tests that take minutes or hours
# make clean   remove what the others made, data of demos included

SHELL := /bin/bash
BIN := .venv/bin
SETUP := .venv/.setup
INTEGRATIONS := .venv/.integrations
BENCH := .venv/.bench
DEMO_DATA ?= demo-data/$(shell date +%Y%m%d-%H%M%S)
# More arguments: make test ARGS="-k embedded --server valkey", make bench ARGS="--only runs"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo lint check test bench soak clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup: $(SETUP)

# Made again only when what it was made from has changed.
$(SETUP): pyproject.toml constraints.txt
	@for python in python3.11 python3; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	  python=; \
	done; \
	[ -n "$$python" ] || { \
	  echo "setup: needs Python 3.11 or newer, as python3.11 or python3" >&2; exit 1; }; \
	echo "setup: making .venv with $$($$python --version)"; \
	$$python -m venv .venv || { echo "setup: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "setup: installing $$(grep -c == constraints.txt) locked packages, about half a minute"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --editable '.[daemon,dev]' --constraint constraints.txt
	@touch $(SETUP)
	@echo "setup: done"

# The libraries that the optional integrations are for: only checks and tests need them.
$(INTEGRATIONS): $(SETUP)
	@echo "setup: installing the libraries of the integrations"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --editable '.[integrations]' --constraint constraints.txt
	@touch $(INTEGRATIONS)

# The peers that `make bench` measures against.
$(BENCH): $(SETUP)
	@echo "setup: installing what we are measured against"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --editable '.[bench]' --constraint constraints.txt
	@touch $(BENCH)

demo: setup
	@mkdir -p $(dir $(DEMO_DATA))
	$(BIN)/statewriter demo --data $(DEMO_DATA)

lint: $(INTEGRATIONS)
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo

check: lint
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not server and not slow and not soak" \
	  --ignore tests/faults --ignore tests/crash --ignore tests/bench $(ARGS)

# A file's tests stay in one process: they share its servers.
test: lint
	$(BIN)/python -m pytest -q -m "not soak" -n 2 --dist loadfile $(ARGS)

bench: $(BENCH)
	$(BIN)/python -m tests.bench $(ARGS)

soak: $(INTEGRATIONS)
	$(BIN)/python -m pytest -m soak --hypothesis-profile exploring $(ARGS)

clean:
	rm -rf .venv build dist demo-data *.egg-info .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find producers writer tests -name __pycache__ -type d -prune -exec rm -rf {} +
