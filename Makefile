# Everything a person or CI runs. Each target sets up what it needs; a second run finds it done.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
RUN := PYTHONPATH=include $(BIN)/python
# The tests wait for other processes half of their time: four at once keep two cores busy.
TEST_PROCESSES ?= 4
BREAK ?=
MOVER ?= *
DEMO_FLAGS ?=

.PHONY: help setup demo up down status test test-all test-docker test-k8s real-k8s chaos check format bench bench-movement bench-policy lock clean

help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready ## install the locked dependencies into .venv

$(VENV)/.ready: requirements.txt tools/setup.sh
	@PYTHON=$(PYTHON) sh tools/setup.sh $(VENV)

demo: setup ## run the main job with a node loss and check the evidence; BREAK=image|data|checkpoint|fence|resume
	@$(RUN) -m spillway.sandbox demo $(if $(BREAK),--break $(BREAK) --without-airflow --report build/demo/broken-$(BREAK).json) $(DEMO_FLAGS)

up: setup ## start the sandbox and Airflow and leave them running
	@$(RUN) -m spillway.sandbox up

down: ## stop the sandbox and Airflow; what was stored stays until `make clean`
	@if [ -x $(BIN)/python ]; then $(RUN) -m spillway.sandbox down; fi

status: ## show the sandbox's processes
	@$(RUN) -m spillway.sandbox status || test $$? -eq 3  # 3: nothing runs

test: setup ## the default tests
	@PYTHONPATH=include sh tools/tests.sh $(BIN)/python $(TEST_PROCESSES) "not slow and not chaos and not real_k8s"

test-all: setup ## every test that this machine can run, slow ones included
	@PYTHONPATH=include sh tools/tests.sh $(BIN)/python $(TEST_PROCESSES) "not chaos and not real_k8s"

test-docker: setup ## build the images of docker/ with Debian's docker.io
	@$(RUN) -m pytest tests/docker -m "slow or not slow"

real-k8s: setup ## build a real Kubernetes control plane from Go modules
	@$(RUN) -m spillway.sandbox.realcluster build

test-k8s: real-k8s ## the contract suite and the demo's training on the real control plane
	@$(RUN) -m pytest tests/contract tests/runs -m "real_k8s"

chaos: setup ## twenty random kills while trainings run
	@$(RUN) -m pytest tests/chaos -m chaos -s

check: setup ## format, lint and types; static only
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: setup ## rewrite to the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## one line a figure
	@$(RUN) -m pytest tests/bench/test_bench.py tests/bench/test_placement.py -m slow -s -q

bench-movement: setup build/peers/.ready ## the movers against rclone and skopeo, a ratio a line; MOVER=datasets for one of them
	@$(RUN) -m pytest $(wildcard tests/bench/test_movement_$(MOVER).py) -m slow -s -q

bench-policy: setup ## policies, forecasts and bounds on the traces in the directory SPILLWAY_TRACES
	@$(RUN) -m pytest $(wildcard tests/bench/test_policy*.py) -m slow -s -q

build/peers/.ready: include/spillway/testing/peers.py
	@$(RUN) -m spillway.testing.peers && touch $@

lock: setup ## resolve requirements.in into requirements.txt
	@$(BIN)/uv pip compile requirements.in --generate-hashes --no-emit-index-url --no-emit-find-links \
		--python-version 3.11 --custom-compile-command "make lock" --quiet -o requirements.txt

clean: down ## remove what was built; downloads stay in the cache
	@rm -rf build $(VENV) .mypy_cache .ruff_cache
