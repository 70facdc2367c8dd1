# Tests against eager Python: those of tests/python, a trained model, and the live test, which compares bits on this machine.
if(ATTN_PYTHON)
  set(python "${ATTN_PYTHON}")
elseif(EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(python "${PROJECT_SOURCE_DIR}/.venv/bin/python")
else()
  set(python python3)
endif()

execute_process(COMMAND ${python} -c "import numpy, safetensors" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
execute_process(COMMAND ${python} "${PROJECT_SOURCE_DIR}/scripts/lib/find_torch.py" RESULT_VARIABLE no_torch
                OUTPUT_VARIABLE python_torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT failed EQUAL 0 OR NOT no_torch EQUAL 0)
  message(STATUS "attn: the tests against Python are left out: ${python} lacks torch, numpy or safetensors (./scripts/test sets up .venv)")
  return()
endif()

# What the tests of weight files run.
add_executable(attn_judge_safetensors python/judge_safetensors.cpp)
target_link_libraries(attn_judge_safetensors PRIVATE attn_formats nlohmann_json::nlohmann_json)
attn_compile_options(attn_judge_safetensors)
set(python_environment "ATTN_JUDGE=$<TARGET_FILE:attn_judge_safetensors>")
if(TARGET attn_cli)
  list(APPEND python_environment "ATTN_COMMAND=$<TARGET_FILE:attn_cli>")
endif()

file(GLOB python_tests CONFIGURE_DEPENDS "python/test_*.py")
foreach(file IN LISTS python_tests)
  get_filename_component(name "${file}" NAME_WE)
  add_test(NAME ${name} COMMAND ${python} "${file}")
  set_tests_properties(${name} PROPERTIES TIMEOUT 1200 ENVIRONMENT "${python_environment}")
endforeach()

if(NOT TARGET attn_cli)
  return()
endif()
# A trained model from Python to C++: skipped where the checkpoint is absent (ATTN_SHARED).
add_test(NAME real_weights COMMAND ${python} "${CMAKE_CURRENT_SOURCE_DIR}/python/export_real_weights.py"
                                   "${CMAKE_CURRENT_BINARY_DIR}/real_weights" --check $<TARGET_FILE:attn_cli>)
set_tests_properties(real_weights PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
list(APPEND instrumented real_weights)

file(REAL_PATH "${Torch_DIR}" built_with)
file(REAL_PATH "${python_torch_dir}" python_has)
if(NOT built_with STREQUAL python_has)
  message(STATUS "attn: the live test is left out: bits can only be compared where ${python} loads the LibTorch of this build")
  return()
endif()
set(live "${CMAKE_CURRENT_BINARY_DIR}/live")
add_test(NAME live_export COMMAND ${python} "${PROJECT_SOURCE_DIR}/scripts/export_golden.py" --count ${ATTN_LIVE_CASES}
                                                                                             --live "${live}" --init "${live}")
add_test(NAME live COMMAND attn_cli check "${live}" --exact --quiet)
set_tests_properties(live_export PROPERTIES FIXTURES_SETUP live TIMEOUT 1200)
set_tests_properties(live PROPERTIES FIXTURES_REQUIRED live TIMEOUT 1200)
list(APPEND instrumented live)
