# Shortcuts. CMake does the work (see CMakePresets.json); 'make help' lists the targets.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TEST_JOBS ?= 2
GENERATOR := $(if $(shell command -v ninja 2>/dev/null),Ninja,Unix Makefiles)

# Tuned for this machine's instruction set, unless WF_MARCH is set.
# Give WF_MARCH=x86-64-v3 for a binary that has to run on other machines too.
MARCH := $(or $(WF_MARCH),native)
CONFIGURE = cmake $(if $(wildcard $(1)/CMakeCache.txt),,-G '$(GENERATOR)') --preset $(2) -DWF_MARCH=$(MARCH) $(CMAKE_ARGS)
# Configure if that has not been done, failed, or settings are given; CMake itself detects changed
# sources afterwards.
SETTINGS := $(WF_MARCH)$(CMAKE_ARGS)
CONFIGURED = $(if $(SETTINGS),,$(wildcard $(1)/build.ninja $(1)/Makefile))
define build
@$(if $(call CONFIGURED,$(1)),true,$(call CONFIGURE,$(1),$(2)))
@cmake --build $(1) --parallel $(JOBS)
endef

.NOTPARALLEL:
.PHONY: all test lint demo asan tsan cuda parity format docs clean install help
all:            ## build ./build/widefield
	$(call build,build,release)

test:           ## install what is missing, build, run every test
	@scripts/deps
	$(call build,build,release)
	@cd build && ctest -j$(TEST_JOBS) --output-on-failure

lint:           ## format, generated docs, clang-tidy, cppcheck and the rules of the architecture
	@scripts/deps lint
	$(call build,build,release)
	@scripts/lint $(CHECKS)

demo:           ## install what is missing, build, show what it does
	@scripts/deps
	$(call build,build,release)
	@scripts/demo

asan:           ## build and test with the address and undefined-behaviour sanitizers
	$(call build,build/asan,asan)
	@cd build/asan && ctest -j$(TEST_JOBS) --output-on-failure

# Without address randomisation: gcc's thread sanitizer and new kernels disagree about the layout.
NORANDOM := $(if $(shell setarch -R true 2>/dev/null && echo yes),setarch -R,)
tsan:           ## build and test with the thread sanitizer (ranks as threads)
	$(call build,build/tsan,tsan)
	@cd build/tsan && $(NORANDOM) ctest -j$(TEST_JOBS) --output-on-failure

cuda:           ## build with GPU kernels into build/cuda
	@command -v nvcc >/dev/null || [ -n "$$CUDACXX" ] || { echo "make cuda: no nvcc found: install the CUDA toolkit or set CUDACXX" >&2; exit 1; }
	$(call build,build/cuda,cuda)

parity:         ## compare with other programs' numbers
	@scripts/deps
	$(call build,build,release)
	@tests/parity/run

format:         ## rewrite the sources with clang-format
	@scripts/deps lint
	@scripts/lint-format --fix

docs:           ## write again what the command makes from its own tables
	$(call build,build,release)
	@scripts/lint-docs --fix

clean:          ## remove build/
	rm -rf build

install: all    ## install under PREFIX (default /usr/local)
	cmake --install build --prefix '$(PREFIX)'

help:           ## this list
	@sed -n 's/^\([a-z]*\):[a-z ]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "settings: WF_MARCH=..., CMAKE_ARGS='-DWF_WITH_MPI=OFF ...', JOBS=, TEST_JOBS=, PREFIX="
