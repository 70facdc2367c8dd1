# Finds nlohmann-json and zlib, which the parsers of file formats need.

# nlohmann-json parses what weight files hold of JSON, inside the library; no installed file speaks of it.
find_package(nlohmann_json QUIET)
if(NOT nlohmann_json_FOUND)
  message(FATAL_ERROR "attn needs nlohmann-json: install it (Debian: apt install nlohmann-json3-dev) or set nlohmann_json_DIR.")
endif()

# zlib inflates records of zip archives and checks them; only who links a static attn meets it.
find_package(ZLIB QUIET GLOBAL)
if(NOT ZLIB_FOUND)
  message(FATAL_ERROR "attn needs zlib: install it (Debian: apt install zlib1g-dev) or set ZLIB_ROOT.")
endif()
