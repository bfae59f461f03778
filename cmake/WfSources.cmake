# The library is everything under src/ but the command's main*.c; tests reach all of it.
file(GLOB_RECURSE WF_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)
set(WF_MAIN ${PROJECT_SOURCE_DIR}/src/cli/main.c)
set(guard ${PROJECT_SOURCE_DIR}/src/cli/main_guard.c)
list(REMOVE_ITEM WF_SOURCES ${WF_MAIN} ${guard})
if(NOT WF_SANITIZE AND NOT WF_FUZZ)   # a sanitizer has a malloc of its own
    list(APPEND WF_MAIN ${guard})
endif()

if(NOT WF_HAVE_DNNL)
    list(FILTER WF_SOURCES EXCLUDE REGEX "/src/device/cpu/dnnl[^/]*\\.c$")
endif()
if(NOT WF_HAVE_ONNX)
    list(FILTER WF_SOURCES EXCLUDE REGEX "/src/onnx/[^/]*\\.c$")
endif()
# Linked with MPI, so in libwidefield-mpi.so only; mpi_open.c opens it.
set(WF_MPI_SOURCES ${WF_SOURCES})
list(FILTER WF_MPI_SOURCES INCLUDE REGEX "/src/comm/mpi(_match|_wait)?\\.c$")
list(REMOVE_ITEM WF_SOURCES ${WF_MPI_SOURCES})
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/comm/mpi_open.c PROPERTIES
    COMPILE_DEFINITIONS WF_BIN_TO_LIB="${bin_to_lib}")
if(WF_HAVE_CUDA)
    file(GLOB_RECURSE cuda CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
    set(hopper ${cuda})
    list(FILTER cuda EXCLUDE REGEX "/hopper_[^/]*\\.cu$")
    list(FILTER hopper INCLUDE REGEX "/(hopper_|patches|sparse_panels)[^/]*\\.cu$")
    if(90 IN_LIST CMAKE_CUDA_ARCHITECTURES) # for others these say that they do not fit
        list(FILTER cuda EXCLUDE REGEX "/(patches|sparse_panels)[^/]*\\.cu$")
    endif()
    list(APPEND WF_SOURCES ${cuda})
    list(FILTER WF_SOURCES EXCLUDE REGEX "/src/device/paper_[^/]*\\.c$")
else()
    list(FILTER WF_SOURCES EXCLUDE REGEX "/src/device/cuda/.*\\.c$")
endif()
if(NOT WF_HAVE_NCCL)
    list(FILTER WF_SOURCES EXCLUDE REGEX "/src/comm/nccl[^/]*\\.c$")
endif()
if(NOT WF_COMMAND)
    list(FILTER WF_SOURCES EXCLUDE REGEX "/src/cli/|/src/config/options_read\\.c$") # no YAML
endif()

set(WF_GENERATED "")
set(ops ${WF_SOURCES})
list(FILTER ops INCLUDE REGEX "/src/ops/[^/]*\\.c$")
wf_collect_table(ops_table.c wf_op wf_op_ wf_op_table ops/op.h ${ops})
set(kernels ${WF_SOURCES})
list(FILTER kernels INCLUDE REGEX "/src/device/cpu/.*\\.c$")
wf_collect_table(cpu_kernels.c wf_kernel wf_cpu_kernels_ wf_cpu_kernels device/device.h ${kernels})
if(WF_HAVE_CUDA)
    set(kernels ${WF_SOURCES})
    list(FILTER kernels INCLUDE REGEX "/src/device/cuda/.*\\.c$")
    wf_collect_table(cuda_kernels.c wf_kernel wf_cuda_kernels_ wf_cuda_kernels device/device.h ${kernels})
endif()
set(models ${WF_SOURCES})
list(FILTER models INCLUDE REGEX "/src/models/[^/]*\\.c$")
wf_collect_table(model_table.c wf_model wf_model_ wf_model_table models/model.h ${models})
set(kinds ${WF_SOURCES})
list(FILTER kinds INCLUDE REGEX "/src/net/kinds[^/]*\\.c$")
wf_collect_table(layer_kinds.c wf_layer_kind wf_layer_kind_ wf_layer_kinds net/net.h ${kinds})
wf_embed(report_css.c wf_report_css ${PROJECT_SOURCE_DIR}/src/report/report.css)
wf_embed(report_js.c wf_report_js ${PROJECT_SOURCE_DIR}/src/report/report.js)
wf_embed_figures()

if(NOT WF_SOURCES)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/empty.c CONTENT "typedef int wf_empty;\n")
    list(APPEND WF_GENERATED ${PROJECT_BINARY_DIR}/generated/empty.c)
endif()

# The code of ONNX's messages; its style is not ours, so our warnings are not for it.
if(WF_HAVE_ONNX)
    set(messages ${PROJECT_BINARY_DIR}/generated/onnx.pb-c.c ${PROJECT_BINARY_DIR}/generated/onnx.pb-c.h)
    add_custom_command(OUTPUT ${messages}
        COMMAND ${WF_PROTOC_C} --proto_path=${PROJECT_SOURCE_DIR}/src/onnx
                --c_out=${PROJECT_BINARY_DIR}/generated onnx.proto
        DEPENDS ${PROJECT_SOURCE_DIR}/src/onnx/onnx.proto COMMENT "onnx.proto" VERBATIM)
    set_source_files_properties(${PROJECT_BINARY_DIR}/generated/onnx.pb-c.c PROPERTIES COMPILE_OPTIONS -w)
    target_include_directories(wf_deps SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/generated)
    list(APPEND WF_GENERATED ${messages})
endif()

add_library(wf_objects OBJECT ${WF_SOURCES} ${WF_GENERATED})
target_include_directories(wf_objects PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(wf_objects PRIVATE wf_flags wf_deps)

# The shared library exports what the public headers declare, and nothing else: tests/exports.sh.
set_target_properties(wf_objects PROPERTIES C_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)

set(objects $<TARGET_OBJECTS:wf_objects>)

# Kernels with instructions that only compute capability 9.0 has, and no other builds.
if(WF_HAVE_CUDA AND 90 IN_LIST CMAKE_CUDA_ARCHITECTURES)
    add_library(wf_hopper OBJECT ${hopper})
    set_target_properties(wf_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real CUDA_VISIBILITY_PRESET hidden)
    target_include_directories(wf_hopper PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(wf_hopper PRIVATE wf_flags wf_deps)
    target_compile_definitions(wf_hopper PRIVATE WF_HAVE_HOPPER)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/device/cuda/conv.c PROPERTIES
        COMPILE_DEFINITIONS WF_HAVE_HOPPER)
    list(APPEND objects $<TARGET_OBJECTS:wf_hopper>)
endif()

# libwidefield.a, and libwidefield.so from the same objects.
set(WF_LIBRARIES libwidefield_static)
add_library(libwidefield_static STATIC ${objects})
if(WF_SHARED)
    add_library(libwidefield_shared SHARED ${objects})
    set_target_properties(libwidefield_shared PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    target_link_options(libwidefield_shared PRIVATE -Wl,--exclude-libs,ALL)
    list(APPEND WF_LIBRARIES libwidefield_shared)
endif()
foreach(library ${WF_LIBRARIES})
    string(REPLACE libwidefield_ "" export ${library})
    set_target_properties(${library} PROPERTIES OUTPUT_NAME widefield EXPORT_NAME ${export} LINKER_LANGUAGE C)
    target_link_libraries(${library} PRIVATE ${WF_LINK})
    target_link_options(${library} PRIVATE ${WF_SANITIZE_FLAGS})
    target_include_directories(${library} PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/widefield>)
    add_library(widefield::${export} ALIAS ${library})
endforeach()

# libwidefield-mpi.so: the files that call MPI, with copies of those that they call.
if(WF_HAVE_MPI)
    add_library(libwidefield_mpi MODULE ${WF_MPI_SOURCES})
    set_target_properties(libwidefield_mpi PROPERTIES PREFIX "" OUTPUT_NAME libwidefield-mpi C_VISIBILITY_PRESET hidden)
    target_include_directories(libwidefield_mpi PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_include_directories(libwidefield_mpi SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
    target_compile_options(libwidefield_mpi PRIVATE ${MPI_C_COMPILE_OPTIONS})
    target_link_libraries(libwidefield_mpi PRIVATE wf_flags wf_deps libwidefield_static ${MPI_C_LIBRARIES})
    target_link_options(libwidefield_mpi PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)
    set_target_properties(libwidefield_mpi PROPERTIES LINKER_LANGUAGE C)
    if(WF_SHARED)
        add_dependencies(libwidefield_shared libwidefield_mpi)   # whoever builds one has both
    endif()
endif()

set(WF_HAVE_COMMAND OFF)
if(WF_COMMAND)
    set(WF_HAVE_COMMAND ON)
    add_executable(widefield ${WF_MAIN})
    target_include_directories(widefield PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(widefield PRIVATE wf_flags wf_deps libwidefield_static)
    if(WF_HAVE_MPI)
        add_dependencies(widefield libwidefield_mpi)
    endif()
endif()
wf_note(command "${WF_HAVE_COMMAND}")
