# A target for each task; each installs what it needs itself.
PYTHON ?= python3
VENV := .venv/bin
SERVICES := $(PYTHON) deploy/local/services.py
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --quiet --custom-compile-command "make lock"
PARALLEL ?= -n 4 --dist loadfile --no-loadscope-reorder
PINNED := --no-annotate --constraint requirements.lock
# Where it is set, each of the tests' thousand processes compiles the sources for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help collect demo demo-spark test coverage api lint bench bench-check proof proof-ha fuzz mutants lock supply-chain venv services-up services-down stage test-unit test-long test-release test-k8s tools spark-classes

help:
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: ## Python packages into .venv, from the lock file
	@PYTHON=$(PYTHON) sh deploy/local/bootstrap.sh

demo: venv ## a day of flights through Kafka and RabbitMQ, a worker killed, a verdict; KEEP=1: a console
	@KEEP=$(KEEP) $(VENV)/python deploy/demo/demo.py

demo-spark: venv ## a year of flights through Spark: cold tier, one day delivered, report, verdict
	@$(VENV)/python deploy/demo/spark_demo.py

test: ## lint, and every test on real services
	@$(MAKE) --no-print-directory -j3 lint stage collect
	$(VENV)/pytest $(PARALLEL) $(TESTS)

test-unit: venv ## the tests that need no service
	$(VENV)/pytest tests/unit $(TESTS)

test-long: venv services-up spark-classes ## the tests that take long: a Spark cluster, jobs as commands, every state of a small world
	$(VENV)/pytest -m long $(PARALLEL) $(TESTS)

test-release: venv ## a release's steps, which sign with a key of the test's; a worker on an emulated arm64
	$(VENV)/pytest -m release $(TESTS)

test-k8s: venv ## the chart on the cluster of KUBECONFIG, if one answers (tests/deploy/cluster/README.md)
	@$(VENV)/python -m tests.deploy.cluster.run $(TESTS)

coverage: venv services-up ## which lines the tests reach; slower, so not part of test
	$(VENV)/coverage run -m pytest --deselect tests/store/properties/test_state_machine.py $(TESTS)
	$(VENV)/coverage combine --quiet
	$(VENV)/coverage report

api: venv ## docs/python-api.md, the guides' programs, the chart's schema and table of values
	$(VENV)/python deploy/docs/api.py
	$(VENV)/python deploy/docs/guides.py
	$(VENV)/python -m deploy.helm.schema
	$(VENV)/python -m deploy.helm.table

lint: venv ## ruff, mypy and the import rules
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/lint-imports

bench: venv services-up ## the bridge against the bare clients, ratios in one run
	@eval "$$($(SERVICES) env)"; $(VENV)/duebridge bench --store "$$DUEBRIDGE_TEST_REDIS_URL" \
	  --kafka "$$DUEBRIDGE_TEST_KAFKA_BOOTSTRAP" --rabbitmq "$$DUEBRIDGE_TEST_RABBITMQ_URL" $(BENCH)

bench-check: venv services-up ## CPU and store calls a message beside the committed ones (--update)
	@eval "$$($(SERVICES) env)"; $(VENV)/python -m tests.bench.check $(BENCH)

proof: venv ## hours of faults and load, written to docs/proof.md; resumable (PROOF=--help)
	$(VENV)/python -m tests.faults.proof $(PROOF)

proof-ha: venv ## failovers of Redis, counted in docs/durability.md and -measured.md; resumable (PROOF=--help)
	$(VENV)/python -m tests.failover.proof $(PROOF)

fuzz: venv services-up ## 100,000 hostile envelopes, configurations, replies and records
	DUEBRIDGE_FUZZ=25000 DUEBRIDGE_FUZZ_SEED=$${DUEBRIDGE_FUZZ_SEED:-$$(date +%s)} \
	  $(VENV)/pytest $$(find tests -name "test_fuzz_*.py") -o timeout=3600 $(FUZZ)

mutants: venv services-up ## break the code on purpose: each mutant must fail its tests
	$(VENV)/python -m tests.faults.mutants $(MUTANTS)

lock: ## resolve the lock file again, and the part of it that each image needs
	$(COMPILE) --all-extras pyproject.toml -o requirements.lock
	$(COMPILE) $(PINNED) --extra http --extra kafka --extra librdkafka --extra otel --extra rabbitmq pyproject.toml -o deploy/images/worker.lock
	$(COMPILE) $(PINNED) --extra hdfs --extra http --extra kafka --extra spark pyproject.toml -o deploy/images/spark.lock
	echo hatchling | $(COMPILE) $(PINNED) - -o deploy/images/build.lock

supply-chain: venv ## what a release carries, into dist/: wheel, sdist, SBOMs, licences, provenance; vulnerabilities
	@$(VENV)/python -m deploy.supply $(SUPPLY)

collect: venv # compiles each test once, which else each of the processes that run them would do
	@$(VENV)/pytest --collect-only -qq > .services/collected.log || { tail -50 .services/collected.log; exit 1; }

stage: # in this order: two at once would ask one package manager
	@MAKEFLAGS= $(MAKE) --no-print-directory services-up tools spark-classes

services-up: ## real Redis, RabbitMQ and Kafka on ports of their own
	@$(SERVICES) up

services-down: ## stop what services-up started
	@$(SERVICES) down

tools: ## Prometheus' programs and Chromium, for the tests of alerts, dashboard and console
	@$(SERVICES) tools

spark-classes: venv services-up ## an archive of Spark's classes, with which the tests' sessions start faster
	@$(VENV)/python -m tests.support.spark.launch
