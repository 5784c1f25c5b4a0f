#!/usr/bin/env bash
# Installs what the build needs and is not there yet: Debian packages and a CUDA toolkit. Silent when nothing is missing.
#
#   scripts/setup.sh          what the tool itself needs
#   scripts/setup.sh --tests  and what scripts/test.sh needs
#   scripts/setup.sh --fuzz   and what the fuzz preset needs
#   scripts/setup.sh --frameworks   and what PyTorch and Triton need to run in a Python of their own
#   scripts/setup.sh --browser   and Chromium, for the tests that open HTML reports (80 MB to fetch; skipped without)
#
# OPS_DEBUG_TOOLKIT=pypi     take the toolkit from PyPI even if one is installed
# OPS_DEBUG_PYTHON=PATH      the Python whose pip fetches it (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build ccache pkg-config python3
  libboost-dev libboost-program-options-dev libprotobuf-dev protobuf-compiler libprotozero-dev libabsl-dev
  libzstd-dev liblz4-dev nlohmann-json3-dev libyaml-cpp-dev libxxhash-dev
  libeigen3-dev # dense linear algebra of comparisons and references
  libjs-chart.js # inlined into HTML reports
  libdw-dev libelf-dev liblzma-dev libbz2-dev zlib1g-dev # stack symbols; the last four because libdw is linked statically
)
for option in "$@"; do
  case $option in
    --tests) packages+=(catch2 python3-pytest python3-numpy clang-format clang-tidy git xz-utils) ;;
    --fuzz) packages+=(clang libclang-rt-14-dev) ;;
    --frameworks) packages+=(python3-venv python3-dev) ;;
    --browser) packages+=(chromium) ;;
    *)
      echo "setup.sh: unknown option '$option' (known: --tests, --fuzz, --frameworks, --browser)" >&2
      exit 2
      ;;
  esac
done

# The toolkit's parts as PyPI packages, all of CUDA 13.0.
toolkit_packages=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cuda-cupti==13.0.85 nvidia-nvtx==13.0.85 nvidia-cuda-nvrtc==13.0.88
  nvidia-nvjitlink==13.0.88 nvidia-cuda-sanitizer-api==13.0.85 nvidia-nvml-dev==13.0.87 nvidia-cuda-profiler-api==13.0.85
)

mkdir -p build
exec 9>build/.setup-lock
flock 9

say() { echo "ops-debug set-up: $*" >&2; }
fail() {
  say "$1"
  shift
  printf '  %s\n' "$@" >&2
  exit 3
}
# Runs a command quietly; shows the end of its output if it fails.
quietly() {
  local log=build/setup.log
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    return 1
  fi
}

install_debian_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    # Not a Debian: trust the machine's owner, and let CMake say what it does not find.
    command -v cmake >/dev/null && command -v ninja >/dev/null && return 0
    fail "this machine has no dpkg, so packages cannot be installed here." \
      "Install the equivalents of: ${packages[*]}"
  fi
  local installed
  # A package that dpkg has merely heard of has the status "not-installed".
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    [[ $'\n'$installed$'\n' == *$'\n'"installed $package"$'\n'* ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "packages are missing, and installing them needs root or sudo." \
      "As root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install)
  if ! quietly "${apt[@]}" "${missing[@]}" 2>/dev/null; then
    quietly "${as_root[@]}" apt-get -q update || fail "apt-get update failed (see above)." "Is the network there?"
    quietly "${apt[@]}" "${missing[@]}" || fail "apt-get could not install all packages (see above)." \
      "Try by hand: apt-get install ${missing[*]}"
  fi
}

# The same search as third_party/FindOpsDebugCuda.cmake.
is_toolkit() {
  [[ -n $1 && -x $1/bin/nvcc && -f $1/include/cuda.h ]] || return 1
  local line
  line=$(grep -m 1 '^#define CUDA_VERSION ' "$1/include/cuda.h") && ((${line##* } >= 13000))
}

have_toolkit() {
  if [[ ${OPS_DEBUG_TOOLKIT:-} != pypi ]]; then
    is_toolkit "${CUDA_HOME:-}" || is_toolkit "${CUDA_PATH:-}" || is_toolkit /usr/local/cuda && return 0
    if command -v nvcc >/dev/null; then
      is_toolkit "$(nvcc --dryrun -ptx -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')" && return 0
    fi
  fi
  is_toolkit build/toolkit && [[ $(cat build/toolkit/packages 2>/dev/null) == "${toolkit_packages[*]}" ]]
}

# The wheels unpack to nvidia/cu13/{bin,include,lib,nvvm}: a toolkit but for lib64 and the link names of its libraries.
install_toolkit() {
  local python=${OPS_DEBUG_PYTHON:-python3}
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    packages=(python3-pip)
    install_debian_packages
    python=/usr/bin/python3
  fi
  say "no CUDA toolkit (13.0 or later) found: fetching CUDA 13.0 from PyPI into build/toolkit"
  rm -rf build/toolkit build/toolkit.partial
  quietly "$python" -m pip install --no-deps --no-compile --no-input --disable-pip-version-check \
    --root-user-action=ignore --target build/toolkit.partial "${toolkit_packages[@]}" ||
    fail "pip could not fetch the CUDA toolkit (see above)." \
      "Install a CUDA toolkit yourself and set CUDA_HOME, or make PyPI reachable."
  local root=build/toolkit.partial/nvidia/cu13 library link
  [[ -x $root/bin/nvcc ]] || fail "the toolkit's packages did not bring bin/nvcc." "Set CUDA_HOME to an installed toolkit."
  ln -s lib "$root/lib64"
  for library in "$root"/lib/*.so.*; do
    link=${library%%.so.*}.so
    [[ -e $link ]] || ln -s "$(basename "$library")" "$link"
  done
  echo "${toolkit_packages[*]}" >"$root/packages"
  mv "$root" build/toolkit
  rm -rf build/toolkit.partial
}

# The headers and the library of NVIDIA's Sanitizer API, which toolkits put together from packages may lack. Without them
# kernels that have no PTX go unchecked, so a failure is worth a line and no more.
have_sanitizer() {
  local home
  for home in "${OPS_DEBUG_CUDA_HOME:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    is_toolkit "$home" || continue
    [[ -f $home/compute-sanitizer/include/sanitizer_patching.h || -f $home/include/sanitizer_patching.h ]] && return 0
  done
  [[ -f build/toolkit/include/sanitizer_patching.h || -f build/sanitizer/include/sanitizer_patching.h ]]
}

install_sanitizer() {
  local python=${OPS_DEBUG_PYTHON:-python3} package
  for package in "${toolkit_packages[@]}"; do
    [[ $package == nvidia-cuda-sanitizer-api==* ]] && break
  done
  rm -rf build/sanitizer.partial
  if "$python" -m pip install --no-deps --no-compile --no-input --disable-pip-version-check --root-user-action=ignore \
    --target build/sanitizer.partial "$package" >build/setup.log 2>&1 </dev/null; then
    rm -rf build/sanitizer
    mv build/sanitizer.partial/nvidia/cu13 build/sanitizer
  else
    say "the toolkit has no compute-sanitizer and $package cannot be fetched: kernels without PTX will not be checked"
  fi
  rm -rf build/sanitizer.partial
}

install_debian_packages
have_toolkit || install_toolkit
have_sanitizer || install_sanitizer
