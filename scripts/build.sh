#!/usr/bin/env bash
# Builds into build/; run scripts/setup.sh first. Silent on success, unless there is much to do.
#
#   scripts/build.sh        the tool: what build/ops-debug needs at run time
#   scripts/build.sh --all  and the tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Everything that a user's run touches, as files of the build tree.
targets=(
  ops-debug ops-debug-analyzer ops-debug-runner ops-debug-replayer ops-debug-compare ops-debug-reference
  ops_debug_python lib/libops_debug_interposer.so ops_debug_private_libraries
  emulator/libcuda.so.1 emulator/libcudart.so.12 emulator/libcudart.so.13
)
case ${1:-} in
  --all) targets=(all) ;;
  "") ;;
  *)
    echo "build.sh: unknown option '$1' (known: --all)" >&2
    exit 2
    ;;
esac

# Clones in other folders share what ccache has compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

mkdir -p build
exec 9>build/.build-lock
if ! flock -n 9; then
  echo "ops-debug: waiting for another build in this folder" >&2
  flock 9
fi
log=build/build.log

# Says something only if the build takes a while. `read` waits without a child that could outlive us.
exec {never}<> <(:)
(read -r -t 3 -u "$never" || echo "ops-debug: building, the first time takes minutes (log: $log)" >&2) 9>&- &
notice=$!
trap 'kill "$notice" 2>/dev/null || true' EXIT

# A configuration is stale when the preset or the choice of toolkit changed; ninja itself watches the CMake files.
choice="${CUDA_HOME:-} ${CUDA_PATH:-} ${OPS_DEBUG_TOOLKIT:-} $(cksum <CMakePresets.json)"
if [[ ! -f build/build.ninja || $(cat build/.configured 2>/dev/null) != "$choice" ]]; then
  rm -f build/.configured
  if ! cmake --preset release --fresh >"$log" 2>&1 9>&-; then
    tail -n 40 "$log" >&2
    echo "ops-debug: configuring failed; the whole log is $log" >&2
    exit 3
  fi
  echo "$choice" >build/.configured
fi

if ! ninja -C build "${targets[@]}" >"$log" 2>&1 9>&-; then
  grep -E -A 12 'FAILED|error' "$log" | head -n 80 >&2 || tail -n 40 "$log" >&2
  echo "ops-debug: the build failed; the whole log is $log" >&2
  exit 3
fi
