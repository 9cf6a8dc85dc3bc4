# `cmake --install` gives the program, the library and its headers; find_package(trireme) then gives trireme::trireme.
# The library's own dependencies are linked into it, so its users need none of them to compile.
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
set_target_properties(trireme PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS trireme_shared EXPORT trireme LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
        PATTERN "*.h" PATTERN "*.def")
install(EXPORT trireme NAMESPACE trireme:: FILE trireme-targets.cmake DESTINATION ${package})

# While 0.x: source compatibility within a minor version.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/trireme-config-version.cmake COMPATIBILITY SameMinorVersion)
file(WRITE ${PROJECT_BINARY_DIR}/trireme-config.cmake
     "include(\${CMAKE_CURRENT_LIST_DIR}/trireme-targets.cmake)\n")
install(FILES ${PROJECT_BINARY_DIR}/trireme-config.cmake ${PROJECT_BINARY_DIR}/trireme-config-version.cmake
        DESTINATION ${package})

# For builds without CMake. The prefix follows from where the file lies, so that an installed tree can be moved.
file(RELATIVE_PATH trireme_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/trireme.pc.in ${PROJECT_BINARY_DIR}/trireme.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The library for further instruction sets.
foreach(level ${TRIREME_LEVELS})
  install(TARGETS trireme_shared_${level}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/glibc-hwcaps/${level} NAMELINK_SKIP)
endforeach()
