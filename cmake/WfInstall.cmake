# cmake --install BUILD --prefix PREFIX: library, header, command, pkg-config and CMake files.
include(CMakePackageConfigHelpers)
install(TARGETS ${WF_LIBRARIES} EXPORT widefield
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(WF_HAVE_COMMAND)
    install(TARGETS widefield RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/include/widefield.h)
    install(FILES ${PROJECT_SOURCE_DIR}/include/widefield.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/widefield)
install(EXPORT widefield NAMESPACE widefield:: FILE widefield-targets.cmake DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/widefield-config.cmake.in
    ${PROJECT_BINARY_DIR}/generated/widefield-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/widefield-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/widefield-config.cmake
              ${PROJECT_BINARY_DIR}/generated/widefield-config-version.cmake DESTINATION ${package})

# How to get from the .pc file to the prefix: lib/ and lib/x86_64-linux-gnu/ differ in depth.
file(RELATIVE_PATH WF_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" WF_PC_PREFIX "${WF_PC_PREFIX}")
list(JOIN WF_PC_REQUIRES " " WF_PC_REQUIRES_LINE)
configure_file(${PROJECT_SOURCE_DIR}/cmake/widefield.pc.in ${PROJECT_BINARY_DIR}/generated/widefield.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/widefield.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
