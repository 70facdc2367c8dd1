# Finds LibTorch and Highway, which every build of the library needs, and the packages of the optional parts.
include(AttnFindTorch)

# LibTorch, in this order: CMAKE_PREFIX_PATH or Torch_DIR; the `torch` of python3; the `torch` of .venv. Its targets are
# global, so that a parent project can link to attn::attn without looking for LibTorch itself.
attn_find_torch(GLOBAL)
foreach(_attn_python python3 "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  if(NOT Torch_FOUND)
    execute_process(
      COMMAND ${_attn_python} "${PROJECT_SOURCE_DIR}/scripts/lib/find_torch.py"
      OUTPUT_VARIABLE _attn_torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _attn_python_failed)
    if(_attn_python_failed EQUAL 0)
      attn_find_torch(GLOBAL PATHS "${_attn_torch_dir}" NO_DEFAULT_PATH)
    endif()
  endif()
endforeach()
if(NOT Torch_FOUND)
  message(FATAL_ERROR
    "attn needs LibTorch: set CMAKE_PREFIX_PATH or Torch_DIR to one, or install PyTorch for python3 or into .venv "
    "(pip install torch==2.13.0).")
endif()
message(STATUS "attn: LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}")

# LibTorch's threads are OpenMP's: its libgomp serves both.
find_package(OpenMP REQUIRED COMPONENTS CXX)

# Highway, headers only, for the kernel; likewise inside the library.
find_path(ATTN_HIGHWAY_INCLUDE_DIR hwy/highway.h)
mark_as_advanced(ATTN_HIGHWAY_INCLUDE_DIR)
if(NOT ATTN_HIGHWAY_INCLUDE_DIR)
  message(FATAL_ERROR "attn needs Highway: install it (Debian: apt install libhwy-dev) or set ATTN_HIGHWAY_INCLUDE_DIR.")
endif()

# attn_optional_part(option what [package debian_package]...): looks for the packages of an optional part. AUTO becomes ON
# or OFF; a part that was asked for by name must find its packages.
function(attn_optional_part option what)
  set(wanted "${${option}}")
  if(wanted STREQUAL "AUTO" AND NOT PROJECT_IS_TOP_LEVEL)
    set(wanted OFF)
  endif()
  set(found ${wanted})
  if(wanted)
    set(found ON)
    set(packages ${ARGN})
    while(packages)
      list(POP_FRONT packages package debian_package)
      find_package(${package} QUIET)
      if(NOT ${package}_FOUND)
        set(found OFF)
        list(APPEND missing ${package})
        list(APPEND to_install ${debian_package})
      endif()
    endwhile()
  endif()
  if(missing)
    list(JOIN missing ", " missing)
    list(JOIN to_install " " to_install)
    if(wanted STREQUAL "AUTO")
      message(STATUS "attn: ${what} left out, without ${missing} (Debian: apt install ${to_install})")
    else()
      message(FATAL_ERROR "attn: ${option} is ${wanted}, which needs ${missing}: install (Debian: apt install ${to_install}) "
                          "or set ${option}=OFF.")
    endif()
  endif()
  set(${option} ${found} PARENT_SCOPE)
endfunction()

attn_optional_part(ATTN_BUILD_CLI "the attn command is" CLI11 libcli11-dev fmt libfmt-dev)
attn_optional_part(ATTN_BUILD_TESTS "the tests are" GTest libgtest-dev)
attn_optional_part(ATTN_BUILD_BENCH "the benchmarks are" benchmark libbenchmark-dev)
