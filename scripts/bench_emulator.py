#!/usr/bin/env python3
"""How fast the CPU device is: thread-instructions per second by kind, beside the same loops as plain C++.

    scripts/bench_emulator.py [--build BUILD] [--seconds 0.5] [--skip-matmul]

One core: processor time, so other programs on the machine do not count. All cores: wall time, so they do. "linear" is
the cost per instruction with two and four times the blocks, relative to the first measurement. Prints the goals and
whether they are met; ends with 1 if one is not. Builds what it needs in BUILD (default build/).
"""
import argparse
import csv
import io
import os
import pathlib
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLAIN = ROOT / "test/emulator/executor/plain_loops.cc"
EXAMPLE = ROOT / "examples/matmul_kernel_fixed.cu"
CORPUS = ROOT.parent / "shared/ptx-corpus.tar.xz"

ARITHMETIC_GOAL, MEMORY_GOAL = 1e9, 300e6  # thread-instructions per second and core
PTX_GOAL_MB_S = 40
MATMUL_GOAL_S = 20
GOALS = {
    "integer": ARITHMETIC_GOAL, "fma_f32": ARITHMETIC_GOAL, "fma_f64": ARITHMETIC_GOAL,
    "copy_cached": MEMORY_GOAL, "add_streaming": MEMORY_GOAL,
}
# No tile and no unrolling: one thread per element of C.
NAIVE = """// ops-debug: block=16,16 grid=ceil(N/16),ceil(M/16)
__global__ void matmul_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || column >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
  C[row * N + column] = sum;
}
"""

met = []


def goal(what, is_met):
    met.append((what, is_met))


def output_of(*command):
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"bench_emulator.py: {' '.join(map(str, command))} failed:\n{run.stdout}{run.stderr}")
    return run.stdout


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def table(heads, lines):
    widths = [max(len(str(line[i])) for line in [heads, *lines]) for i in range(len(heads))]
    for line in [heads, ["-" * width for width in widths], *lines]:
        cells = [str(line[0]).ljust(widths[0]), *(str(cell).rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        print("| " + " | ".join(cells) + " |")
    print()


def plain_speeds(scratch, flags, seconds):
    program = scratch / "plain_loops"
    output_of("c++", *flags, "-std=c++20", PLAIN, "-o", program)
    return {row["kernel"]: int(row["thread_instructions"]) / float(row["processor_s"])
            for row in rows(output_of(program, seconds))}


def kernels(build, scratch, seconds):
    measured = {}
    for row in rows(output_of(build / "emulator_speed", "--csv", seconds)):
        measured.setdefault(row["kernel"], []).append(row)
    plain_o2 = plain_speeds(scratch, ["-O2"], seconds)
    plain_native = plain_speeds(scratch, ["-O3", "-march=native"], seconds)
    mega = lambda value: f"{value / 1e6:,.0f}" if value is not None else ""
    lines = []
    for name, (one, two, four, every) in measured.items():
        cost = [float(row["processor_s"]) / int(row["thread_instructions"]) for row in (one, two, four)]
        speed = 1 / cost[0]
        if name in GOALS:
            goal(f"{name}: {mega(speed)} M thread-instructions per second and core, at least {mega(GOALS[name])}",
                 speed >= GOALS[name])
        lines.append([name, mega(speed), f"{cost[1] / cost[0]:.2f}, {cost[2] / cost[0]:.2f}",
                      mega(int(every["thread_instructions"]) / float(every["wall_s"])), mega(plain_o2.get(name)),
                      mega(plain_native.get(name))])
    print("Millions of thread-instructions per second\n")
    table(["kernel", "one core", "linear: x2, x4", f"all {os.cpu_count()} cores", "C++ -O2", "C++ -O3 native"], lines)


def parse_and_print(build, scratch):
    if not CORPUS.exists():
        print(f"parse + print: not measured, {CORPUS.name} is not there\n")
        return
    with tarfile.open(CORPUS) as archive:
        archive.extractall(scratch / "corpus")
    text = output_of(build / "benchmark_ptx", *sorted((scratch / "corpus").rglob("*.ptx")))
    print(text.splitlines()[-1] + "\n")
    speed = float(re.search(r"both ([\d.]+) MB/s", text).group(1))
    goal(f"parse + print: {speed:.0f} MB/s, at least {PTX_GOAL_MB_S}", speed >= PTX_GOAL_MB_S)


def matmul(build, scratch):
    naive = scratch / "matmul_kernel.cu"
    naive.write_text(NAIVE)
    lines = []
    for what, source in (("naive", naive), ("tiled (examples/matmul_kernel_fixed.cu)", EXAMPLE)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.monotonic()
        output_of(build / "ops-debug", "check-memory", "--kernel", source, "--input-shape", "1024x1024", "--device",
                  "emulator")
        wall_s = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        lines.append([what, f"{wall_s:.1f}", f"{processor_s:.1f}"])
        goal(f"{what} matmul 1024x1024 under memory checking: {wall_s:.1f} s, less than {MATMUL_GOAL_S}",
             wall_s < MATMUL_GOAL_S)
    print("ops-debug check-memory of a 1024x1024 product on the CPU device\n")
    table(["kernel", "wall s", "processor s"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--seconds", type=float, default=0.5, help="per measurement")
    parser.add_argument("--skip-matmul", action="store_true")
    arguments = parser.parse_args()
    if arguments.build == ROOT / "build":
        output_of(ROOT / "scripts/build.sh")
    output_of("ninja", "-C", arguments.build, "emulator_speed", "benchmark_ptx")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        kernels(arguments.build, scratch, arguments.seconds)
        parse_and_print(arguments.build, scratch)
        if not arguments.skip_matmul:
            matmul(arguments.build, scratch)
    for what, is_met in met:
        print(f"{'met    ' if is_met else 'NOT MET'} {what}")
    return 0 if all(is_met for _, is_met in met) else 1


if __name__ == "__main__":
    sys.exit(main())
