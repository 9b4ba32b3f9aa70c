# Bare `make` lists the targets. Each target first makes what it needs: the virtual environment
# .venv, the project installed in it, and Java for those that start Spark.

.DEFAULT_GOAL := help
SHELL := /bin/bash

BIN := .venv/bin
INSTALLED := .venv/.installed
COPY := build/types
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml
	@.ci/venv
	$(BIN)/python -m pip install --quiet --editable '.[dev,connect]'
	@touch $@

.PHONY: java
java:
	@.ci/java

.PHONY: demo
demo: $(INSTALLED) java ## find a pattern in generated data, print plan and matches
	$(BIN)/spark-cep demo $(ARGS)

.PHONY: test
test: $(INSTALLED) java ## all tests; pytest options in ARGS="-k kleene"
	$(BIN)/python -m pytest $(ARGS)

.PHONY: matrix
matrix: java ## smoke tests with every supported Spark; some rows of .ci/matrix in ARGS="3.5 4.0" (20 minutes)
	.ci/matrix $(ARGS)

.PHONY: test-fast
test-fast: $(INSTALLED) ## the tests that start no JVM
	$(BIN)/python -m pytest -m "not spark and not slow" $(ARGS)

.PHONY: test-cluster
test-cluster: $(INSTALLED) java ## ways to ship the package, and faults, on a cluster of processes here
	SPARK_CEP_CLUSTER=1 $(BIN)/python -m pytest tests/spark/test_cluster.py tests/spark/test_cluster_faults.py $(ARGS)

.PHONY: lint
lint: $(INSTALLED) ## ruff: rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: format
format: $(INSTALLED) ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The folders sql/ and udfs/ are spark_cep.sql and spark_cep.udfs, and mypy follows no mapping; so
# it reads a copy that is laid out as installed.
.PHONY: types
types: $(INSTALLED) ## mypy, strict
	@rm -rf $(COPY) && mkdir -p $(COPY)
	@cp -r spark_cep $(COPY) && cp -r sql udfs $(COPY)/spark_cep
	cd $(COPY) && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p spark_cep

.PHONY: test-pages
test-pages: $(INSTALLED) java ## run the code of the README, of pages of docs/ and of examples/
	$(BIN)/python -m pytest tests/spark/test_readme.py tests/spark/test_examples.py $(ARGS)

.PHONY: examples
examples: $(INSTALLED) java ## run every file of examples/
	@set -e; for file in examples/*.py; do echo "== $$file"; $(BIN)/python $$file; done

.PHONY: bench
bench: $(INSTALLED) java ## time the workloads against the do-nothing floor (minutes)
	$(BIN)/python -m benchmarks.event_patterns $(ARGS)

.PHONY: bench-rows
bench-rows: $(INSTALLED) java ## time the row pattern works against their floor (10 minutes)
	$(BIN)/python -m benchmarks.row_patterns $(ARGS)

.PHONY: bench-streams
bench-streams: $(INSTALLED) java ## time the patterns on streams (10 minutes)
	$(BIN)/python -m benchmarks.stream_patterns $(ARGS)

.PHONY: bench-remotes
bench-remotes: $(INSTALLED) java ## time the strategies for remote data, delays of 1 to 50 ms, Redis (10 minutes)
	$(BIN)/python -m benchmarks.remote_delays $(ARGS)

.PHONY: bench-shedding
bench-shedding: $(INSTALLED) java ## time shedding, in batches and under four peaks of a stream (10 minutes)
	$(BIN)/python -m benchmarks.shedding $(ARGS)

.PHONY: experiments
experiments: $(INSTALLED) ## the papers' figures and plan="auto", without Spark (25 minutes)
	@set -e; for name in lazy_nfa invariants apam auto eires darling; do $(BIN)/python -m benchmarks.$$name $(ARGS); done

.PHONY: check
check: lint types test-fast test-pages ## before a commit; CI also runs the other Spark tests

.PHONY: dist
dist: $(INSTALLED) ## sdist and wheel in dist/
	@rm -rf build dist
	$(BIN)/python -m build --no-isolation

.PHONY: zip
zip: dist ## the wheel as dist/spark_cep.zip, for spark-submit --py-files
	cp dist/spark_cep-*.whl dist/spark_cep.zip

.PHONY: clean
clean: ## remove what was made, the virtual environment included
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
