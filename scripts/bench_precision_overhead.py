#!/usr/bin/env python3
"""What the check of numbers (NaN, infinities, overflow, loss) costs on a GPU: eight kernels side by side in one run.

    scripts/bench_precision_overhead.py [--source overhead.cu] [--repetitions 5] [--output DIR]

  native           the program by itself
  checks off       under ops-debug run --check none
  null rewrite     under ops-debug, PTX parsed and printed, nothing added
  precision        --check precision
  memory too       --check memory,precision
  precision trace  --check precision with --precision-trace: every conversion and difference is measured

Prints Markdown tables: kernel-only (median event time), end-to-end (wall time), and what the checks hold of the device's memory at the
end. The program is overhead.cu with a checksum behind every kernel: every way must give native's, and report nothing. GOALS are
geometric means over native's times; the script ends with 1 if one is missed. Needs build/ops-debug, nvcc and an NVIDIA GPU.
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import bench_overhead as bench
from bench_sync_overhead import KERNELS, measure, program_text

GOALS = {"precision": 3.0}
LIMIT_S = 300


def ways_of(program: list[str], folder: pathlib.Path) -> dict[str, list[str]]:
    tool = [str(bench.BUILD / "ops-debug"), "run", "--device", "gpu", "--replay", "off"]
    return {"native": program,
            "checks off": [*tool, "--check", "none", "--", *program],
            "null rewrite": [*tool, "--check", "precision", "--rewrite", "null", "--", *program],
            "precision": [*tool, "--check", "precision", "--", *program],
            "memory too": [*tool, "--check", "memory,precision", "--", *program],
            "precision trace": [*tool, "--check", "precision", "--precision-trace", str(folder / "trace.json"), "--", *program]}


def print_tables(results: dict[str, dict], others: list[str]) -> dict[str, float]:
    native = results["native"]["kernels"]
    print("| kernel | native ms | " + " | ".join(others) + " |\n| --- | --- |" + " --- |" * len(others))
    for kernel in KERNELS:
        milliseconds = native[kernel][0]
        cells = [f"{results[way]['kernels'][kernel][0] / milliseconds:.2f}×" for way in others]
        print(f"| {kernel} | {milliseconds:.3f} | " + " | ".join(cells) + " |")
    means = {way: bench.geometric_mean([results[way]["kernels"][k][0] / native[k][0] for k in KERNELS]) for way in others}
    print("| geometric mean | | " + " | ".join(f"{means[way]:.2f}×" for way in others) + " |")
    idle = results["native"]["memory_mib"]
    memory = [results[way]["memory_mib"] for way in others]
    print("| device memory of the checks, MiB | | " + " | ".join("–" if m is None or idle is None else str(m - idle) for m in memory) + " |")
    print("| end-to-end, s | " + f"{results['native']['seconds']:.1f} | "
          + " | ".join(f"{results[way]['seconds']:.1f}" for way in others) + " |")
    return means


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=bench.ROOT.parent / "shared/kernels/overhead.cu")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--output", type=pathlib.Path, help="folder for raw outputs and results.json")
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    name, arch = bench.device()
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary) / "overhead_checked.cu"
        source.write_text(program_text(arguments.source))
        program = [str(bench.compile_cuda(nvcc, source, arch)), str(arguments.repetitions)]
        for way, command in ways_of(program, pathlib.Path(temporary)).items():
            results[way] = measure(command, LIMIT_S)
            # The tables come last; whoever is stopped before them keeps this.
            print(f"{way}: {results[way]['seconds']:.1f} s; " + ", ".join(f"{k} {ms}" for k, (ms, _) in results[way]["kernels"].items()),
                  file=sys.stderr, flush=True)
            if arguments.output:
                arguments.output.mkdir(parents=True, exist_ok=True)
                (arguments.output / f"{way.replace(' ', '_')}.txt").write_text(results[way]["output"])
            if len(results[way]["kernels"]) != len(KERNELS):
                print(f"{way}: {len(results[way]['kernels'])} of 8 kernels, exit code {results[way]['code']}\n{results[way]['output'][-4000:]}")
                return 1
    if arguments.output:
        (arguments.output / "results.json").write_text(json.dumps({"device": name, "results": results}, indent=1))

    others = [way for way in results if way != "native"]
    print(f"{name}; median of {arguments.repetitions} event times after a warm-up; factors relative to native\n")
    means = print_tables(results, others)
    wrong = False
    native = results["native"]["kernels"]
    for way in others:
        differing = [k for k in results[way]["kernels"] if results[way]["kernels"][k][1] != native[k][1]]
        if differing:
            wrong = True
            print(f"\n{way}: results differ from native's in {', '.join(differing)}")
        if results[way]["code"] != 0:
            wrong = True
            print(f"\n{way}: exit code {results[way]['code']}, so a finding or a failure\n{results[way]['output'][-4000:]}")
    if not wrong:
        print("\nResults of all kernels equal native's in every column; ops-debug reported nothing.")
    missed = [f"{way}: {means[way]:.2f}× is above the goal of {goal}×" for way, goal in GOALS.items() if means[way] > goal]
    print("\n" + ("\n".join(missed) or "Goals met: " + ", ".join(f"{way} ≤ {goal}×" for way, goal in GOALS.items()) + "."))
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
