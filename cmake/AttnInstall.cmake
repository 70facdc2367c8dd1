# The installed package: library, headers, the attn command, and what find_package(attn CONFIG) reads.
include(CMakePackageConfigHelpers)

set(ATTN_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/attn")

# Installed binaries find libattn beside them and LibTorch where it was at build time.
file(RELATIVE_PATH ATTN_BIN_TO_LIB "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
function(attn_install target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/${ATTN_BIN_TO_LIB};$<TARGET_FILE_DIR:torch>")
  install(TARGETS ${target} ${ARGN})
endfunction()

attn_install(attn EXPORT attnTargets FILE_SET HEADERS)
if(ATTN_BUILD_CLI)
  attn_install(attn_cli)
endif()
install(EXPORT attnTargets NAMESPACE attn:: DESTINATION "${ATTN_PACKAGE_DIR}")

# A shared library brings zlib itself; who links a static one has to find it.
get_target_property(ATTN_TYPE attn TYPE)
if(ATTN_TYPE STREQUAL "STATIC_LIBRARY")
  set(ATTN_STATIC_DEPENDENCIES "include(CMakeFindDependencyMacro)\nfind_dependency(ZLIB)\n")
endif()
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/attnConfig.cmake.in" "${PROJECT_BINARY_DIR}/attnConfig.cmake"
  INSTALL_DESTINATION "${ATTN_PACKAGE_DIR}" NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/attnConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/attnConfig.cmake" "${PROJECT_BINARY_DIR}/attnConfigVersion.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/AttnFindTorch.cmake"
  DESTINATION "${ATTN_PACKAGE_DIR}")
