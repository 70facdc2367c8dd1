# Configures, builds and runs the consumer beside this file. WAY is
#   installed      against `cmake --install` of BUILD, which is told nothing but the prefix;
#   subdirectory   with SOURCE as a subdirectory;
#   other_torch    against the installed package, but a LibTorch of another version, which must be refused in words.
function(run)
  list(JOIN ARGN " " line)
  message("$ ${line}")
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(must_hold text what)
  if(NOT text MATCHES "${what}")
    message(FATAL_ERROR "expected \"${what}\" in:\n${text}")
  endif()
endfunction()

function(run_consumer)
  run(${CMAKE_COMMAND} --build "${WORK}/build" --config ${CONFIG} --parallel 2)
  find_program(consumer consumer PATHS "${WORK}/build" "${WORK}/build/${CONFIG}" NO_DEFAULT_PATH REQUIRED)
  execute_process(COMMAND "${consumer}" "${SOURCE}/tests/data/weights/traced.ts" OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
  message("${printed}")
  must_hold("${printed}" "4 tensors loaded, output \\[3, 5, 8\\]")
  must_hold("${printed}" "output \\[3, 2, 5, 4\\]")
endfunction()

function(install_attn)
  run(${CMAKE_COMMAND} --install "${BUILD}" --config ${CONFIG} --prefix "${WORK}/prefix")
endfunction()

# Private dependencies are nobody's business: neither the package nor the headers name them.
function(look_for_leaks)
  file(GLOB_RECURSE files "${WORK}/prefix/*.cmake" "${WORK}/prefix/include/*")
  foreach(file IN LISTS files)
    file(STRINGS "${file}" lines REGEX "nlohmann|zlib[.]h|fmt|CLI11|hwy|attn_formats|attn_golden|attn_bench|GTest|benchmark|${SOURCE}/(include|src|cmake)|${BUILD}/")
    if(lines)
      message(SEND_ERROR "a private dependency or a path of the build in ${file}:\n${lines}")
    endif()
  endforeach()
endfunction()

set(ENV{Torch_DIR})
set(ENV{CMAKE_PREFIX_PATH})
file(REMOVE_RECURSE "${WORK}")
set(configure ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/build" -G "${GENERATOR}" -D CMAKE_CXX_COMPILER=${COMPILER}
              -D CMAKE_BUILD_TYPE=${CONFIG} -D CMAKE_CXX_FLAGS_DEBUG=-O0)  # quick to compile

if(WAY STREQUAL "installed")
  install_attn()
  look_for_leaks()
  run(${configure} -D CMAKE_PREFIX_PATH=${WORK}/prefix)
  run_consumer()
  if(EXISTS "${WORK}/prefix/bin/attn")
    run("${WORK}/prefix/bin/attn" --version)
  endif()
elseif(WAY STREQUAL "subdirectory")
  run(${configure} -D ATTN_SOURCE=${SOURCE} -D Torch_DIR=${TORCH_DIR})
  run_consumer()
elseif(WAY STREQUAL "other_torch")
  install_attn()
  file(WRITE "${WORK}/torch/TorchConfig.cmake" "set(Torch_FOUND TRUE)\nset(TORCH_INSTALL_PREFIX /some/torch)\n")
  file(WRITE "${WORK}/torch/TorchConfigVersion.cmake" "set(PACKAGE_VERSION 1.0.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
  execute_process(COMMAND ${configure} -D CMAKE_PREFIX_PATH=${WORK}/prefix -D Torch_DIR=${WORK}/torch
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE printed)
  message("${printed}")
  if(failed EQUAL 0)
    message(FATAL_ERROR "a LibTorch of another version was accepted")
  endif()
  string(REGEX REPLACE "[ \n]+" " " printed "${printed}")
  must_hold("${printed}" "was built with LibTorch [0-9.]+, but LibTorch 1.0.0 was found in /some/torch")
endif()
