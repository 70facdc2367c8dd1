# Tests of the house itself: which part may include which, and whether others can build against it.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME layers COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/layers/check_layers.py")
  add_test(NAME layers_are_told_apart COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/layers/check_layers.py" --self-test)
  add_test(NAME readme COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/docs/check_readme.py")
  if(TARGET attn_cli)
    add_test(NAME cli COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/cli/check_cli.py" $<TARGET_FILE:attn_cli>
                              "${CMAKE_CURRENT_SOURCE_DIR}/golden")
  endif()
endif()

# package_*: a project of its own against the installed library, and with attn as a subdirectory.
if(ATTN_INSTALL AND NOT ATTN_SANITIZE)
  foreach(way installed subdirectory other_torch)
    add_test(NAME package_${way}
      COMMAND ${CMAKE_COMMAND} -D WAY=${way} -D SOURCE=${PROJECT_SOURCE_DIR} -D BUILD=${PROJECT_BINARY_DIR}
              -D CONFIG=$<CONFIG> -D GENERATOR=${CMAKE_GENERATOR} -D COMPILER=${CMAKE_CXX_COMPILER} -D TORCH_DIR=${Torch_DIR}
              -D WORK=${CMAKE_CURRENT_BINARY_DIR}/package_${way} -P "${CMAKE_CURRENT_SOURCE_DIR}/package/run.cmake")
    set_tests_properties(package_${way} PROPERTIES TIMEOUT 1200)
  endforeach()
  set_tests_properties(package_subdirectory PROPERTIES COST 1000)  # compiles the library again: begin with it
endif()
