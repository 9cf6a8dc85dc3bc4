# The manual page and completions, written by the program itself; and packages: `cpack --preset deb` after a build of the
# preset `package`.
set(share ${PROJECT_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${share})
add_custom_command(
  OUTPUT ${share}/trireme.1 ${share}/trireme.bash ${share}/_trireme ${share}/trireme.fish
  COMMAND trireme man > ${share}/trireme.1
  COMMAND trireme completion bash > ${share}/trireme.bash
  COMMAND trireme completion zsh > ${share}/_trireme
  COMMAND trireme completion fish > ${share}/trireme.fish
  DEPENDS trireme trireme_shared
  VERBATIM)
add_custom_target(trireme_share ALL DEPENDS ${share}/trireme.1)
install(FILES ${share}/trireme.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
install(FILES ${share}/trireme.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trireme OPTIONAL)
install(FILES ${share}/_trireme DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions OPTIONAL)
install(FILES ${share}/trireme.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trireme)
set(CPACK_PACKAGE_VENDOR trireme)
set(CPACK_PACKAGE_CONTACT "The Trireme authors <trireme@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src/trireme)
# mpirun, and the text that the quickstart trains on: the C++ library's headers.
string(REGEX MATCH "^[0-9]+" major ${CMAKE_CXX_COMPILER_VERSION})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, libstdc++-${major}-dev | libstdc++-dev")
include(CPack)
