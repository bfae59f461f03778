# Our CUDA kernels under test (tests/cuda/): on a GPU in builds with CUDA, where the test says that it was not run when
# no GPU is found; in others emulated on the host, wherever there is a C++ compiler.
if(NOT WF_TESTS OR NOT WF_CMOCKA_FOUND OR NOT TARGET wf_test_support)
    return()
endif()
set(own ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels.c ${PROJECT_SOURCE_DIR}/src/device/cuda/sparse.c
    ${PROJECT_SOURCE_DIR}/src/device/cuda/sparse_ops.c ${PROJECT_SOURCE_DIR}/src/device/cuda/sparse_halo.c)
wf_collect_table(cuda_own_kernels.c wf_kernel wf_cuda_kernels_ wf_cuda_own_kernels
                 device/cuda/kernels.h ${own})
set(own_table ${PROJECT_BINARY_DIR}/generated/cuda_own_kernels.c)

# wf_cuda_test(TARGET NAME SOURCES...)
function(wf_cuda_test target name)
    add_executable(${target} ${ARGN} $<TARGET_OBJECTS:wf_test_support>)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(${target} PRIVATE
        ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/cuda)
    target_include_directories(${target} SYSTEM PRIVATE ${WF_CMOCKA_INCLUDE_DIRS})
    target_link_libraries(${target} PRIVATE wf_flags wf_test_flags wf_deps libwidefield_static
                          ${WF_CMOCKA_LINK_LIBRARIES})
    wf_add_test(${name} 1 $<TARGET_FILE:${target}>)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# On the GPU: every kernel that the device has, cuDNN's and cuBLASLt's included.
if(WF_HAVE_CUDA)
    wf_cuda_test(test_cuda_kernels cuda_kernels
        tests/cuda/test_cuda_kernels.c tests/cuda/device.c)
    wf_cuda_test(test_cuda_large cuda_large tests/cuda/test_cuda_large.c tests/cuda/device.c)
    wf_cuda_test(test_cuda_sparse cuda_sparse tests/cuda/test_cuda_sparse.c tests/cuda/device.c)
    wf_cuda_test(test_cuda_sparse_ops cuda_sparse_ops tests/cuda/test_cuda_sparse_ops.c tests/cuda/device.c)
    wf_cuda_test(test_cuda_steps cuda_steps tests/cuda/test_cuda_steps.c tests/cuda/device.c)
    foreach(target test_cuda_kernels test_cuda_large)
        target_compile_definitions(${target} PRIVATE wf_cuda_own_kernels=wf_cuda_kernels)
    endforeach()
    if(TARGET wf_hopper)
        wf_cuda_test(test_cuda_hopper cuda_hopper tests/cuda/test_cuda_hopper.c tests/cuda/device.c)
    endif()
    add_executable(bench_gpu_kernels bench/gpu/kernels.c)
    set_target_properties(bench_gpu_kernels PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
    target_include_directories(bench_gpu_kernels PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(bench_gpu_kernels PRIVATE wf_flags wf_deps libwidefield_static)
    return()   # an emulated device beside the real one would be two of a name
endif()
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT WF_SANITIZE MATCHES thread)
    if(WF_CCACHE_PROGRAM)
        set(CMAKE_CXX_COMPILER_LAUNCHER ${WF_CCACHE_PROGRAM})
    endif()
    enable_language(CXX)
    # Each .cu through a .cpp of its own: in builds with CUDA it is a CUDA source as well.
    file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cu)
    list(FILTER kernels EXCLUDE REGEX "/hopper_[^/]*\\.cu$")  # products of four warps at once
    set(emulated "")
    foreach(kernel ${kernels})
        get_filename_component(name ${kernel} NAME_WE)
        set(path ${PROJECT_BINARY_DIR}/generated/emulated_${name}.cpp)
        file(CONFIGURE OUTPUT ${path} CONTENT "#include \"device/cuda/${name}.cu\"\n")
        list(APPEND emulated ${path})
    endforeach()
    add_library(wf_emulated OBJECT ${emulated} ${PROJECT_SOURCE_DIR}/tests/emulate/emulate.cpp)
    target_include_directories(wf_emulated PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_compile_features(wf_emulated PRIVATE cxx_std_17)
    # gcc 12 with AVX forgets that a leaf's stack must be aligned for what it reaches by pointer (its
    # bug 109780): without vectors of 32 bytes it does not matter.
    set(no_vectors -fno-tree-vectorize -fno-tree-slp-vectorize)
    target_compile_options(wf_emulated PRIVATE -O2 -Wall -Wextra -Wno-unknown-pragmas
        -Wno-missing-field-initializers -fno-strict-aliasing -ffp-contract=off
        ${no_vectors} ${WF_SANITIZE_FLAGS}
        -include ${PROJECT_SOURCE_DIR}/tests/emulate/emulate.h)
    if(WF_MARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        target_compile_options(wf_emulated PRIVATE -march=${WF_MARCH})   # fma() as an instruction
    endif()
    wf_cuda_test(test_cuda_kernels_emulated cuda_kernels.emulated
        tests/cuda/test_cuda_kernels.c tests/cuda/emulated.c ${own} ${own_table}
        $<TARGET_OBJECTS:wf_emulated>)
    wf_cuda_test(test_cuda_plan cuda_plan.emulated
        tests/cuda/test_cuda_plan.c tests/cuda/emulated_device.c tests/cuda/emulated.c ${own} ${own_table}
        $<TARGET_OBJECTS:wf_emulated>)
    wf_cuda_test(test_cuda_sparse_emulated cuda_sparse.emulated
        tests/cuda/test_cuda_sparse.c tests/cuda/emulated_device.c tests/cuda/emulated.c ${own} ${own_table}
        $<TARGET_OBJECTS:wf_emulated>)
    wf_cuda_test(test_cuda_sparse_ops_emulated cuda_sparse_ops.emulated
        tests/cuda/test_cuda_sparse_ops.c tests/cuda/emulated_device.c tests/cuda/emulated.c ${own} ${own_table}
        $<TARGET_OBJECTS:wf_emulated>)
    wf_cuda_test(test_cuda_sparse_space_emulated cuda_sparse_space.emulated
        tests/test_sparse_space.c tests/cuda/emulated_device.c tests/cuda/emulated.c ${own} ${own_table}
        $<TARGET_OBJECTS:wf_emulated>)
    target_compile_definitions(test_cuda_sparse_space_emulated PRIVATE WF_TEST_CUDA)
    wf_cuda_test(test_cuda_large_emulated cuda_large.emulated
        tests/cuda/test_cuda_large.c tests/cuda/emulated.c ${own} ${own_table}
        $<TARGET_OBJECTS:wf_emulated>)
    set_property(TEST cuda_large.emulated APPEND PROPERTY ENVIRONMENT WF_LARGE_SIDE=70)
    if(WF_HAVE_COMMAND)
        add_executable(widefield_emulated ${WF_MAIN} src/train/device.c tests/cuda/emulated_device.c
            tests/cuda/emulated.c ${own} ${own_table} $<TARGET_OBJECTS:wf_emulated>)
        set_target_properties(widefield_emulated PROPERTIES
            RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
        target_compile_definitions(widefield_emulated PRIVATE WF_HAVE_CUDA)
        target_include_directories(widefield_emulated PRIVATE
            ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests/cuda)
        target_link_libraries(widefield_emulated PRIVATE wf_flags wf_deps libwidefield_static)
        wf_add_test(cuda_verify.emulated 1 ${WF_BASH}
            ${PROJECT_SOURCE_DIR}/tests/cuda/verify_emulated.sh)
        set_property(TEST cuda_verify.emulated APPEND PROPERTY ENVIRONMENT
            WIDEFIELD=$<TARGET_FILE:widefield_emulated> SOURCE_DIR=${PROJECT_SOURCE_DIR}
            WORKDIR=${PROJECT_BINARY_DIR}/scratch/cuda_verify.emulated)
    endif()
else()
    message(STATUS "the CUDA kernels are not tested: no C++ compiler to emulate them with")
endif()
