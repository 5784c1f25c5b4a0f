#!/usr/bin/env bash
# Copies what runs into one folder, stripped, to carry to a machine with a GPU and without our build tools.
#
#   scripts/pack.sh FOLDER            the tool: FOLDER/ops-debug runs in place
#   scripts/pack.sh FOLDER --tests    and what test/gpu/run_tests.py needs; there set
#                                     OPS_DEBUG_BUILD=FOLDER LD_LIBRARY_PATH=FOLDER/test/lib
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${OPS_DEBUG_BUILD:-$root/build}
if (($# < 1 || $# > 2)) || [[ ${2:---tests} != --tests ]]; then
  echo "usage: scripts/pack.sh FOLDER [--tests]" >&2
  exit 2
fi
folder=$1
[[ -x $build/ops-debug ]] || {
  echo "pack.sh: $build holds no ops-debug; build it: scripts/build.sh --all" >&2
  exit 3
}
[[ ! -e $folder || -f $folder/.packed ]] || {
  echo "pack.sh: $folder is there and was not made by pack.sh; name another folder" >&2
  exit 2
}
rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/emulator"
touch "$folder/.packed"

copy() { # FROM TO-FOLDER: what links point to, stripped if it is a program or a library
  cp -rL --no-preserve=mode,ownership "$1" "$2/"
  local file=$2/${1##*/}
  if [[ -f $file ]] && [[ $(head -c 4 "$file") == $'\x7fELF' ]]; then
    strip "$file"
    chmod +x "$file"
  fi
}
for name in ops-debug ops-debug-analyzer ops-debug-runner ops-debug-replayer ops-debug-compare ops-debug-reference python suppressions.yaml; do
  copy "$build/$name" "$folder"
done
for library in "$build"/lib/*.so; do copy "$library" "$folder/lib"; done
for library in "$build"/emulator/*.so*; do copy "$library" "$folder/emulator"; done

if [[ ${2:-} == --tests ]]; then
  mkdir -p "$folder/test/programs" "$folder/test/lib"
  for program in "$build"/test/programs/*; do copy "$program" "$folder/test/programs"; done
  copy "$build/test/instrument_file" "$folder/test"
  # Libraries that only a machine with the build's packages has.
  { ldd "$build"/test/programs/* 2>/dev/null || true; } |
    sed -n 's/.* => \(\/.*lib\(protobuf\|absl\)[^ ]*\) .*/\1/p' | sort -u |
    while read -r library; do copy "$library" "$folder/test/lib"; done
fi
du -sh "$folder" | cut -f 1
