# Each WF_WITH_* is AUTO (used when found), ON (must be found) or OFF.
foreach(feature DNNL OPENMP MPI PNG DEFLATE JPEG TIFF ZLIB EXPAT FREETYPE ONNX)
    set(WF_WITH_${feature} AUTO CACHE STRING "AUTO, ON or OFF")
    set_property(CACHE WF_WITH_${feature} PROPERTY STRINGS AUTO ON OFF)
endforeach()
set(WF_WITH_CUDA OFF CACHE STRING "ON or OFF: GPU kernels")
set(WF_CUDA_ARCH 90 CACHE STRING "GPU architectures of the build, such as 80;90")

set(WF_DNNL_ROOT "" CACHE PATH "folder of a oneDNN to prefer over the system's")
set(WF_MARCH x86-64-v3 CACHE STRING "instruction set of the build (-march); empty: the compiler's default")
set(WF_SANITIZE "" CACHE STRING "sanitizers, as in -fsanitize=")

option(WF_WERROR "warnings are errors" OFF)
option(WF_COMMAND "build the command widefield (needs libfyaml)" ON)
option(WF_SHARED "build libwidefield.so beside the static library" ON)
option(WF_TESTS "build tests, examples and fuzz targets" ON)
option(WF_PYTHON "install the library inside the Python package (pip does it)" OFF)
option(WF_FUZZ "build fuzz/ as libFuzzer targets (clang only)" OFF)
option(WF_CCACHE "compile through ccache when it is there" ON)

if(WF_FUZZ)
    set(WF_WITH_MPI OFF)   # what MPI keeps until the end would drown the sanitizer's findings
endif()

if(WF_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
    find_program(WF_CCACHE_PROGRAM ccache)
    mark_as_advanced(WF_CCACHE_PROGRAM)
    if(WF_CCACHE_PROGRAM)
        set(CMAKE_C_COMPILER_LAUNCHER ${WF_CCACHE_PROGRAM})
        set(CMAKE_CUDA_COMPILER_LAUNCHER ${WF_CCACHE_PROGRAM})
    endif()
endif()
