# Thin targets: each makes sure that the environment is there (scripts/setup), then calls one program.
.DEFAULT_GOAL := help
.PHONY: help practice practice-down nvml test test-hosts test-all lint bench rows clean
SHELL := /bin/bash

RUN := scripts/setup && PYTHONPATH=$(CURDIR)/build/collections ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/build/collections build/venv/bin/python -m ansible_collections.gpufleet.nvidia.tests
PRACTICE := $(if $(VALUES),--values $(VALUES)) $(if $(FLEET),--fleet $(FLEET)) $(if $(NODES),--nodes $(NODES)) $(if $(SPEED),--speed $(SPEED))

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 16

practice: ## a whole GPU stack on a control plane of your own; VALUES=file FLEET=name-or-file NODES=500 SPEED=10
	@$(RUN).testbed.practice up $(PRACTICE)

practice-down: ## end what `make practice` started
	@$(RUN).testbed.practice down

nvml: ## the NVML double, into build/nvml: libnvidia-ml.so.1 and nvml-double (tests/testbed/nvml/README.md)
	@$(RUN).testbed.nvml build/nvml

test: ## gates, unit tests, and integration tests on the testbed: 13 to 21 minutes once the programs are built
	@$(RUN).gates.stages $(STAGES)

test-hosts: ## on systemd hosts in podman (root): the host plane, a scenario for each role of hosts, changes of a driver; 35 minutes
	@$(RUN).gates.stages host-programs host-images hosts host-roles host-changes

test-all: ## `make test`, and what takes long: role scenarios, oldest ansible-core, long tests
	@$(RUN).gates.stages --all

lint: ## the gates alone; GATES="ruff types" for some of them
	@$(RUN).gates.run $(GATES)

bench: ## measurements beside other tools, into build/bench.json; BENCH=name for a part
	@$(RUN).bench $(BENCH)

rows: ## write docs/rows.md, the rows done and not done, from the tests of the last `make test-all`
	@$(RUN).gates.rows write

clean: ## remove what the build made in this checkout; the cache outside stays
	@if [ -e build/practice ] && [ -e build/venv ]; then $(RUN).testbed.practice down; fi
	@if [ -e build/hosts ] && [ -e build/venv ]; then $(RUN).testbed.hosts down; fi
	@rm -rf build/venv build/collections build/nvml build/rows build/practice .mypy_cache .pytest_cache .ruff_cache .hypothesis
