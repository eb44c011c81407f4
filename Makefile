# The commands of this repository; `make` alone lists them.
#
# Everything runs in .venv, which `make setup` creates and every other target brings up to date first. Name the Python to
# start from with PYTHON=/path/to/python; otherwise it is the first on PATH that has torch >= 2.11, or else the first that
# is 3.10 or newer.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(CURDIR)/$(VENV)/bin/python
# The binding crate is built for, and its tests run in, this environment's Python.
export PYO3_PYTHON := $(PY)

ENV_STAMP := $(VENV)/created
WHEEL_STAMP := $(VENV)/installed
WHEEL_SOURCES := $(wildcard Cargo.toml Cargo.lock pyproject.toml) \
	$(shell find crates python -type f -not -path '*/tests/*' -not -name '*.pyc' -not -name '*.so' 2>/dev/null)

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- environment ---

.PHONY: setup
setup: $(WHEEL_STAMP) ## create .venv (PyTorch included unless it is installed), build the wheel, install it
	@echo "setup: ready: $(VENV)/bin/python has permalloy"

# Another PYTHON than the one the environment was made from means another environment.
ifdef PYTHON
ifneq ($(PYTHON),$(file <$(ENV_STAMP)))
.PHONY: $(ENV_STAMP)
endif
endif

# The Python it was made from last time, if nobody names another and it is still there.
$(ENV_STAMP): tools/requirements.txt tools/requirements-torch.txt
	@python="$(PYTHON)"; python="$${python:-$$(cat $@ 2>/dev/null || true)}"; \
	[ -x "$$(command -v "$$python")" ] || python="$$(tools/find_python)"; \
	"$$python" tools/environment.py create; \
	printf '%s\n' "$$python" > $@

$(WHEEL_STAMP): $(ENV_STAMP) $(WHEEL_SOURCES)
	@$(PY) tools/environment.py install
	@touch $@

# --- what it does ---

.PHONY: demo
demo: $(WHEEL_STAMP) ## train a small GPT eagerly and compiled, side by side, in about three minutes
	@$(PY) demo/main.py $(DEMO)

# --- checks ---

.PHONY: test
test: test-rust test-python ascend-sample ## all tests

# The binding crate's tests would have to link libpython, which many installations lack: it is tested from Python.
RUST_TESTS := --workspace --exclude permalloy-python

# Where the tests that call PyTorch's operators from Rust find them; importing torch to ask would take seconds.
LIBTORCH = $(shell $(PY) -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/lib/libtorch_cpu.so

.PHONY: test-rust
test-rust: $(ENV_STAMP) ## the Rust tests of all crates, doc examples included
	@export PERMALLOY_TEST_LIBTORCH="$(LIBTORCH)"; \
	if cargo nextest --version >/dev/null 2>&1; then \
		echo "test: Rust tests of all crates (cargo nextest)"; \
		cargo nextest run $(RUST_TESTS) --no-fail-fast --status-level fail --final-status-level slow; \
		echo "test: examples in the Rust documentation"; \
		cargo test $(RUST_TESTS) --doc --quiet; \
	else \
		echo "test: Rust tests of all crates (cargo test)"; \
		cargo test $(RUST_TESTS) --no-fail-fast --quiet; \
	fi

.PHONY: test-python
test-python: $(WHEEL_STAMP) ## the Python tests
	@echo "test: Python tests"
	@$(PY) -m pytest tests/python -q --durations=5 $(PYTEST)

# Kernels for Ascend, through its compilers as far as they are open; no NPU. The compilers have an environment of their own.
ASCEND_STAMP := .venv-ascend/created

$(ASCEND_STAMP): $(ENV_STAMP) tests/ascend/requirements.txt
	@$(PY) tools/environment.py ascend
	@touch $@

# Where no Python is old enough for the compilers, this says so and is no failure.
.PHONY: ascend-sample
ascend-sample: $(WHEEL_STAMP) ## some kernels of each kind through Ascend's compilers, within three minutes
	@echo "test: a sample of kernels through Ascend's compilers"
	@if $(PY) tools/environment.py can-ascend; then $(MAKE) ascend ASCEND=--sample; fi

.PHONY: ascend
ascend: $(WHEEL_STAMP) $(ASCEND_STAMP) ## every kernel of tests and six models through Ascend's compilers, in half an hour
	@$(PY) tests/ascend/check.py --python .venv-ascend/bin/python $(ASCEND)

.PHONY: opinfo
opinfo: $(WHEEL_STAMP) ## PyTorch's operator samples against eager, about 40 minutes; OPINFO='--ops GLOB --sample 1/20 …' for parts
	@$(PY) tests/opinfo/sweep.py $(OPINFO)

# Seeds and time: make fuzz FUZZ='--seconds 600 --from 100000' FUZZ_GRAPHS=5000
FUZZ := --count 20000
FUZZ_GRAPHS := 20000

.PHONY: fuzz
fuzz: $(WHEEL_STAMP) ## 20,000 random graphs against the interpreter and as many random programs against eager, in half an hour
	@echo "fuzz: random graphs (Rust)"
	@PERMALLOY_FUZZ_SEEDS=$(FUZZ_GRAPHS) cargo test -p permalloy-cli --test random --quiet -- --nocapture
	@echo "fuzz: random programs (Python)"
	@cd tests/python && $(PY) -m fuzz $(FUZZ)

.PHONY: lint
lint: $(ENV_STAMP) ## formatting and lints of Rust, Python and shell; changes nothing
	@echo "lint: rustfmt"
	@cargo fmt --all --check
	@echo "lint: clippy"
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@echo "lint: ruff"
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --check --quiet . || { $(VENV)/bin/ruff format --check . ; exit 1; }
	@echo "lint: shell scripts parse"
	@bash -n .ci/run && sh -n tools/find_python && sh -n tools/under_valgrind
	@echo "lint: clean"

.PHONY: format
format: $(ENV_STAMP) ## format Rust and Python in place
	@cargo fmt --all
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format .

# Memory safety of the crates that hold `unsafe`. Miri would be first choice, but it is a nightly-only component and cannot
# run the vector intrinsics or call into libtorch. So two tools that complement each other:
# * valgrind on the ordinary test binaries: heap, uninitialised reads, system libraries. Its virtual processor has no
#   AVX-512, so detection falls back to AVX2; a second run takes the portable path.
# * AddressSanitizer on the same tests: catches overruns of stack and globals as well and runs the AVX-512 code.
#   It is an unstable flag of a compiler that has it built in, hence RUSTC_BOOTSTRAP.
# Neither sees machine code that the engine makes. So its tests, here and in `make test`, keep each buffer beside an
# inaccessible page (crates/cpu/tests/support/guard.rs).
# Nor do they see libtorch: the tests that call it need PERMALLOY_TEST_LIBTORCH, which is not set here.
MEMCHECK_CRATES := -p permalloy-cpu -p permalloy-runtime
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
RUNNER := CARGO_TARGET_$(shell echo '$(HOST)' | tr 'a-z-' 'A-Z_')_RUNNER

.PHONY: memcheck
memcheck: memcheck-valgrind memcheck-asan ## the Rust tests of cpu and runtime under valgrind and AddressSanitizer

# Of the tile engine's random kernels a few stand for all. A sanitizer makes each three times as slow, and sees large ones,
# too; valgrind makes them 50 times as slow.
MEMCHECK_TESTS := --test-threads=1 --skip random_batches
VALGRIND_TESTS := $(MEMCHECK_TESTS) --skip long_sums

.PHONY: memcheck-valgrind
memcheck-valgrind:
	@command -v valgrind >/dev/null || { echo "memcheck: valgrind is not installed (apt-get install valgrind)"; exit 1; }
	@for isa in avx2 portable; do \
		echo "memcheck: valgrind, PERMALLOY_ISA=$$isa"; \
		env MEMCHECK_POINTS=10000 $(RUNNER)="$(CURDIR)/tools/under_valgrind" PERMALLOY_ISA=$$isa \
			cargo test $(MEMCHECK_CRATES) --lib --tests --quiet -- $(VALGRIND_TESTS); \
	done

.PHONY: memcheck-asan
memcheck-asan:
	@echo "memcheck: AddressSanitizer, every instruction set this processor has"
	@env RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/asan \
		cargo test $(MEMCHECK_CRATES) --lib --tests --quiet --target $(HOST) -- $(MEMCHECK_TESTS)

# --- figures ---

.PHONY: bench
bench: $(WHEEL_STAMP) ## fused kernels against eager and Inductor, in one process
	@echo "bench: fused kernels; sizes and backends: make bench BENCH='--sizes 1,16 --backends eager,permalloy'"
	@$(PY) bench/kernels.py $(BENCH)

.PHONY: bench-steps
bench-steps: $(WHEEL_STAMP) ## training steps of six models, each backend in its own process
	@$(PY) bench/train_step.py $(BENCH)

.PHONY: bench-gpu
bench-gpu: $(WHEEL_STAMP) ## training steps of six models at a GPU's sizes, against eager and Inductor; needs a CUDA device
	@$(PY) bench/train_step.py --device cuda --backends eager,inductor,permalloy $(BENCH)

.PHONY: bench-compile
bench-compile: $(WHEEL_STAMP) ## our own share of compile time on graphs of 10,000 and 20,000 nodes
	@$(PY) bench/compile_time.py $(BENCH)

.PHONY: clean
clean: ## remove build outputs and the environment
	@echo "clean: removing target and the environments"
	@rm -rf target $(VENV) .venv-ascend
