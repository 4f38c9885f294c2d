# make demo   the service once: submit the paper's workload, pull the library where no compiler is, print a table
# make test   a check of everything in minutes; what a machine lacks is skipped with its reason
# make test-full  the same with what is marked thorough, and three times the cases of sampled(keep=N): what CI runs
# make test-long  that with what is marked long or left out by sampled(keep=N), each store on both databases, more kills;
#                cases of three parameters or more of tests/search_space cover every two values, not every combination
# make test-torch TORCH=2.10.0  what reads and meets PyTorch, with another release of it, in an environment of its own
# make evidence  the figures of the paper's evaluation, measured on this machine, in docs/evidence; and of a GPU's records
# make durations  tests/durations.txt: the seconds of each file of tests, by which the longest begin first
# make docs   the documentation as pages for a browser, in build/docs
# make secrets  the files that docker-compose.yml needs, made where they are not there yet
PYTHON ?= python3
VENV ?= .venv
CLIENT_VENV ?= build/client-venv
EXTRAS ?= server,dev
BIN := $(VENV)/bin
# Hundreds of processes start here; where each compiles what it imports anew, all takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs-tables tables demo test test-full test-long test-torch pytest durations lint docs pages evidence figures secrets clean

# pip runs again when the metadata, the constraints or the extras change. The one that comes with Python may be years
# old, and then takes twice as long as today's.
comma := ,
PIP_INSTALL := python -m pip install --quiet --no-compile --disable-pip-version-check
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
LAUNCHER := dietcode/runtime/launcher.so

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "Python 3.11 to 3.13 is needed; run make PYTHON=/path/to/python3")'
	test -x $(BIN)/python || { $(PYTHON) -m venv $(VENV) && $(BIN)/$(PIP_INSTALL) --upgrade pip; }
	$(BIN)/$(PIP_INSTALL) -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

# Installing compiles it; here it is compiled again where the source is newer.
$(LAUNCHER): $(wildcard dietcode/runtime/launcher/* dietcode/runtime/loops/* dietcode/runtime/compiled_call/* dietcode/runtime/recorder/*) | $(STAMP)
	$(BIN)/python -m dietcode.runtime.compile_launcher

$(CLIENT_VENV)/.installed: pyproject.toml constraints.txt hatch_build.py $(wildcard dietcode/runtime/launcher/* dietcode/runtime/loops/* dietcode/runtime/compiled_call/* dietcode/runtime/recorder/*)
	mkdir -p $(dir $(CLIENT_VENV))
	$(PYTHON) -m venv --clear $(CLIENT_VENV)
	$(CLIENT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt .
	touch $@

demo: $(STAMP) $(LAUNCHER) $(CLIENT_VENV)/.installed
	examples/demo.sh $(CURDIR)/$(BIN) $(CURDIR)/$(CLIENT_VENV)/bin

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Beside each other: mypy takes half a minute of one core. Many tests sleep, so that two cores have work for three.
test-full: $(STAMP) $(LAUNCHER)
	$(MAKE) --no-print-directory -j2 lint pytest

test: export DIETCODE_TEST_BRIEF = 1
test: test-full

test-long: export DIETCODE_TEST_LONG = 1
test-long: export DIETCODE_TEST_KILLS = 8
test-long: export DIETCODE_TEST_EXAMPLES = 3
test-long: test-full

pytest: $(STAMP) $(LAUNCHER)
	$(BIN)/python -m pytest -n 4 $(ARGS)

durations:
	$(MAKE) --no-print-directory ARGS=--update-durations pytest

# The extras ask for the release that has a CPU build; this one replaces it, and may bring gigabytes of CUDA.
TORCH ?= 2.10.0
TORCH_VENV := build/torch-$(TORCH)
test-torch:
	$(MAKE) --no-print-directory VENV=$(TORCH_VENV) EXTRAS=server,dev $(TORCH_VENV)/.installed-server-dev $(LAUNCHER)
	$(TORCH_VENV)/bin/$(PIP_INSTALL) torch==$(TORCH)
	$(TORCH_VENV)/bin/python -m pytest -n 4 tests/models tests/library tests/runtime tests/recursion tests/programs tests/bench $(ARGS)

# PyTorch and Matplotlib beside what is there; half an hour or more with nothing else running.
evidence:
	$(MAKE) --no-print-directory EXTRAS=$(EXTRAS),bench figures

figures: $(STAMP) $(LAUNCHER)
	$(BIN)/python -m benchmarks.evidence $(ARGS)

docs:
	$(MAKE) --no-print-directory EXTRAS=$(EXTRAS),docs pages

pages: $(STAMP)
	$(BIN)/python -m sphinx --builder html --fail-on-warning --nitpicky --keep-going --quiet --doctree-dir build/doctrees docs build/docs
	@echo "build/docs/index.html"

# What of the pages is written from the code; it is committed, so that the pages are read in the repository too.
docs-tables:
	$(MAKE) --no-print-directory EXTRAS=$(EXTRAS),docs tables

tables: $(STAMP)
	$(BIN)/python docs/_ext/write_tables.py

# The folder keeps others on this machine out; containers, which see the files alone, run as other users.
secrets:
	install -d -m 700 secrets
	for name in postgres_password ray_token; do \
	  test -s secrets/$$name || { od -An -N32 -v -tx1 /dev/urandom | tr -d " \\n" >secrets/$$name && chmod 444 secrets/$$name; } || exit 1; \
	done

clean:
	rm -rf build $(LAUNCHER) $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
