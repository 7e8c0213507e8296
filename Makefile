# Every target sets up what it needs: a virtual environment in .venv with the locked dependencies.
# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-strip-extras --quiet

# All but spark, which is as large as all the rest together.
EXTRAS := --extra arrow --extra excel --extra learn --extra pandas --extra plot --extra spss --extra sql --extra stata --extra studio --extra yaml

.PHONY: help results quick demo test slow flaws proofs studio spark standards kernel lint format docs wheel lowest image paper peers aim raw judges bench scale lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/.core ## release a generated census-like table and show what came out
	$(BIN)/sklar demo

test: $(VENV)/.dev ## run the tests and the doctests (not the slow ones)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not browser"

slow: $(VENV)/.dev ## run the tests that take minutes, and the property tests on new examples
	$(BIN)/python -m pytest -n 2 -m slow
	HYPOTHESIS_PROFILE=new $(BIN)/python -m pytest -n 2 -m "hypothesis and not slow"

flaws: $(VENV)/.dev ## plant every known flaw in a copy and report who catches it, into docs/results/ (half an hour)
	$(BIN)/python -m tests.flaws.run

JUDGES := .venv-raw/.done .venv-mostlyai/.done .venv-anonymeter/.done .venv-sdnist/.done
RESULTS := $(VENV)/.browser .venv-graphical/.done .venv-spark/.done $(JUDGES)

results: $(RESULTS) ## renew every page of figures and the tables of README on this tree (at most four hours, resumable)
	$(BIN)/python -m benchmarks.results

quick: $(VENV)/.dev ## renew the pages that take 20 minutes in all
	$(BIN)/python -m benchmarks.results --quick

proofs: $(VENV)/.dev ## check the lemmas behind every bound by machine (needs Debian's coq)
	$(BIN)/python -m proofs.check

studio: $(VENV)/.browser ## test the studio in a browser (needs Debian's chromium)
	$(BIN)/python -m pytest -m browser tests/studio

spark: .venv-spark/.done ## test the engine on Spark with a cluster of its own (needs Java 17)
	.venv-spark/bin/python -m pytest -m spark tests/rows/test_engines.py tests/rows/test_spark.py
	.venv-spark/bin/python -m pytest tests/rows/test_parts.py tests/machine/test_stores.py

standards: .venv-standards/.done ## check what sklar publish writes with the standards' own tools
	.venv-standards/bin/python -m pytest -m standards tests/trust/passport

kernel: $(VENV)/.dev ## print the kernel's files, lines of code and imports, and the second ring: what must be right
	$(BIN)/python -m tests.kernel.test_size

lint: $(VENV)/.dev ## ruff (lint and format), mypy strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## rewrite the files in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## build the documentation into build/site; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/site

wheel: $(VENV)/.dev ## build sdist, wheel and bill of materials; install the wheel in a clean environment and run its demo
	rm -rf dist build/wheel
	$(BIN)/hatchling build
	$(BIN)/python -W ignore -m twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -W ignore -m cyclonedx_py requirements requirements/core.txt --pyproject pyproject.toml --mc-type library --output-reproducible -o dist/sklar.cdx.json
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check --quiet install --no-compile --require-hashes -r requirements/core.txt
	build/wheel/bin/python -m pip --disable-pip-version-check --quiet install --no-compile --no-index --no-deps dist/sklar-*.whl
	cd build/wheel/lib/python*/site-packages && { du -sm .; du -sm *; } | sort -rn | head -12
	cd build && wheel/bin/sklar demo --out wheel/demo --rows 3000

lowest: .venv-lowest/.done ## run the tests with the oldest dependencies that are allowed (Python 3.11 or 3.12)
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m "not slow and not browser" -p no:cacheprovider

image: ## build the studio's container, where docker runs and its base can be had
	docker build -q -f packaging/Dockerfile -t sklar-studio .

EXPERIMENTS := illustrations errors scatter cdfs correlation_split epsilon_sweep runtimes learning page

paper: $(VENV)/.dev ## run the paper's tables and figures again, into docs/results/
	for name in $(EXPERIMENTS); do $(BIN)/python -m experiments.$$name || exit 1; done

peers: $(VENV)/.dev .venv-peers/.done ## compare accuracy with AIM, MST and PrivBayes (hours; Python below 3.12)
	$(BIN)/python -m benchmarks.accuracy --peers-python .venv-peers/bin/python --no-page
	$(BIN)/python -m benchmarks.accuracy --tables adult --methods auto --epsilons 0.25,1,4,10

aim: $(VENV)/.dev .venv-graphical/.done ## compare accuracy with AIM and MST at epsilon 1, 4 and 10 (hours the first time)
	$(BIN)/python -m benchmarks.aim export --peers-python .venv-graphical/bin/python
	$(BIN)/python -m benchmarks.aim peers --peers-python .venv-graphical/bin/python --seconds 14400
	$(BIN)/python -m benchmarks.aim ours
	$(BIN)/python -m benchmarks.aim limits
	$(BIN)/python -m benchmarks.aim page

raw: .venv-raw/.done ## draft, release and evaluate raw tables of packages, and check the verdicts against an oracle
	.venv-raw/bin/python -m benchmarks.raw --page

judges: $(JUDGES) ## score raw values by sdmetrics, mostlyai-qa, SDNist and Anonymeter, into docs/results/
	.venv-raw/bin/python -m benchmarks.judges --page

bench: $(VENV)/.dev .venv-authors/.done ## time releases of the paper's five shapes on an idle machine, into docs/results/
	$(BIN)/python -m benchmarks.pipeline --authors-python .venv-authors/bin/python
	$(BIN)/python -m benchmarks.pipeline --growth --page

scale: .venv-spark/.done ## count 50 million rows here and on Spark on an idle machine, into docs/results/
	.venv-spark/bin/python -m benchmarks.scale --rows 50000000 --shards 64 --page

lock: $(VENV)/.dev ## resolve the dependencies anew into requirements/
	$(LOCK) pyproject.toml --group build --upgrade -o requirements/core.txt
	$(LOCK) requirements/peers.in --upgrade -o requirements/peers.txt
	$(LOCK) requirements/graphical.in --upgrade -o requirements/graphical.txt
	$(LOCK) pyproject.toml requirements/raw.in --group build -c requirements/core.txt --upgrade -o requirements/raw.txt
	$(LOCK) requirements/mostlyai.in --override requirements/mostlyai-without.txt --upgrade -o requirements/mostlyai.txt
	$(LOCK) requirements/anonymeter.in --upgrade -o requirements/anonymeter.txt
	$(LOCK) requirements/sdnist.in --upgrade -o requirements/sdnist.txt
	$(LOCK) requirements/dpcgeneration.in --upgrade -o requirements/dpcgeneration.txt
	$(LOCK) pyproject.toml $(EXTRAS) --group build --group test --group lint --group docs --group lock -c requirements/core.txt --upgrade -o requirements/dev.txt
	$(LOCK) pyproject.toml $(EXTRAS) --group build --group test --resolution lowest-direct --upgrade -o requirements/lowest.txt
	$(LOCK) pyproject.toml --extra studio --extra pandas --extra sql --extra excel --group build -c requirements/dev.txt --upgrade -o requirements/studio.txt
	$(LOCK) pyproject.toml requirements/standards.in --group build -c requirements/core.txt --upgrade -o requirements/standards.txt
	$(LOCK) requirements/browser.in -c requirements/dev.txt --upgrade -o requirements/browser.txt
	$(LOCK) pyproject.toml requirements/spark.in --extra spark --extra plot --group build -c requirements/core.txt --upgrade -o requirements/spark.txt

clean: ## remove the virtual environment and what the tools left behind
	rm -rf $(VENV) .venv-peers .venv-graphical .venv-raw .venv-authors .venv-lowest .venv-spark .venv-standards .venv-mostlyai .venv-anonymeter .venv-sdnist dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis sklar-demo

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python requirements/core.txt pyproject.toml
	$(PIP) install --require-hashes -r requirements/core.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.browser: $(VENV)/.dev requirements/browser.txt
	$(PIP) install --require-hashes -r requirements/browser.txt
	@touch $@

.venv-peers/.done: requirements/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/peers.txt
	@touch $@

.venv-graphical/.done: requirements/graphical.txt
	$(PYTHON) -m venv .venv-graphical
	.venv-graphical/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/graphical.txt
	@touch $@

.venv-raw/.done: requirements/raw.txt pyproject.toml
	$(PYTHON) -m venv .venv-raw
	.venv-raw/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/raw.txt
	.venv-raw/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation -e .
	@touch $@

# What is left out of the lock would be missed by pip, and is not imported.
.venv-mostlyai/.done: requirements/mostlyai.txt
	$(PYTHON) -m venv .venv-mostlyai
	.venv-mostlyai/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r requirements/mostlyai.txt
	@touch $@

.venv-anonymeter/.done: requirements/anonymeter.txt
	$(PYTHON) -m venv .venv-anonymeter
	.venv-anonymeter/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/anonymeter.txt
	@touch $@

.venv-sdnist/.done: requirements/sdnist.txt
	$(PYTHON) -m venv .venv-sdnist
	.venv-sdnist/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/sdnist.txt
	@touch $@

.venv-spark/.done: requirements/spark.txt pyproject.toml
	$(PYTHON) -m venv .venv-spark
	.venv-spark/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/spark.txt
	.venv-spark/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation -e .
	@touch $@

.venv-standards/.done: requirements/standards.txt pyproject.toml
	$(PYTHON) -m venv .venv-standards
	.venv-standards/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/standards.txt
	.venv-standards/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation -e .
	@touch $@

.venv-authors/.done: requirements/dpcgeneration.txt
	$(PYTHON) -m venv .venv-authors
	.venv-authors/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/dpcgeneration.txt
	@touch $@

.venv-lowest/.done: requirements/lowest.txt pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/lowest.txt
	.venv-lowest/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation -e .
	@touch $@
