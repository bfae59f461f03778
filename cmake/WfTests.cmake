# What is in these folders is found, not listed:
#   tests/test_NAME.c      cmocka program                          -> test NAME
#                          with '/* mpirun: 1 2 3 5 */' on top      -> tests NAME.mpi.1, ...
#                          with '/* needs: DNNL */' on top          -> only where WF_HAVE_DNNL is
#   tests/support*.c       linked to each of them
#   tests/cli/NAME.sh      bash, given WIDEFIELD, WORKDIR, SOURCE_DIR -> test cli.NAME
#   examples/NAME.c        program on the public header only       -> test example.NAME
#   bench/NAME.c           program, built to be run by hand        -> build/bench/NAME
#   fuzz/fuzz_NAME.c       run over fuzz/corpus/NAME/              -> test fuzz.NAME
if(NOT WF_TESTS)
    return()
endif()
set(WF_TEST_ENV
    OMP_NUM_THREADS=2
    WF_MPI_MODULE=$<$<BOOL:${WF_HAVE_MPI}>:${PROJECT_BINARY_DIR}/libwidefield-mpi.so>   # not beside tests/
    OMP_WAIT_POLICY=passive                 # ranks outnumber cores here: do not spin
    XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/scratch/cache   # verdicts on primitives
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_btl_vader_single_copy_mechanism=none   # containers often forbid it
    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
    LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/scripts/lsan.supp:print_suppressions=0
    UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
set(WF_TEST_TIMEOUT 300)
if(WF_SANITIZE)
    set(WF_TEST_TIMEOUT 900)
endif()

# A test in a fresh working folder of its own. wf_add_test(NAME PROCESSORS COMMAND...)
function(wf_add_test name processors)
    set(folder ${PROJECT_BINARY_DIR}/scratch/${name})
    add_test(NAME ${name}
             COMMAND ${WF_BASH} ${PROJECT_SOURCE_DIR}/cmake/in_fresh_folder.sh ${folder} ${ARGN})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${WF_TEST_TIMEOUT} PROCESSORS ${processors}
                         ENVIRONMENT "${WF_TEST_ENV}")
endfunction()
find_program(WF_BASH bash REQUIRED)
mark_as_advanced(WF_BASH)

# --- mpirun ---------------------------------------------------------------------------
set(WF_MPIRUN "")
if(WF_HAVE_MPI)
    find_program(WF_MPIRUN_PROGRAM NAMES mpirun mpiexec HINTS ENV MPI_HOME PATH_SUFFIXES bin)
    mark_as_advanced(WF_MPIRUN_PROGRAM)
    if(WF_MPIRUN_PROGRAM)
        set(WF_MPIRUN ${WF_MPIRUN_PROGRAM})
        execute_process(COMMAND ${WF_MPIRUN_PROGRAM} --version OUTPUT_VARIABLE version ERROR_QUIET)
        if(version MATCHES "Open MPI|OpenRTE|PRRTE")
            list(APPEND WF_MPIRUN --oversubscribe --allow-run-as-root --bind-to none)
        endif()
    endif()
endif()

# --- tests/test_*.c -------------------------------------------------------------------
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/test_*.c)
file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support*.c)
pkg_check_modules(WF_CMOCKA QUIET cmocka)
if(NOT WF_CMOCKA_FOUND)
    message(STATUS "cmocka not found (Debian package 'libcmocka-dev'): tests/test_*.c are not built")
    set(sources "")
endif()
add_library(wf_test_flags INTERFACE)
target_compile_options(wf_test_flags INTERFACE -Wno-unused-parameter)   # cmocka's void **state
if(WF_HAVE_MPI)
    target_compile_definitions(wf_test_flags INTERFACE WF_HAVE_MPI)
endif()
if(sources AND support)
    add_library(wf_test_support OBJECT ${support})
    target_include_directories(wf_test_support PRIVATE
        ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
    target_include_directories(wf_test_support SYSTEM PRIVATE ${WF_CMOCKA_INCLUDE_DIRS})
    target_link_libraries(wf_test_support PRIVATE wf_flags wf_test_flags wf_deps)
endif()
foreach(source ${sources})
    get_filename_component(target ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${target})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} head LIMIT_COUNT 40)
    if("${head}" MATCHES "/\\* needs: ([A-Z0-9]+) \\*/")
        if(NOT WF_HAVE_${CMAKE_MATCH_1})
            continue()
        endif()
    endif()
    add_executable(${target} ${source})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
    target_include_directories(${target} SYSTEM PRIVATE ${WF_CMOCKA_INCLUDE_DIRS})
    target_compile_definitions(${target} PRIVATE WF_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_link_libraries(${target} PRIVATE wf_flags wf_test_flags wf_deps libwidefield_static ${WF_CMOCKA_LINK_LIBRARIES})
    if(TARGET wf_test_support)
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:wf_test_support>)
    endif()
    wf_add_test(${name} 1 $<TARGET_FILE:${target}>)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
    if(WF_MPIRUN AND "${head}" MATCHES "/\\* *mpirun:([ 0-9]+)\\*/")
        separate_arguments(counts UNIX_COMMAND "${CMAKE_MATCH_1}")
        foreach(count ${counts})
            wf_add_test(${name}.mpi.${count} ${count} ${WF_MPIRUN} -n ${count} $<TARGET_FILE:${target}>)
            set_property(TEST ${name}.mpi.${count} APPEND PROPERTY ENVIRONMENT WIDEFIELD_TEST_COMM=mpi)
        endforeach()
    endif()
endforeach()

# --- tests/cli/*.sh -------------------------------------------------------------------
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cli/*.sh)
if(NOT WF_HAVE_COMMAND)
    set(sources "")
endif()
list(JOIN WF_MPIRUN " " mpirun_line)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    wf_add_test(cli.${name} 1 env -u OMP_NUM_THREADS ${WF_BASH} ${source})
    set_property(TEST cli.${name} APPEND PROPERTY ENVIRONMENT
        WIDEFIELD=$<TARGET_FILE:widefield> WORKDIR=${PROJECT_BINARY_DIR}/scratch/cli.${name}
        SOURCE_DIR=${PROJECT_SOURCE_DIR} "MPIRUN=${mpirun_line}")
    set_tests_properties(cli.${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()

# --- examples/*.c ---------------------------------------------------------------------
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    set_target_properties(example_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    # Not wf_deps: an example sees what a user of the installed library sees.
    target_link_libraries(example_${name} PRIVATE wf_flags libwidefield_static)
    wf_add_test(example.${name} 1 $<TARGET_FILE:example_${name}>)
    set_property(TEST example.${name} APPEND PROPERTY ENVIRONMENT SOURCE_DIR=${PROJECT_SOURCE_DIR})
endforeach()
if(WF_MPIRUN AND TARGET example_train_unet)
    wf_add_test(example.train_unet.mpi 2 ${WF_MPIRUN} -n 2 $<TARGET_FILE:example_train_unet>)
endif()

# --- the example of docs/operators.md ---------------------------------------------------
if(WF_CMOCKA_FOUND AND NOT WF_SANITIZE)
    wf_add_test(one_file_operator 2 ${WF_BASH} ${PROJECT_SOURCE_DIR}/tests/one_file_operator.sh
        ${PROJECT_SOURCE_DIR} ${CMAKE_BUILD_TYPE})
    set_tests_properties(one_file_operator PROPERTIES TIMEOUT 900)   # without a compiler cache
endif()

# --- the shared library -----------------------------------------------------------------
if(WF_SHARED AND NOT WF_SANITIZE)
    wf_add_test(exports 1 ${WF_BASH} ${PROJECT_SOURCE_DIR}/tests/exports.sh
        $<TARGET_FILE:libwidefield_shared> ${PROJECT_SOURCE_DIR})
endif()

# --- libraries that are opened at run time ------------------------------------------------
if(WF_HAVE_COMMAND)
    set(files $<TARGET_FILE:widefield>)
    if(WF_SHARED)
        list(APPEND files $<TARGET_FILE:libwidefield_shared>)
    endif()
    wf_add_test(needed 1 ${WF_BASH} ${PROJECT_SOURCE_DIR}/tests/needed.sh ${files})
endif()

# --- python/tests ---------------------------------------------------------------------
# With the first Python that has numpy and pytest; on Debian the system's has them (scripts/deps).
if(WF_SHARED AND NOT WF_SANITIZE AND WF_HAVE_COMMAND)
    set(WF_PYTHON_PROGRAM "")
    foreach(program python3 /usr/bin/python3)
        execute_process(COMMAND ${program} -c "import numpy, pytest" RESULT_VARIABLE lacks
                        OUTPUT_QUIET ERROR_QUIET)
        if(lacks EQUAL 0 AND NOT WF_PYTHON_PROGRAM)
            set(WF_PYTHON_PROGRAM ${program})
        endif()
    endforeach()
    if(WF_PYTHON_PROGRAM)
        wf_add_test(python 2 ${WF_PYTHON_PROGRAM} -m pytest -q -rs -p no:cacheprovider
            ${PROJECT_SOURCE_DIR}/python/tests)
        set_property(TEST python APPEND PROPERTY ENVIRONMENT
            WIDEFIELD_LIBRARY=$<TARGET_FILE:libwidefield_shared> WIDEFIELD=$<TARGET_FILE:widefield>
            PYTHONPATH=${PROJECT_SOURCE_DIR}/python PYTHONDONTWRITEBYTECODE=1 "MPIRUN=${mpirun_line}")
    else()
        message(STATUS "no Python with numpy and pytest (Debian packages 'python3-numpy', 'python3-pytest'): "
                       "python/tests are not run")
    endif()
endif()

# --- the installed tree -----------------------------------------------------------------
if(WF_HAVE_COMMAND AND NOT WF_SANITIZE)
    wf_add_test(install 1 ${WF_BASH} ${PROJECT_SOURCE_DIR}/tests/install.sh ${PROJECT_BINARY_DIR}
        ${PROJECT_SOURCE_DIR})
endif()

# --- bench/*.c ------------------------------------------------------------------------
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} ${source})
    set_target_properties(bench_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
    target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(bench_${name} PRIVATE wf_flags wf_deps libwidefield_static)
endforeach()

# --- fuzz/fuzz_*.c --------------------------------------------------------------------
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(source ${sources})
    get_filename_component(target ${source} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" name ${target})
    set(corpus ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
    add_executable(${target} ${source})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE wf_flags wf_deps libwidefield_static)
    if(WF_FUZZ)
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
        # -runs=0: read the corpus once and stop. By hand: build/fuzz/fuzz_NAME fuzz/corpus/NAME
        wf_add_test(fuzz.${name} 1 $<TARGET_FILE:${target}> -runs=0 ${corpus})
    else()
        target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/fuzz/replay.c)
        wf_add_test(fuzz.${name} 1 $<TARGET_FILE:${target}> ${corpus})
    endif()
endforeach()

# --- tests/campaign -------------------------------------------------------------------
add_executable(campaign_primitives ${PROJECT_SOURCE_DIR}/tests/campaign/primitives.c)
set_target_properties(campaign_primitives PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(campaign_primitives PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(campaign_primitives PRIVATE wf_flags wf_deps libwidefield_static)
wf_add_test(campaign.primitives 1 $<TARGET_FILE:campaign_primitives> 1 200)
if(WF_HAVE_DNNL)
    wf_add_test(campaign.primitives.planted 1 $<TARGET_FILE:campaign_primitives> 2 60 all 1x1)
endif()
# The command with wrong numbers between ranks, which verify must find.
if(WF_HAVE_COMMAND AND NOT WF_SANITIZE)
    add_executable(widefield_spoiled ${WF_MAIN} tests/campaign/spoil.c)
    set_target_properties(widefield_spoiled PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(widefield_spoiled PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(widefield_spoiled PRIVATE wf_flags wf_deps libwidefield_static)
    target_compile_options(widefield_spoiled PRIVATE -Wno-pedantic)
    target_link_options(widefield_spoiled PRIVATE
        -Wl,--wrap=wf_run_step,--wrap=wf_comm_exchange_begin,--wrap=wf_comm_sum_begin)
    wf_add_test(campaign.verify 2 ${PROJECT_SOURCE_DIR}/tests/campaign/verify 6 3
        --widefield $<TARGET_FILE:widefield> --spoiled $<TARGET_FILE:widefield_spoiled>)
    wf_add_test(campaign.rank_faults 2 ${PROJECT_SOURCE_DIR}/tests/campaign/rank_faults 5 2 --seconds 60
        --widefield $<TARGET_FILE:widefield> --mpirun "${mpirun_line}")
    # stopped while MPI starts
    wf_add_test(campaign.rank_faults.start 2 ${PROJECT_SOURCE_DIR}/tests/campaign/rank_faults 1 5 --first 34 --seconds 60
        --widefield $<TARGET_FILE:widefield> --mpirun "${mpirun_line}")
    set_tests_properties(campaign.rank_faults campaign.rank_faults.start PROPERTIES SKIP_RETURN_CODE 77)
endif()
