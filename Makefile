# make local   the whole pipeline on this machine: set-up, up, the job until its end
# make test    everything that is checked; make check is its quick half
# make recovery   ten minutes of preemptions, kills and faulty trainings on the twin
# make diff BASE=<rev>   what this tree would change in the dev stack of a commit, without credentials
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
BIN := .venv/bin
TWIN := $(BIN)/python -m twin
STACK ?= local

.PHONY: local check test recovery diff bench clean

local: .venv/twin
	$(TWIN) up --stack $(STACK)
	eval "$$($(TWIN) env)"
	python -m jobs watch --stack $(STACK)

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --quiet .github/workflows
	$(BIN)/pytest -m "not engine and not ray and not recovery"

# The longest build goes on while the quick half runs.
test: .venv/dev
	$(BIN)/python -m twin.toolchain > /dev/null & builder=$$!
	trap 'kill $$builder 2> /dev/null || true' EXIT
	$(MAKE) check
	wait $$builder
	$(BIN)/pytest -m "engine or ray"

# Apart from `make test`, which it would make half as long again.
recovery: .venv/dev
	$(BIN)/pytest -m recovery

# The cloud's stack is what a change is measured on; STACK=local works as well.
diff: STACK = dev
diff: .venv/twin
	$(TWIN) diff --base '$(BASE)' --stack $(STACK)

bench: .venv/dev
	$(BIN)/python -m bench
	$(BIN)/python -m bench.log_parser

clean:
	if [ -x $(BIN)/python ] && [ -d .twin ]; then $(TWIN) stop; fi
	rm -rf .twin .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/twin: requirements.txt requirements-twin.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-twin.txt
	touch $@

.venv/dev: .venv/twin requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@
