# attn_find_torch(arguments of find_package ...): find_package(Torch), which tells of errors alone. TorchConfig.cmake warns
# in every Python wheel that the static kineto library is missing; nothing of LibTorch's interface needs it.
macro(attn_find_torch)
  if(DEFINED CMAKE_MESSAGE_LOG_LEVEL)
    set(_attn_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
  endif()
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch QUIET ${ARGN})
  unset(CMAKE_MESSAGE_LOG_LEVEL)
  if(DEFINED _attn_log_level)
    set(CMAKE_MESSAGE_LOG_LEVEL "${_attn_log_level}")
    unset(_attn_log_level)
  endif()
endmacro()
