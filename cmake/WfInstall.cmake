# cmake --install BUILD --prefix PREFIX: library, header, command with manual page and completions,
# pkg-config and CMake files.
include(CMakePackageConfigHelpers)
if(WF_PYTHON)   # one file under its soname: a wheel has no links
    install(FILES $<TARGET_FILE:libwidefield_shared> DESTINATION widefield/lib COMPONENT python
            RENAME libwidefield.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    if(WF_HAVE_MPI)
        install(FILES $<TARGET_FILE:libwidefield_mpi> DESTINATION widefield/lib COMPONENT python)
    endif()
endif()
install(TARGETS ${WF_LIBRARIES} EXPORT widefield
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(WF_HAVE_MPI)   # where mpi_open.c looks
    install(TARGETS libwidefield_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(WF_HAVE_COMMAND)
    install(TARGETS widefield RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    # Made by the command itself and kept in the repository: scripts/lint-docs.
    set(share ${PROJECT_SOURCE_DIR}/share)
    install(FILES ${share}/man/widefield.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${share}/completions/widefield.bash RENAME widefield
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${share}/completions/_widefield DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${share}/completions/widefield.fish
            DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    install(DIRECTORY ${share}/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/widefield)
    install(FILES ${share}/demo.yaml ${share}/nuclei.yaml ${share}/shapes.yaml ${share}/cifar10.yaml
            DESTINATION ${CMAKE_INSTALL_DATADIR}/widefield)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR})   # scripts/api-docs
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/widefield
        FILES_MATCHING PATTERN "*.h")

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
