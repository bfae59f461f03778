# Adding an operator, a kernel or a model is adding a file: the tables are made from the sources.
#
#   wf_collect_table(OUT TYPE PREFIX ARRAY HEADER SOURCES...)
#
# finds each line 'const struct TYPE PREFIXname = {' (or 'PREFIXname[] = {', whose rows end with an
# empty one) in SOURCES and writes OUT in the build folder: the externs and a NULL-ended
# 'const struct TYPE *const ARRAY[]', sorted by name.
# CMake runs again when one of the sources changes (a new one is seen by the glob).
function(wf_collect_table out type prefix array header)
    if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/${header})
        return()
    endif()
    set(names "")
    set(rows "")
    foreach(source ${ARGN})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
        file(STRINGS ${source} lines REGEX "^const struct ${type} ${prefix}[A-Za-z0-9_]+(\\[])? *= *{")
        foreach(line IN LISTS lines)
            string(REGEX REPLACE "^const struct ${type} (${prefix}[A-Za-z0-9_]+).*" "\\1" name "${line}")
            if(name IN_LIST names)
                message(FATAL_ERROR "${source}: '${name}' is defined twice")
            endif()
            list(APPEND names ${name})
            if(line MATCHES "\\[] *=")
                list(APPEND rows ${name})
            endif()
        endforeach()
    endforeach()
    list(SORT names)
    set(externs "")
    set(entries "")
    foreach(name ${names})
        if(name IN_LIST rows)
            string(APPEND externs "extern const struct ${type} ${name}[];\n")
            string(APPEND entries "    ${name},\n")
        else()
            string(APPEND externs "extern const struct ${type} ${name};\n")
            string(APPEND entries "    &${name},\n")
        endif()
    endforeach()
    set(path ${PROJECT_BINARY_DIR}/generated/${out})
    # file(CONFIGURE) leaves an unchanged file alone, so nothing is compiled again for it.
    file(CONFIGURE OUTPUT ${path} @ONLY CONTENT
"/* Made by cmake/WfTables.cmake from the sources; do not edit. */
#include \"@header@\"

#include <stddef.h>

@externs@
extern const struct @type@ *const @array@[];
const struct @type@ *const @array@[] = {
@entries@    NULL,
};
")
    set(WF_GENERATED ${WF_GENERATED} ${path} PARENT_SCOPE)
    list(LENGTH names count)
    set(WF_NOTES ${WF_NOTES} "${array}|${count}" PARENT_SCOPE)
endfunction()
