# shellcheck shell=bash
# Sets up what the scripts need: Debian packages, LibTorch, Python packages. Sourced; sets the folder and $python.
# `setup` may be run again at any time: it then finds everything in place.

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
. scripts/lib/ui.sh

torch_wanted=2.13.0  # installed into .venv where there is no LibTorch yet
cmake_wanted=3.25
python=$PWD/.venv/bin/python

# ---- Debian packages ------------------------------------------------------------------------------------------------

cmake_is_new_enough() {
  command -v cmake >/dev/null &&
    printf '%s\n' "$cmake_wanted" "$(cmake --version | sed -n '1s/.* //p')" | sort -V -C
}

# Prints the newest clang++ that has libFuzzer; fails where there is none.
find_fuzzing_clang() {
  local clang
  for clang in $(compgen -c clang++ | grep -xE 'clang\+\+(-[0-9]+)?' | sort -Vru); do
    if compgen -G "$("$clang" -print-resource-dir)/lib/*/libclang_rt.fuzzer*" >/dev/null; then
      say "$clang"
      return
    fi
  done
  return 1
}

# missing_packages [COMMAND...]: the Debian packages that are not there: the one list of them. Arguments are commands
# wanted besides, from packages of the same name; clang++ stands for one with libFuzzer. The compiler itself tells which headers it finds.
missing_packages() {
  local command prefix include=()
  for command in "$@"; do
    case $command in
      clang++) find_fuzzing_clang >/dev/null || say clang libclang-rt-dev ;;
      *) command -v "$command" >/dev/null || say "$command" ;;
    esac
  done
  cmake_is_new_enough || [ -x .venv/bin/cmake ] || say cmake
  command -v ninja >/dev/null || say ninja-build
  command -v python3 >/dev/null || say python3
  [ -x "$python" ] || python3 -c 'import ensurepip' 2>/dev/null || say python3-venv
  command -v c++ >/dev/null || { say g++ nlohmann-json3-dev zlib1g-dev libhwy-dev libcli11-dev libfmt-dev libgtest-dev libbenchmark-dev; return; }
  for prefix in "${prefixes[@]}"; do include+=(-I "$prefix/include"); done
  c++ -E -P -x c++ "${include[@]}" - <<'HEADERS'
#if !__has_include(<nlohmann/json.hpp>)
nlohmann-json3-dev
#endif
#if !__has_include(<zlib.h>)
zlib1g-dev
#endif
#if !__has_include(<hwy/highway.h>)
libhwy-dev
#endif
#if !__has_include(<CLI/CLI.hpp>)
libcli11-dev
#endif
#if !__has_include(<fmt/format.h>)
libfmt-dev
#endif
#if !__has_include(<gtest/gtest.h>)
libgtest-dev
#endif
#if !__has_include(<benchmark/benchmark.h>)
libbenchmark-dev
#endif
HEADERS
}

apt_install() {
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@")
  "${install[@]}" || { "${as_root[@]}" apt-get update && "${install[@]}"; }
}

install_packages() {
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@" | tr -s ' ' '\n' | sed '/^$/d')
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
    die "packages are missing that only root can install: ${missing[*]} (Debian: sudo apt-get install ${missing[*]})"
  fi
  quietly "Installing ${missing[*]}" apt_install "${missing[@]}"
}

# ---- LibTorch and Python --------------------------------------------------------------------------------------------

IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"

# Prints the folder with TorchConfig.cmake, in the order that CMakeLists.txt has: Torch_DIR or CMAKE_PREFIX_PATH, the torch
# of python3, the torch of .venv. Fails where there is none.
find_torch() {
  local prefix folder
  local folders=("${Torch_DIR:-}")
  for prefix in "${prefixes[@]}"; do folders+=("$prefix"/{share/cmake/Torch,Torch,lib/cmake/Torch}); done
  for folder in "${folders[@]}"; do
    if [ -f "$folder/TorchConfig.cmake" ]; then
      say "$folder"
      return
    fi
  done
  python3 scripts/lib/find_torch.py || { [ -x "$python" ] && "$python" scripts/lib/find_torch.py; }
}

torch_version() { sed -n 's/^set(PACKAGE_VERSION "\(.*\)")$/\1/p' "$1/TorchConfigVersion.cmake"; }

# PyTorch for the CPU: from the indices that pip is set up with, else from PyTorch's own, else whatever PyPI has.
pip_install_torch() {
  "$python" -m pip install "torch==$1+cpu" ||
    "$python" -m pip install "torch==$1" --index-url https://download.pytorch.org/whl/cpu --retries 1 ||
    "$python" -m pip install "torch==$1"
}

# Lets .venv import the torch that the LibTorch in $1 belongs to, if it belongs to one that this Python can load.
borrow_torch() {
  local link
  link=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/attn_torch.pth
  (cd "$1/../../../.." && pwd) >"$link"
  "$python" -c 'import torch' 2>/dev/null || rm "$link"
}

# What .venv was made for; written when it is complete, so that the next run need not look into it.
venv_note() {
  say "LibTorch: $1"
  cat scripts/lib/requirements.txt
}

# Makes .venv with the Python packages and with torch: the one of the LibTorch that was found, where Python can import it,
# else one of its own, of the same version. Sets Torch_DIR.
setup_python() {
  local note=.venv/attn-setup.txt
  Torch_DIR=$(find_torch) || Torch_DIR=
  if [ -x "$python" ] && venv_note "$Torch_DIR" | cmp -s - "$note"; then return; fi

  if [ -f "$note" ] || ! "$python" -m pip --version >/dev/null 2>&1; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "Python 3.10 or newer is needed, found $(python3 --version)"
    quietly "Making .venv" python3 -m venv --clear .venv
    [ -n "$Torch_DIR" ] && [ ! -d "$Torch_DIR" ] && Torch_DIR=  # it was in the .venv that is gone
  fi
  case $Torch_DIR in
    '' | "$PWD/.venv/"*) ;;
    *) borrow_torch "$Torch_DIR" ;;
  esac
  if ! "$python" -c 'import torch' 2>/dev/null; then
    local version=$torch_wanted
    [ -z "$Torch_DIR" ] || version=$(torch_version "$Torch_DIR")
    quietly "Installing PyTorch $version (CPU, 200 MB) into .venv" pip_install_torch "$version"
  fi
  quietly "Installing the Python packages into .venv" "$python" -m pip install -r scripts/lib/requirements.txt
  Torch_DIR=$(find_torch)
  venv_note "$Torch_DIR" >"$note"
}

# ---- What the scripts call ------------------------------------------------------------------------------------------

# setup [COMMAND...]: everything above.
setup() {
  step "Set-up"
  install_packages "$@"
  setup_python
  if ! cmake_is_new_enough; then  # an older distribution
    [ -x .venv/bin/cmake ] || quietly "Installing CMake into .venv" "$python" -m pip install "cmake>=$cmake_wanted"
    PATH=$PWD/.venv/bin:$PATH
  fi
  say "    LibTorch $(torch_version "$Torch_DIR") in ${Torch_DIR%/share/cmake/Torch}"
}

# configure PRESET [-D...]: with the LibTorch and the Python found above.
configure() {
  quietly "Configuring, preset $1" cmake --preset "$1" -D Torch_DIR="$Torch_DIR" -D ATTN_PYTHON="$python" "${@:2}"
}
