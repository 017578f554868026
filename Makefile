# Everything here builds its own virtual environment in .venv and needs only Python >= 3.11, git and make.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt
PYTEST_ARGS ?=
CONFORMANCE := PYTHONPATH=tests $(BIN)/python -m conformance
RESULTS := .conformance.json
# Where bytecode is not cached, every worker of the tests and every process that they start compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

# What decides and touches nothing: its own tests reach every branch of it.
PURE := src/symphony/domain/*,src/symphony/scheduler/*,src/symphony/config/*,src/symphony/skills/*,src/symphony/frontmatter.py,src/symphony/workspaces/layout.py
PURE_TESTS := tests/unit/domain tests/unit/scheduler tests/unit/config tests/integration/config \
  tests/unit/skills tests/unit/frontmatter tests/unit/workspaces/test_layout.py tests/unit/daemon/test_admission.py \
  tests/unit/cli/test_migration.py

.PHONY: help setup release-dry-run demo test test-all check unit coverage nightly fuzz attack simulate chaos bench conformance conformance-report agents man schemas settings format clean

setup: $(VENV)/.dev ## Make the virtual environment in .venv with everything for development

help: ## Show this help
	@echo "Symphony for Python"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## Watch four issues become commits (no account, no model; about 15 seconds)
	@$(BIN)/symphony demo

test: style $(VENV)/.bytecode ## Run every gate and every test that is not slow (5 minutes on two cores)
	@$(call with_types,$(PYTEST) -m "$(FAST)" $(PYTEST_ARGS))

test-all: style $(VENV)/.bytecode ## Run every gate and every test, and judge conformance (25 minutes on two cores)
	@$(call with_types,$(PYTEST) --conformance-results=$(RESULTS) $(PYTEST_ARGS))
	@$(CONFORMANCE) --from $(RESULTS)

# What `make test` runs.
FAST := not (slow or real_acp or real_aider or real_claude or real_codex)

# Five workers for two processors, because one whose tests start real processes waits for them: with four, a sixth of
# the processors' time is unused. Each worker more costs ten seconds of a processor: it collects all tests, and starts a
# process that daemons begin in.
PARALLEL := -n 5 --dist worksteal
PYTEST := $(BIN)/pytest $(PARALLEL)

# Bytecode is made once, so that the workers find it and do not compile the tests five times.
$(VENV)/.bytecode: $(VENV)/.dev
	@$(BIN)/pytest --collect-only -q >/dev/null || true
	@touch $@

# Types are checked beside the tests, because one processor does it.
define with_types
  told=$$(mktemp); $(BIN)/mypy >"$$told" 2>&1 & types=$$!; \
  $(1); failed=$$?; \
  wait $$types || failed=1; cat "$$told"; rm -f "$$told"; exit $$failed
endef

coverage: $(VENV)/.dev ## Show that the tests of the pure parts reach every branch of them
	@$(BIN)/coverage erase
	$(BIN)/pytest -q -n 2 --cov --cov-report= $(PURE_TESTS)
	$(BIN)/coverage report --fail-under=100 --include='$(PURE)'

nightly: $(VENV)/.dev ## Run what takes hours: coverage of everything, new schedules, attacks and storms
	@$(MAKE) --no-print-directory gates
	@$(BIN)/coverage erase
	SYMPHONY_NIGHTLY=1 $(BIN)/pytest -n 3 --dist worksteal --cov --cov-report= $(PYTEST_ARGS)
	$(BIN)/coverage report --fail-under=90 | tail -n 40
	SYMPHONY_SIMULATION_EXAMPLES=10000 $(BIN)/pytest -q -n 2 tests/simulation
	@$(MAKE) --no-print-directory attack
	@$(MAKE) --no-print-directory chaos

check: $(VENV)/.dev ## Run the gates and the fast tests (about 90 seconds)
	@$(MAKE) --no-print-directory gates
	$(BIN)/pytest -q -n 2 tests/unit

.PHONY: gates style
gates: style
	$(BIN)/mypy

style: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet src tests
	$(BIN)/ruff check --quiet src tests
	$(BIN)/lint-imports --verbose 2>&1 | tail -n 8; exit $${PIPESTATUS[0]}
	$(BIN)/deptry src 2>&1 | tail -n 3; exit $${PIPESTATUS[0]}

unit: $(VENV)/.dev ## Run the unit tests only
	$(BIN)/pytest -q tests/unit

# Older versions of libraries use what newer ones deprecate, so warnings are no errors there. Every call of a library is
# reached by the unit and integration tests; what is decided without libraries is left out, and so is what people write.
LOWEST := .venv-lowest
LOWEST_TESTS := tests/unit tests/integration tests/acceptance/test_init_and_run.py \
  $(addprefix --ignore=tests/unit/,scheduler domain skills docs conformance test_plain_python.py test_source_layout.py)
.PHONY: lowest
lowest: ## Run what calls libraries with the lowest versions of them that pyproject.toml allows
	@test -d $(LOWEST) || $(PYTHON) -m venv $(LOWEST)
	@$(PYTHON) .ci/lowest.py > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[dev,otel]'
	$(LOWEST)/bin/pytest $(PARALLEL) -o filterwarnings=default -m "$(FAST)" $(LOWEST_TESTS) $(PYTEST_ARGS)

fuzz: $(VENV)/.dev ## Try random files on the skills loader for FUZZ_S seconds (60)
	FUZZ_S=$${FUZZ_S:-60} $(BIN)/pytest -q tests/unit/skills/test_loader_fuzz.py

chaos: $(VENV)/.dev ## Kill and plague the real daemon for CHAOS_S seconds (120); SEED=… repeats a storm
	@PYTHONPATH=tests $(BIN)/python -m chaos
	@PYTHONPATH=tests $(BIN)/python -m chaos --kills 30 --issues 40 --seconds 300

attack: $(VENV)/.dev ## Attack the program for ATTACK_S seconds (600); SEED=… repeats a run
	ATTACK_S=$${ATTACK_S:-600} $(BIN)/pytest -q -n 2 tests/attack

conformance: $(VENV)/.dev ## Run the tests that show the specification's rules, and judge them
	@$(CONFORMANCE)

conformance-report: $(VENV)/.dev ## Write docs/CONFORMANCE.md from the marks of the tests
	@$(CONFORMANCE) --write

schemas: $(VENV)/.dev ## Write docs/schemas from the types of the documents
	@PYTHONPATH=tests $(BIN)/python -m published

man: $(VENV)/.dev ## Write docs/man/symphony.1 from what the commands say of themselves
	@PYTHONPATH=tests $(BIN)/python -m manual

settings: $(VENV)/.dev ## Write the table of docs/workflow-file.md from the models of the settings
	@PYTHONPATH=tests $(BIN)/python -m settings_page

.PHONY: screenshots
screenshots: $(VENV)/.dev ## Take the pictures of the pages in docs/images again (takes Debian's chromium)
	SYMPHONY_SCREENSHOTS=docs/images $(BIN)/pytest -q tests/integration/pages -k fits_the_screen

.PHONY: snapshots
snapshots: $(VENV)/.dev ## Record the screens in tests/snapshots again; look at the difference
	SYMPHONY_SNAPSHOTS=1 $(BIN)/pytest -q tests/unit/cli

RUNS ?= 10000
JOBS ?= 2
simulate: $(VENV)/.dev ## Run RUNS random schedules in JOBS processes, or replay the one of SEED
	@PYTHONPATH=tests $(BIN)/python -m kit.simulator $(if $(SEED),--schedules 1 --seed $(SEED),--schedules $(RUNS) --jobs $(JOBS) --seed $${RANDOM}$${RANDOM})

bench: $(VENV)/.dev ## Measure beside a bare floor and write docs/PERFORMANCE.md (20 minutes)
	@PYTHONPATH=tests $(BIN)/python -m bench

agents: $(VENV)/.dev ## Install and drive every real agent, or AGENT=… alone, and write docs/agents.md (half an hour)
	@eval "$$(.ci/install-agents)" && PYTHONPATH=tests $(BIN)/python -m real_agents $(if $(AGENT),--only $(AGENT))

format: $(VENV)/.dev ## Format the code and mend what ruff can mend
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

release-dry-run: $(VENV)/.dev ## Build the wheel and the image, and try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT \
	  && $(PYTHON) -m venv "$$place" \
	  && "$$place/bin/pip" install --quiet --disable-pip-version-check -c $(CONSTRAINTS) dist/*.whl \
	  && "$$place/bin/symphony" --version && "$$place/bin/symphony" demo --dir "$$place/demo" >/dev/null && echo "the wheel works"
	@engine=$$(command -v buildah || command -v docker || true); \
	  if [ -n "$$engine" ]; then "$$engine" build --file deploy/docker/Dockerfile --tag symphony:dry-run $(IMAGE_ARGS) .; \
	  else echo "no image: neither buildah nor docker is installed"; fi

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* $(RESULTS)

$(VENV)/bin/python:
	@test -w . || { echo "error: $(CURDIR) cannot be written, and everything is built in $(VENV) below it" >&2; echo "hint: clone it to a place of your own" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed" >&2; echo "hint: make PYTHON=/path/to/python3.11 demo" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev,otel]'
	@touch $@
