#!/usr/bin/env python3
"""What comparing two tensors costs: all layers of ops-debug beside a loop that only reads them, and beside NumPy, in one run.

    scripts/bench_compare.py [--mib 1024] [--folder DIR]

Two float32 tensors of so many MiB lie in mapped files (page cache). The same file-backed memory is read by every way:

  read only        all threads sum the words of both tensors: the machine's single-pass read bandwidth
  one pass         Compare(): whole, worst, histograms, heat map, channels, grid, verdict
  all layers       the same with ranking, low-rank decomposition and pattern hints
  NumPy            L2, max-abs and max-rel of the difference, on the same files (memory-mapped)

The ways take turns, eleven rounds: the share is the median over rounds of the read loop's time over the way's, times are the best
(NumPy: of three runs behind that). "wrong": every element fails; "right": all pass. Ends with 1 if a goal is missed: all
layers at 50 % of the read bandwidth or more, five times NumPy or more, at most 64 MiB of memory beyond the inputs, for tensors that
pass; and if NumPy gets other numbers. Needs build/test/benchmark_compare and NumPy.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))
LEAST_SHARE, LEAST_FACTOR, MOST_MIB = 0.5, 5.0, 64


def with_numpy(folder: pathlib.Path) -> tuple[float, float, float, float]:
    """Seconds, L2, max-abs, max-rel. The L2 is computed again, untimed: NumPy's norm of float32 adds up in float32."""
    import numpy

    candidate, reference = (numpy.memmap(folder / f"{name}.f32", numpy.float32, "r") for name in ("candidate", "reference"))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        difference = numpy.abs(candidate - reference)
        numpy.linalg.norm(difference)
        max_abs = difference.max()
        with numpy.errstate(divide="ignore", invalid="ignore"):
            max_rel = numpy.nanmax(numpy.where(reference != 0, difference / numpy.abs(reference), 0))
        best = min(best, time.perf_counter() - start)
    l2 = numpy.sqrt(numpy.square(difference, dtype=numpy.float64).sum())
    return best, float(l2), float(max_abs), float(max_rel)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--folder", type=pathlib.Path, help="for the two files; unset: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = pathlib.Path(temporary)
        ran = subprocess.run([str(BUILD / "test/benchmark_compare"), str(folder), str(arguments.mib)], capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"benchmark_compare: exit code {ran.returncode}: {ran.stderr}")
        ours = json.loads(ran.stdout)
        numpy_s, l2, max_abs, max_rel = with_numpy(folder)
    gigabytes = 2 * ours["bytes"] / 1e9
    print(f"two float32 tensors [{ours['side']}, {ours['side']}], {gigabytes:.2f} GB together, {ours['threads']} threads; best times\n")
    print("| way | tensors | seconds | GB/s | share of reading | MiB beyond the inputs |\n| --- | --- | --- | --- | --- | --- |")
    for name in ("right", "wrong"):
        found = ours[name]
        for way, key in (("read only", "read"), ("one pass", "pass"), ("all layers", "all")):
            beyond = f"{found['beyond_mib']:.0f}" if way == "all layers" else ""
            seconds, of_reading = found[f"{key}_s"], found.get(f"{key}_share", 1)
            print(f"| {way} | {name} | {seconds:.3f} | {gigabytes / seconds:.2f} | {100 * of_reading:.0f} % | {beyond} |")
    print(f"| NumPy: L2, max-abs, max-rel | right | {numpy_s:.3f} | {gigabytes / numpy_s:.2f} | {100 * ours['right']['read_s'] / numpy_s:.0f} % | |\n")
    right, problems = ours["right"], []
    share, factor = right["all_share"], numpy_s / right["all_s"]
    if share < LEAST_SHARE:
        problems.append(f"{100 * share:.0f} % of the read bandwidth is below the goal of {100 * LEAST_SHARE:.0f} %")
    if factor < LEAST_FACTOR:
        problems.append(f"{factor:.1f} times NumPy is below the goal of {LEAST_FACTOR}")
    if max(ours[name]["beyond_mib"] for name in ("right", "wrong")) > MOST_MIB:
        problems.append(f"more than {MOST_MIB} MiB beyond the inputs")
    # NumPy's quotient is in float32.
    for name, mine, theirs, tolerance in (("L2", right["l2"], l2, 1e-9), ("max-abs", right["max_abs"], max_abs, 1e-6),
                                          ("max-rel", right["max_rel"], max_rel, 1e-5)):
        if abs(mine - theirs) > tolerance * abs(theirs):
            problems.append(f"{name}: {mine}, NumPy {theirs}")
    print("\n".join(problems) or f"Goals met: {100 * share:.0f} % of the read bandwidth, {factor:.1f} times NumPy, same numbers.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
