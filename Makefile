# Trapline. Every target installs what is missing first (scripts/bootstrap, which does nothing when all is there).

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo

# Tests of this path need a guest that `make guests` fetches: the function's name begins with guest_.
SLOW := ::guest_
# Tests that take long (whole boots under thousands of probes, other CPUs, stress scripts): the function's name ends so.
LONG := _at_length
# What is checked and tested: all packages, and the search of the fuzzer (docs/fuzzing.md), which `make build` leaves out.
ALL := --workspace --features trapline-fuzz/libafl

.PHONY: all bootstrap guests build fuzzer install demo test test-long test-fast lint bench doc fuzz fuzz-smoke sanitize

all: build

bootstrap:
	@scripts/bootstrap

guests: bootstrap
	@scripts/fetch-guests

build: bootstrap
	$(CARGO) build --release --workspace

# The fuzzer of handlers (docs/fuzzing.md), which takes a few minutes more, and the command that starts it.
fuzzer: bootstrap
	$(CARGO) build --release --package trapline --package trapline-fuzz --features trapline-fuzz/libafl

# Built programs with their manual pages and the completion of shells: make build install PREFIX=/usr/local
# STRIP is the program that removes what a debugger needs; STRIP=: leaves it.
PREFIX ?= /usr/local
BUILT ?= target/release
STRIP ?= strip
install:
	@scripts/install "$(BUILT)" "$(DESTDIR)$(PREFIX)" "$(STRIP)"

demo: bootstrap
	@$(CARGO) run --release --quiet --package trapline -- demo

# The programs are built first, with the features that the tests' build has: the tests run `trapline` as it is then.
test: guests
	$(CARGO) build --profile ci $(ALL) --bins
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) nextest run --cargo-profile ci $(ALL) -E 'not test(/$(LONG)$$/)' && $(CARGO) test --profile ci $(ALL) --doc; \
	else \
	    set -x; $(CARGO) test --profile ci $(ALL) -- --skip $(LONG); \
	fi

# The tests that `make test` leaves out because they take long.
test-long: guests
	$(CARGO) build --profile ci $(ALL) --bins
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) nextest run --cargo-profile ci $(ALL) -E 'test(/$(LONG)$$/)'; \
	else \
	    set -x; $(CARGO) test --profile ci $(ALL) --tests -- $(LONG); \
	fi

test-fast: bootstrap
	$(CARGO) build --profile ci $(ALL) --bins
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) nextest run --cargo-profile ci $(ALL) -E 'not test(/$(SLOW)/) and not test(/$(LONG)$$/)'; \
	else \
	    set -x; $(CARGO) test --profile ci $(ALL) -- --skip $(SLOW) --skip $(LONG); \
	fi

# Format, lints, documentation, and the rules for dependencies (deny.toml), of which `make test` checks most by itself.
lint: bootstrap
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile ci $(ALL) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --profile ci $(ALL) --no-deps
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) deny --offline check licenses bans sources; \
	fi

# make bench ARGS=--forms shows every opcode form; ARGS=--help what else there is.
bench: guests fuzzer
	@$(CARGO) run --release --quiet --package trapline-tests --bin bench -- $(ARGS)

doc: bootstrap
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --profile ci --workspace --no-deps

# make fuzz TARGET=source RUNS=1000000: tests/fuzz has the targets.
fuzz: bootstrap
	@scripts/fuzz $(TARGET) $(RUNS)

# Every target for 20 seconds, from its corpus: what CI runs.
fuzz-smoke: bootstrap
	@scripts/fuzz-smoke

# AddressSanitizer over the machine, Miri (or what stands in for it) over what needs no engine.
sanitize: bootstrap
	@scripts/sanitize
