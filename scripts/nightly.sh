#!/usr/bin/env bash
# The long tests: all files linted, the long forms of the tests (thousands of schedules), whole kernels under chosen
# schedules, the speed of the CPU device, a sanitizer build, fuzzers.
#
#   scripts/nightly.sh [SECONDS_PER_FUZZER]   (default 300; 1800 for the half hour that a release gets)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-300}

scripts/setup.sh --tests --fuzz --frameworks --browser
scripts/build.sh --all

echo "== every file through clang-tidy"
python3 scripts/check_lint.py --all

echo "== PyTorch and Triton, for the tests that use them without a GPU"
if [[ ! -x build/frameworks/bin/python ]]; then
  /usr/bin/python3 -m venv build/frameworks
  build/frameworks/bin/python -m pip install --quiet torch==2.11.0 numpy
fi

echo "== tests that the test command leaves out (OPS_DEBUG_NIGHTLY=1), with a browser"
OPS_DEBUG_NIGHTLY=1 OPS_DEBUG_NEEDS_BROWSER=1 ctest --test-dir build --parallel 2 --timeout 3600 --output-on-failure --no-tests=error

echo "== whole kernels under 25 schedules each"
python3 test/whole_kernels/run.py --emulator build/emulator --programs build/test/whole_kernels/programs --schedules 25

echo "== speed of the CPU device"
scripts/bench_emulator.py

echo "== address and undefined-behaviour sanitizers"
cmake --preset asan >build/asan.log
cmake --build --preset asan >>build/asan.log || { tail -n 60 build/asan.log; exit 3; }
# Tests that preload the interposer, into any program, stay with the release build.
ctest --test-dir build-asan --parallel 2 --timeout 3600 --output-on-failure --no-tests=error \
  --label-exclude 'preload|sources'
# The CPU device as programs load it: the sanitizer's run-time has to come first there. (Its leak check would see Python's.)
LD_PRELOAD=$(g++ -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:handle_segv=0 \
  ctest --test-dir build-asan --parallel 2 --timeout 3600 --output-on-failure --no-tests=error \
  -R '^(golden_|whole_kernels_|emulator_program_test)'

echo "== fuzzers, $seconds s each"
cmake --preset fuzz >build/fuzz.log
# Only the fuzzers and what they link: the preset instruments every library.
mapfile -t fuzzers < <(ninja -C build-fuzz -t targets all | sed -n 's/^\(fuzz_[a-z0-9_]*\): .*/\1/p' | sort -u)
((${#fuzzers[@]})) || { echo "nightly.sh: no target fuzz_* in build-fuzz" >&2; exit 3; }
cmake --build --preset fuzz --target "${fuzzers[@]}" >>build/fuzz.log || { tail -n 60 build/fuzz.log; exit 3; }
for fuzzer in "${fuzzers[@]}"; do
  corpus=build-fuzz/corpus/$fuzzer
  mkdir -p "$corpus"
  echo "-- $fuzzer"
  # Real modules are the seeds. Kernels that print must not drown the fuzzer's own lines. Weighing inputs by entropy costs
  # more than running them here.
  "build-fuzz/$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -close_fd_mask=1 -max_len=16384 -entropic=0 \
    -artifact_prefix="$corpus-" "$corpus" test/ptx/data
done
