# Files that travel inside the program:
#
#   wf_embed(OUT NAME FILE)
#
# writes OUT in the build folder with 'const char NAME[]' (the file's text, zero-ended) and
# 'const char NAME_sha256[]' (of the file, in hex). CMake runs again when FILE changes.
function(wf_embed out name file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} bytes HEX)
    file(SHA256 ${file} sha256)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "(char)0x\\1," bytes "${bytes}")
    get_filename_component(short ${file} NAME)
    set(path ${PROJECT_BINARY_DIR}/generated/${out})
    file(CONFIGURE OUTPUT ${path} @ONLY CONTENT
"/* Made by cmake/WfEmbed.cmake from @short@; do not edit. */
extern const char @name@[], @name@_sha256[];
const char @name@[] = {
@bytes@
    0,
};
const char @name@_sha256[] = \"@sha256@\";
")
    set(WF_GENERATED ${WF_GENERATED} ${path} PARENT_SCOPE)
endfunction()

# Each table of share/figures/ by its name, and a list of them, wf_figures_shipped[]: the first of a device is for
# machines that have none.
function(wf_embed_figures)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/share/figures/*.txt)
    list(SORT files)
    set(externs "")
    set(names "")
    foreach(file ${files})
        get_filename_component(name ${file} NAME_WE)
        string(MAKE_C_IDENTIFIER wf_figures_${name} name)
        wf_embed(${name}.c ${name} ${file})
        string(APPEND externs "extern const char ${name}[];\n")
        string(APPEND names "    ${name},\n")
    endforeach()
    set(path ${PROJECT_BINARY_DIR}/generated/figures_shipped.c)
    file(CONFIGURE OUTPUT ${path} @ONLY CONTENT
"/* Made by cmake/WfEmbed.cmake from share/figures/; do not edit. */
@externs@extern const char *const wf_figures_shipped[];
const char *const wf_figures_shipped[] = {
@names@    0,
};
")
    set(WF_GENERATED ${WF_GENERATED} ${path} PARENT_SCOPE)
endfunction()
