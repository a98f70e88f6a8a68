# Trapline. Every target installs what is missing first (scripts/bootstrap, which does nothing when all is there).

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo

# Tests of this path need a guest that `make guests` fetches: the name of the function or of a module begins with guest_.
# (cargo's own runner knows no such expressions: it leaves out what has guest_ anywhere.)
SLOW := (^|::)guest_
# Tests that take long (whole boots under thousands of probes, other CPUs, stress scripts): the function's name ends so.
LONG := _at_length
# What is checked and tested: all packages, and the search of the fuzzer (docs/fuzzing.md), which `make build` leaves out.
ALL := --workspace --features trapline-fuzz/libafl
# CI runs a third of the long tests and of the fuzz targets: THIRD=1, 2 or 3. Without it, all.
THIRD ?=
ifneq ($(THIRD),)
ifeq ($(findstring :$(THIRD):,:1: :2: :3:),)
$(error THIRD is 1, 2 or 3, not $(THIRD))
endif
endif
ALL_OF_THEM := echo "without cargo-nextest, all long tests run, not a third"

.PHONY: all bootstrap guests musl build fuzzer install demo test test-long test-fast test-all lint bench doc fuzz fuzz-smoke sanitize

all: build

bootstrap:
	@scripts/bootstrap

guests: bootstrap
	@scripts/fetch-guests

# The C library musl for IA32, where Rust is installed by rustup. The test that needs it says if it is missing.
musl: bootstrap
	@! command -v rustup >/dev/null || rustup --quiet target add i686-unknown-linux-musl || true

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

# It builds what `make build` does: of another set of packages, Cargo would compile many a second time.
demo: bootstrap
	@$(CARGO) build --release --quiet --workspace
	@"$(BUILT)/trapline" demo

# nextest with the tests of an expression (1), its times under a name (2), and its options (3); where it is not installed,
# cargo's own runner with its arguments (4), after a command (5). The programs are built first: a build of tests does not
# list their sources, and a test builds a program again that may be older than its sources (tests/src/built.rs).
define tests
	$(CARGO) build --profile ci $(ALL) --bins
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) nextest run --cargo-profile ci $(ALL) -E '$(1)' $(3); set +x; \
	    mkdir -p target/times; cp target/nextest/default/junit.xml target/times/$(2).xml; \
	else \
	    $(5)set -x; $(CARGO) test --profile ci $(ALL) --tests -- $(4); \
	fi
endef

test: guests
	$(call tests,not test(/$(LONG)$$/),test,,--skip $(LONG))
	$(CARGO) test --profile ci $(ALL) --doc

# The tests that `make test` leaves out because they take long. THIRD=1, 2 or 3: only a third of them.
test-long: guests musl
	$(call tests,test(/$(LONG)$$/),test-long,$(THIRD:%=--partition count:%/3),$(LONG),$(if $(THIRD),$(ALL_OF_THEM);))

test-fast: bootstrap
	$(call tests,not test(/$(SLOW)/) and not test(/$(LONG)$$/),test-fast,,--skip guest_ --skip $(LONG))

# Everything: an issue is closed only after this has passed.
test-all: lint test test-long fuzz-smoke
	@[ ! -d target/times ] || scripts/slowest

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

# Every target for 20 seconds, from its corpus. THIRD=1, 2 or 3: only a third of them.
fuzz-smoke: bootstrap
	@targets=$$(scripts/fuzz-smoke --targets $(THIRD)); scripts/fuzz-smoke 20 $$targets

# AddressSanitizer over the machine, Miri (or what stands in for it) over what needs no engine.
sanitize: bootstrap
	@scripts/sanitize
