# Language, warnings and optimisation of everything that is ours: target wf_flags.
set(CMAKE_C_STANDARD 23)            # gcc 12 and clang 14 call it -std=c2x
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# NDEBUG is not ours to set: WF_BUG_ON stays in release builds, and so does assert.
set(CMAKE_C_FLAGS_RELEASE "-O3" CACHE STRING "" FORCE)
set(CMAKE_C_FLAGS_DEBUG "-O1 -g" CACHE STRING "" FORCE)

add_library(wf_flags INTERFACE)
# Empty on purpose: a source that says '#define _GNU_SOURCE' itself does not collide.
target_compile_definitions(wf_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=> WF_VERSION_STRING="${PROJECT_VERSION}")

set(WF_WARNINGS
    -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wshadow -Wvla -Wformat=2
    -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual -Wdouble-promotion)
if(WF_WERROR)
    list(APPEND WF_WARNINGS -Werror)
endif()
# Value tracking under a sanitizer's instrumentation warns of paths that do not exist.
if(WF_SANITIZE)
    list(APPEND WF_WARNINGS -Wno-maybe-uninitialized)
endif()
if(CMAKE_C_COMPILER_ID MATCHES Clang)
    list(APPEND WF_WARNINGS -Wno-unknown-warning-option)
endif()

# No fused multiply-add behind our back: a sum gives the same bits on every machine, and a cut
# image the same as a whole one. A device kernel that wants it says fma(). Never -ffast-math.
# Floating-point exception flags are not used, and selects are vectorised without them.
set(WF_CODEGEN -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(WF_MARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND WF_CODEGEN -march=${WF_MARCH})
elseif(WF_MARCH STREQUAL native)
    list(APPEND WF_CODEGEN -mcpu=native)
endif()

set(WF_SANITIZE_FLAGS "")
if(WF_SANITIZE)
    set(WF_SANITIZE_FLAGS -fsanitize=${WF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
endif()
if(WF_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "WF_FUZZ=ON needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    list(APPEND WF_SANITIZE_FLAGS -fsanitize=fuzzer-no-link,address,undefined)
endif()

foreach(flag ${WF_WARNINGS} ${WF_CODEGEN} ${WF_SANITIZE_FLAGS})
    target_compile_options(wf_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${flag}>)
endforeach()
# No contraction here either; kernels say fma() where they mean it.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3" CACHE STRING "" FORCE)
foreach(flag -fmad=false -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers)
    target_compile_options(wf_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:${flag}>)
endforeach()
target_link_options(wf_flags INTERFACE ${WF_SANITIZE_FLAGS})
