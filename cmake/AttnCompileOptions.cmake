# attn_compile_options(target): the language, warnings and sanitizers of the project, private to the target.
function(attn_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  # -fPIC for executables too: all targets share one precompiled header, which needs the same code model everywhere.
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE
    -fPIC -Wall -Wextra -Wpedantic -Wnon-virtual-dtor $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> $<$<BOOL:${ATTN_WERROR}>:-Werror>
    # GCC 12 sees overflows in the std::string operator+ of optimised code where there are none.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-stringop-overflow>)
  if(ATTN_SANITIZE)
    list(JOIN ATTN_SANITIZE "," sanitizers)
    target_compile_options(${target} PRIVATE -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${sanitizers})
  endif()
endfunction()

# LibTorch's headers take most of the compile time. They are precompiled once, for the library, and every other target that
# includes them joins with attn_reuse_torch_headers(target).
set(ATTN_TORCH_HEADERS
    <torch/nn/cloneable.h> <torch/nn/modules/dropout.h> <torch/nn/modules/linear.h> <torch/nn/pimpl.h>)

function(attn_reuse_torch_headers target)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM attn)
  endif()
endfunction()
