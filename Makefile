# Everything lives in .venv/, made on first use from the hashed files in requirements/. Nothing else on the machine is
# touched. Needs Python 3.11 or newer with its venv module, and make; no compiler, no Java.
# Another Python gets an environment of its own: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
DATA_DIR ?= data
# Options for the program that a target starts: make run ARGS="--listen kafka=off", make test ARGS="-k recovery".
ARGS ?=

# Wheels only, so that no compiler is ever looked for. pyspark comes as source only, and has nothing to compile.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
WHEELS_ONLY := --only-binary :all:
PIP_LOCKED = $(PIP_INSTALL) --require-hashes --no-deps --no-build-isolation $(WHEELS_ONLY)

RUN_NEEDS := $(STAMPS)/core $(STAMPS)/fast $(STAMPS)/patterns $(STAMPS)/project
CHECK_NEEDS := $(STAMPS)/core $(STAMPS)/fast $(STAMPS)/shared $(STAMPS)/check
TEST_NEEDS := $(RUN_NEEDS) $(STAMPS)/spark $(STAMPS)/test $(STAMPS)/conformance $(STAMPS)/shared $(STAMPS)/cluster

# Without the bytecode of earlier starts, each pytest and each broker that a test starts would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.PHONY: help install run check format test coverage demo cluster bench bench-export conformance dist docs proto kafka-tables api-page lock clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(TEST_NEEDS) $(STAMPS)/check  ## everything that the other targets need, into .venv/

run: $(RUN_NEEDS)  ## start a broker on 127.0.0.1 with its log in data/
	$(BIN)/braidlog serve --data-dir $(DATA_DIR) --listen zookeeper=127.0.0.1:2181 $(ARGS)

check: $(CHECK_NEEDS)  ## format, lint and types, in seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMPS)/check  ## put the code into the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(TEST_NEEDS)  ## all tests, real clients and Spark included
	$(BIN)/python -m pytest $(ARGS)

coverage: $(TEST_NEEDS) $(STAMPS)/coverage  ## which lines of each module the tests reach; ARGS as for test
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

demo: $(TEST_NEEDS)  ## three clients on one log, one shared group, and its Parquet
	$(BIN)/python -m conformance.demo $(ARGS)

cluster: $(TEST_NEEDS)  ## PostgreSQL, SeaweedFS and three brokers on this machine, to play with
	$(BIN)/python -m conformance.cluster $(ARGS)

bench: $(TEST_NEEDS)  ## speed of the hot paths on this machine
	$(BIN)/python -m conformance.bench $(ARGS)

bench-export: $(TEST_NEEDS)  ## the export and the data source beside a plain pyarrow program
	$(BIN)/python -m conformance.bench.export $(ARGS)

conformance: $(TEST_NEEDS)  ## every case with every real client: a matrix of pass, fail, skipped
	$(BIN)/python -m conformance $(ARGS)

# In an environment of its own, like that of a release: the tools need no part of the project.
dist: requirements/dist.txt  ## build and check an sdist and wheels in dist/, and try the wheels
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --no-deps \
	    $(WHEELS_ONLY) --requirement $<
	$(VENV)-dist/bin/python scripts/dist.py

docs: requirements/docs.txt  ## the documentation as a site, in site/
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --no-deps \
	    $(WHEELS_ONLY) --requirement $<
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/python scripts/docs.py

proto: $(STAMPS)/proto  ## generate the Pulsar protobuf code again from its .proto
	$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. braidlog/storage/formats/pulsar/pb/*.proto
	# Two of Pulsar's schema types cannot be declared in Python as they are called: None is no name, and KeyValue
	# would hide the message of that name. Schema.Type.Value("None") and Schema.Type.KeyValue reach them.
	sed -i -e '/^ *None: /d' -e '/^    KeyValue: Schema.Type$$/d' storage/formats/pulsar/pb/PulsarApi_pb2.pyi

# The script says where the two folders of message definitions come from: make kafka-tables ARGS="NEW OLD"
kafka-tables: $(STAMPS)/project  ## generate Kafka's tables again from the definitions of two releases
	$(BIN)/python scripts/kafka_tables.py $(ARGS)

api-page: $(STAMPS)/project  ## write the generated tables of docs/api.md again
	$(BIN)/python -m scripts.api_page

lock: $(STAMPS)/lock  ## resolve pyproject.toml again into requirements/
	$(BIN)/python scripts/lock.py

clean:  ## remove what these targets made, except data/
	rm -rf $(VENV) $(VENV)-dist $(VENV)-docs build site dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than what it was made from exactly when there is nothing to do.

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer," \
	    "or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is" \
	    "`$(PYTHON) -V 2>&1`: Braidlog needs 3.11 or newer; name one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it" \
	    "(on Debian and Ubuntu the package python3-venv) and run make again" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# The extension in C is built where there is a compiler; without one this goes on, and Python does it all.
$(STAMPS)/project: pyproject.toml storage/formats/speedups.c storage/formats/checksums.h $(STAMPS)/build
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	# Spark looks for the packages pyspark_* in the folders of sys.path; an editable install has a finder instead.
	@$(BIN)/python -c "import pathlib, sysconfig; pathlib.Path(sysconfig.get_path('purelib'), \
	    'braidlog_spark.pth').write_text(str(pathlib.Path('storage/export/package').resolve()))"
	# An extension of an earlier version, for one Python only, would be found first.
	@rm -f storage/formats/_speedups.cpython-*.so
	@$(BIN)/python -c "from braidlog.storage.formats.quick import LANGUAGE; print('hot loops run in', LANGUAGE)"
	@touch $@

$(STAMPS)/build: requirements/build.txt $(STAMPS)/venv
	$(PIP_LOCKED) --requirement $<
	@touch $@

# Where no wheel is made for this system or Python, this goes on: Pulsar's clients then poll for topics.
$(STAMPS)/patterns: requirements/patterns.txt $(STAMPS)/build
	$(PIP_LOCKED) --requirement $< || echo "no wheel of google-re2 here: Pulsar's clients poll for new topics"
	@touch $@

$(STAMPS)/spark: WHEELS_ONLY :=
$(STAMPS)/%: requirements/%.txt $(STAMPS)/build
	$(PIP_LOCKED) --requirement $<
	@touch $@
