#!/usr/bin/env python3
"""What the checks of races, barriers and uninitialised memory cost on a GPU: eight kernels side by side in one run.

    scripts/bench_sync_overhead.py [--source overhead.cu] [--repetitions 5] [--sanitizer-limit 60] [--output DIR]

  native        the program by itself
  checks off    under ops-debug run --check none
  null rewrite  under ops-debug, PTX parsed and printed, nothing added
  shared races  --check race --race-memory shared
  races         --check race: shared and global memory
  sync          --check sync: barriers
  init          --check init: uninitialised reads
  all three     --check race,sync,init
  racecheck, initcheck   compute-sanitizer; one repetition, as racecheck takes seconds per launch, and stopped at the limit

Prints Markdown tables: kernel-only (median event time), end-to-end (wall time), and what the checks hold of the device's memory at the
end (cudaMemGetInfo within the program, less native's). The program is overhead.cu with a checksum behind every kernel: every way must give
native's, and report nothing. GOALS are geometric means over native's times; the script ends with 1 if one is missed. Needs
build/ops-debug, nvcc and an NVIDIA GPU.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import bench_overhead as bench

GOALS = {"shared races": 3.0, "races": 8.0, "init": 3.0}
KERNELS = ("saxpy", "saxpy_vector", "transpose", "stencil", "matmul_naive", "matmul_tiled", "gather", "softmax")
MEMORY = """
  {
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    std::printf("memory %zu MiB\\n", (total_bytes - free_bytes) >> 20);
  }
  return 0;
}
"""


def program_text(source: pathlib.Path) -> str:
    text = bench.with_checksums(source.read_text()).rstrip()
    if not text.endswith("return 0;\n}"):
        sys.exit("overhead.cu has changed: it does not end with return 0")
    return text[:-len("return 0;\n}")] + MEMORY


def measure(command: list[str], limit_s: float) -> dict:
    """What it printed until it ended, or was stopped."""
    start = time.perf_counter()
    # A group of its own: compute-sanitizer's program outlives it, and keeps the pipe open.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit_s)
        stopped = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        stopped = True
    rows = re.findall(r"^(\w+)\s+([\d.]+) ms ([0-9a-f]{16})$", output, re.MULTILINE)
    memory = re.search(r"^memory (\d+) MiB$", output, re.MULTILINE)
    return {"kernels": {name: (float(ms), checksum) for name, ms, checksum in rows}, "seconds": time.perf_counter() - start,
            "memory_mib": int(memory.group(1)) if memory else None, "code": process.returncode, "stopped": stopped, "output": output}


def cell(result: dict, kernel: str, native_ms: float, limit_s: float) -> str:
    if kernel in result["kernels"]:
        return f"{result['kernels'][kernel][0] / native_ms:.2f}×"
    # The first kernel that is missing is the one it was stopped in.
    running = next((k for k in KERNELS if k not in result["kernels"]), None)
    return f"> {limit_s:.0f} s" if result["stopped"] and kernel == running else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=bench.ROOT.parent / "shared/kernels/overhead.cu")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--sanitizer-limit", type=float, default=60, help="seconds for each tool of compute-sanitizer; 0: leave them out")
    parser.add_argument("--output", type=pathlib.Path, help="folder for raw outputs and results.json")
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    name, arch = bench.device()
    tool = [str(bench.BUILD / "ops-debug"), "run", "--device", "gpu", "--replay", "off"]
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary) / "overhead_checked.cu"
        source.write_text(program_text(arguments.source))
        binary = str(bench.compile_cuda(nvcc, source, arch))
        program = [binary, str(arguments.repetitions)]
        ways = {"native": program,
                "checks off": [*tool, "--check", "none", "--", *program],
                "null rewrite": [*tool, "--check", "race", "--rewrite", "null", "--", *program],
                "shared races": [*tool, "--check", "race", "--race-memory", "shared", "--", *program],
                "races": [*tool, "--check", "race", "--", *program],
                "sync": [*tool, "--check", "sync", "--", *program],
                "init": [*tool, "--check", "init", "--", *program],
                "all three": [*tool, "--check", "race,sync,init", "--", *program]}
        sanitizer = shutil.which("compute-sanitizer")
        if sanitizer and arguments.sanitizer_limit > 0:
            for check in ("racecheck", "initcheck"):
                ways[check] = [sanitizer, "--tool", check, binary, "1"]
        for way, command in ways.items():
            of_sanitizer = way in ("racecheck", "initcheck")
            results[way] = measure(command, arguments.sanitizer_limit if of_sanitizer else 600)
            # The tables come last; whoever is stopped before them keeps this.
            print(f"{way}: {results[way]['seconds']:.1f} s; " + ", ".join(f"{k} {ms}" for k, (ms, _) in results[way]["kernels"].items()),
                  file=sys.stderr, flush=True)
            if arguments.output:
                arguments.output.mkdir(parents=True, exist_ok=True)
                (arguments.output / f"{way.replace(' ', '_')}.txt").write_text(results[way]["output"])
            if not of_sanitizer and len(results[way]["kernels"]) != len(KERNELS):
                print(f"{way}: {len(results[way]['kernels'])} of 8 kernels, exit code {results[way]['code']}\n{results[way]['output'][-4000:]}")
                return 1
    if arguments.output:
        (arguments.output / "results.json").write_text(json.dumps({"device": name, "results": results}, indent=1))

    native = results["native"]["kernels"]
    others = [way for way in results if way != "native"]
    print(f"{name}; median of {arguments.repetitions} event times after a warm-up (compute-sanitizer: one); factors relative to native\n")
    print("| kernel | native ms | " + " | ".join(others) + " |\n| --- | --- |" + " --- |" * len(others))
    for kernel in KERNELS:
        milliseconds = native[kernel][0]
        cells = [cell(results[way], kernel, milliseconds, arguments.sanitizer_limit) for way in others]
        print(f"| {kernel} | {milliseconds:.3f} | " + " | ".join(cells) + " |")
    means = {way: bench.geometric_mean([results[way]["kernels"][k][0] / native[k][0] for k in KERNELS]) for way in others
             if len(results[way]["kernels"]) == len(KERNELS)}
    print("| geometric mean | | " + " | ".join(f"{means[way]:.2f}×" if way in means else "–" for way in others) + " |")
    idle = results["native"]["memory_mib"]
    memory = [results[way]["memory_mib"] for way in others]
    print("| device memory of the checks, MiB | | " + " | ".join("–" if m is None or idle is None else str(m - idle) for m in memory) + " |")
    print("| end-to-end, s | " + f"{results['native']['seconds']:.1f} | "
          + " | ".join(("> " if results[way]["stopped"] else "") + f"{results[way]['seconds']:.1f}" for way in others) + " |")

    wrong = False
    for way in others:
        if way in ("racecheck", "initcheck"):  # one repetition: saxpy adds to what is there
            continue
        differing = [k for k in results[way]["kernels"] if results[way]["kernels"][k][1] != native[k][1]]
        if differing:
            wrong = True
            print(f"\n{way}: results differ from native's in {', '.join(differing)}")
        if results[way]["code"] != 0:
            wrong = True
            print(f"\n{way}: exit code {results[way]['code']}, so a finding or a failure")
    if not wrong:
        print("\nResults of all kernels equal native's in every column; ops-debug reported nothing.")
    missed = [f"{way}: {means[way]:.2f}× is above the goal of {goal}×" for way, goal in GOALS.items() if means[way] > goal]
    print("\n" + ("\n".join(missed) or "Goals met: " + ", ".join(f"{way} ≤ {goal}×" for way, goal in GOALS.items()) + "."))
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
