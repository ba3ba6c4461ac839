# make demo   real flights into a real Kafka, in a fresh virtual environment
# make test   ruff, mypy --strict, pytest with real Kafka and real Spark: about 9 minutes on 2 cores
# make evidence   lists what runs before a release, for minutes or hours; make evidence NAME=chaos runs one of it,
#                 make evidence NAME=week ARGUMENTS="--seed 2 --keep" with arguments: evidence/README.md
# make quick   the same without Kafka, Spark and most simulated lives: 60 seconds; make quick ROOM=transactions
#                 runs the tests that reach one room or module of the package: tests/rooms.py
# make kernels   compile the kernels of a checkout, where they are missing or of other sources: a minute, with
#                 progress; every target that needs them does so first. With Debian's package lld for all platforms
# make test-aarch64   the tests of the kernels on the libraries for aarch64 and for macOS, emulated: 20 minutes; first, as root:
#                 dpkg --add-architecture arm64 && apt-get update && apt-get install --no-install-recommends qemu-user lld
# make wheel   the package as a file, in dist/, with the kernels for what this machine can link
# make dist    wheel and sdist of the last commit, built twice and compared, in dist/; make sbom describes them;
#                 first: apt-get install lld
# make docs   the generated pages again: options, commands, metrics, errors, tested versions, figures
# make docs-site   README.md and docs/ as pages with a search, in build/site
# make test-lowest   most tests, with the oldest versions of all dependencies
# make simulate   20,000 simulated lives of a producer, about 10 minutes
# make simulate-queries   20,000 simulated lives of exactly-once queries
# make mutants   mutations of the package that tests must notice, and the planted bugs, by room; ROOM=… for one
# make mutations   150 mutations of each room, chosen at random, each with all tests that execute its lines;
#                 ROOMS="producer spark", COUNT=…, SEED=…; goes on where it stopped
# make kill-matrix   which test notices which of them; TESTS="tests/unit/test_waits.py …": what these notice alone
# make kernels-checked   a million random calls of the kernels, compiled with a check of each address: 10 minutes
# make golden   the golden cases anew, with Kafka's Java client (needs a JDK)
# make golden-formats   what Spark's to_json and to_avro make of rows of all types, and which schemas Java's Avro
#                 takes: tests/formats/cases, avro_schemas.json
# make fuzz   1 million broken responses, 1 million dialogues of SASL, 100,000 of TLS
# make kerberos   GSSAPI with a KDC; first: apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc
# make bench-kernels   kernels beside memcpy, against the stored baseline
# make bench-cost   the figures of README.md and docs/performance.md, and writes them there: 45 minutes;
#                 make bench-quick: few rows and one round, in a file of their own, 8 minutes
# make bench-exactly-once   what exactly-once costs, 20 minutes
# make bench-tls   with TLS and without, beside Spark's JVM sink and confluent-kafka, 15 minutes
#
# Needs Python >= 3.10, Java 17 and make. Everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that run tests. Each starts its own Kafka, some of them Spark; many tests only wait.
WORKERS ?= 6
# Python keeps what it has compiled, also where it is told not to: each of these processes would compile
# all tests anew, and each of the hundreds that they start the package.
unexport PYTHONDONTWRITEBYTECODE
RELEASE := $(VENV)-release
FAST_TESTS := tests/unit tests/kernels tests/property tests/golden tests/simulation
KERNELS := spark_kafka_sink/record/kernels

.PHONY: kernels test-aarch64 golden-formats demo test dist sbom docs docs-site quick wheel test-lowest golden simulate simulate-queries mutants mutations kill-matrix kernels-checked fuzz kerberos lint types bench-quick bench-kernels bench-exactly-once bench-cost bench-tls clean evidence

# The compiler itself is not in the environment: pip fetches it for the build, if there is one to do.
demo: $(VENV)/demo.installed
	@$(BIN)/python -c "from spark_kafka_sink.record.compiled import library; library.check_platform()" \
	  2> $(VENV)/kernels.txt || { echo "building kernels, about a minute"; \
	  $(BIN)/python -m pip install --quiet --no-deps --editable .; }
	$(BIN)/python jobs/demo.py $(DEMO_ARGUMENTS)

# For all platforms that this machine links for; those that are of these sources are left alone.
kernels: $(VENV)/compiler.installed
	@$(BIN)/python -m spark_kafka_sink.record.kernels.build

# Under emulation; what it leaves out is said there.
test-aarch64: $(VENV)/dev.installed
	$(BIN)/python -m tests.kernels.aarch64

# Types are checked beside the rest; what mypy says is shown if it is not content. How long each test
# took is kept in .venv/durations.xml until the next run.
define run-tests
	$(BIN)/mypy > $(VENV)/types.txt 2>&1 & types=$$!; \
	$(2) \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder \
	  --junitxml=$(VENV)/durations.xml $(1); tests=$$?; \
	wait $$types || { cat $(VENV)/types.txt; exit 1; }; \
	exit $$tests
endef

test: lint
	$(call run-tests,,$(BIN)/python -m tests.class_archives;)

quick: WORKERS = 3
quick: lint
	$(call run-tests,-m 'not slow and not long' $(if $(ROOM),$(or $(shell $(BIN)/python -m tests.rooms $(ROOM)),$(error no test file for $(ROOM))),$(FAST_TESTS)))

# The table of programs says which environment one needs. That of a release is beside this one.
evidence: $(VENV)/dev.installed
ifdef NAME
	@needs=$$($(BIN)/python -m evidence --environment $(NAME)) && \
	  if [ $$needs = release ]; then needs=$(RELEASE)/installed; else needs=$(VENV)/$$needs.installed; fi && \
	  $(MAKE) --no-print-directory $$needs
endif
	@$(BIN)/python -m evidence $(NAME) $(ARGUMENTS)

# One file, so that README's commands find this version alone.
wheel: kernels
	rm -f dist/pykafka_sink-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

dist: $(RELEASE)/installed
	$(RELEASE)/bin/python -m release.dist

sbom: dist
	$(RELEASE)/bin/python -m release.sbom dist/pykafka_sink-*.whl dist/pykafka-sink.cdx.json

# Written beside a page first, so that a failure leaves the page as it is.
docs: $(VENV)/dev.installed
	for page in options commands metrics errors; do \
	  $(BIN)/python -m release.$${page}_document > docs/$$page.part && mv docs/$$page.part docs/$$page.md || exit 1; \
	done
	$(BIN)/python -m evidence pages
	$(BIN)/python -m release.figures_document

docs-site: $(RELEASE)/installed
	NO_MKDOCS_2_WARNING=1 $(RELEASE)/bin/mkdocs build --quiet

# With the oldest versions that pyproject.toml allows; PYTHON may be a 3.9.
test-lowest: kernels
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --editable '.[dev]' -c tests/constraints-lowest.txt
	$(VENV)-lowest/bin/python -m pytest tests/unit tests/kernels tests/property tests/simulation tests/broker tests/formats/test_protobuf_kernel.py

golden-formats: $(VENV)/registry.installed
	$(BIN)/python -m tests.formats.generate
	$(BIN)/python -m tests.formats.generate_avro_schemas

simulate: $(VENV)/dev.installed
	$(BIN)/python -m tests.simulation.seeds 0 20000

simulate-queries: $(VENV)/dev.installed
	$(BIN)/python -m tests.simulation.queries 0 20000

mutants: $(VENV)/dev.installed
	$(BIN)/python -m tests.mutants $(ROOM)

mutations: $(VENV)/registry.installed
	$(BIN)/python -m release.kill_matrix run --seed $(or $(SEED),1) --count $(or $(COUNT),150) $(if $(ROOMS),--rooms $(ROOMS))

kill-matrix: $(VENV)/dev.installed
	$(BIN)/python -m release.kill_matrix table $(TESTS)

kernels-checked: $(VENV)/dev.installed
	$(BIN)/python -m tests.kernels.checked 1000000

golden: $(VENV)/dev.installed
	$(BIN)/python -m tests.golden.generate

fuzz: $(VENV)/dev.installed
	FUZZ_CASES=1000000 $(BIN)/python -m pytest tests/property/test_protocol_fuzz.py
	FUZZ_CASES=4000000 $(BIN)/python -m pytest tests/property/test_secured_fuzz.py

kerberos: $(VENV)/dev.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev,kerberos]'
	$(BIN)/python -m pytest tests/security/test_kerberos.py tests/security/test_kerberos_conversation.py

lint: $(VENV)/dev.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.installed
	$(BIN)/mypy

bench-quick: $(VENV)/bench.installed
	$(BIN)/python -m benchmarks.cost --quick

bench-kernels: $(VENV)/bench.installed
	$(BIN)/python -m benchmarks.kernels --check

bench-exactly-once: $(VENV)/bench.installed
	$(BIN)/python -m benchmarks.exactly_once

bench-tls: $(VENV)/bench.installed
	$(BIN)/python -m benchmarks.tls

bench-cost: $(VENV)/bench.installed
	$(BIN)/python -m benchmarks.cost $(COST_ARGUMENTS)
	$(BIN)/python -m release.figures_document

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# pip does not show that kernels are built, which the demo's environment has no compiler for.
$(VENV)/compiler.installed: $(KERNELS)/sources.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet $$($(BIN)/python -c \
	  "import runpy; print(*runpy.run_path('$(KERNELS)/sources.py')['COMPILER'])")
	touch $@

$(VENV)/demo.installed: pyproject.toml | $(BIN)/python
	@echo "building kernels, about a minute"
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/dev.installed: pyproject.toml | kernels
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/browser.installed: pyproject.toml | kernels
	$(BIN)/python -m pip install --quiet --editable '.[dev,browser]'
	touch $@

$(VENV)/registry.installed: pyproject.toml | kernels
	$(BIN)/python -m pip install --quiet --editable '.[dev,registry]'
	touch $@

$(VENV)/bench.installed: pyproject.toml | kernels
	$(BIN)/python -m pip install --quiet --editable '.[dev,bench]'
	touch $@

# Nothing is installed whose hash is not in that file; the project itself is built with what is.
$(RELEASE)/installed: release/requirements.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --require-hashes --only-binary :all: \
	  --requirement release/requirements.txt
	$(RELEASE)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-aarch64 $(VENV)-macos spark_kafka_sink/record/compiled/kernels-*.so $(VENV)-versions $(VENV)-clusters $(RELEASE) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
