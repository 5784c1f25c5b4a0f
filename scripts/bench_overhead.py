#!/usr/bin/env python3
"""What memory checking costs on a GPU: eight kernels, five ways, side by side in one run.

    scripts/bench_overhead.py [--source overhead.cu] [--repetitions 9] [--output DIR]

  native              the program by itself (SASS from nvcc)
  checks off          under ops-debug run --check none
  null rewrite        under ops-debug, PTX parsed and printed, nothing added: what loading PTX in place of SASS costs
  memory checking     under ops-debug run --check memory
  compute-sanitizer   under compute-sanitizer --tool memcheck; "not measurable" where it does not find a planted fault

Prints two Markdown tables: kernel-only (median event time of each kernel) and end-to-end (wall time of the process).
The program is overhead.cu with a checksum of both output buffers behind every kernel; every way must give native's
checksums, and the geometric means must stay within GOALS, else the script ends with 1. Needs build/ops-debug, nvcc and an NVIDIA GPU.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))

# Geometric mean over native's times; "nothing measurable" is below the spread of two native runs.
GOALS = {"checks off": 1.02, "memory checking": 2.0}

# Checksum of the output buffers: integer sums, so the order of the atomics does not matter.
CHECKSUM = """
static unsigned *checked_y, *checked_z;
static size_t checked_words;
static unsigned long long* checksum_device;
__global__ void checksum_kernel(const unsigned* words, size_t n, unsigned long long* sum) {
  unsigned long long local = 0;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
    local += words[i] * (i % 65521 + 1);
  atomicAdd(sum, local);
}
static unsigned long long checksum() {
  unsigned long long sum = 0;
  if (!checksum_device) cudaMalloc(&checksum_device, sizeof(sum));
  cudaMemset(checksum_device, 0, sizeof(sum));
  checksum_kernel<<<1024, 256>>>(checked_y, checked_words, checksum_device);
  checksum_kernel<<<1024, 256>>>(checked_z, checked_words, checksum_device);
  cudaMemcpy(&sum, checksum_device, sizeof(sum), cudaMemcpyDeviceToHost);
  return sum;
}
"""

PLANTED = """
__global__ void one_too_many(int* p, int n) { if (threadIdx.x <= n) p[threadIdx.x] = 1; }
int main() {
  int* p;
  cudaMalloc(&p, 64 * sizeof(int));
  one_too_many<<<1, 128>>>(p, 64);
  return cudaDeviceSynchronize() != cudaSuccess;
}
"""


def replace_once(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        sys.exit(f"overhead.cu has changed: {old!r} stands {text.count(old)} times in it")
    return text.replace(old, new)


def with_checksums(text: str) -> str:
    text = replace_once(text, "template <class Launch>", CHECKSUM + "\ntemplate <class Launch>")
    text = replace_once(text, '"%-14s %10.4f ms\\n", name, milliseconds[repetitions / 2])',
                        '"%-14s %10.4f ms %016llx\\n", name, milliseconds[repetitions / 2], checksum())')
    return replace_once(text, "CHECK(cudaMemset(y, 0, n * sizeof(float)));",
                        "CHECK(cudaMemset(y, 0, n * sizeof(float)));\n  CHECK(cudaMemset(z, 0, n * sizeof(float)));\n"
                        "  checked_y = (unsigned*)y; checked_z = (unsigned*)z; checked_words = n;")


def compile_cuda(nvcc: str, source: pathlib.Path, arch: str) -> pathlib.Path:
    program = source.with_suffix("")
    subprocess.run([nvcc, "-O3", "-std=c++17", "-lineinfo", "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-gencode",
                    f"arch=compute_{arch},code=compute_{arch}", "-o", str(program), str(source)], check=True)
    return program


def device() -> tuple[str, str]:
    line = subprocess.run(["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"], check=True,
                          capture_output=True, text=True).stdout.splitlines()[0]
    name, capability, driver = [part.strip() for part in line.split(",")]
    return f"{name}, driver {driver}", capability.replace(".", "")


def measure(command: list[str]) -> tuple[dict[str, tuple[float, str]], float, str, int]:
    """Kernel -> (milliseconds, checksum); wall seconds; all output; exit code."""
    start = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    seconds = time.perf_counter() - start
    rows = re.findall(r"^(\w+)\s+([\d.]+) ms ([0-9a-f]{16})$", result.stdout, re.MULTILINE)
    return {name: (float(ms), checksum) for name, ms, checksum in rows}, seconds, result.stdout + result.stderr, result.returncode


def sanitizer_works(sanitizer: str, nvcc: str, folder: pathlib.Path, arch: str) -> bool:
    source = folder / "planted_one.cu"
    source.write_text(PLANTED)
    program = compile_cuda(nvcc, source, arch)
    result = subprocess.run([sanitizer, "--tool", "memcheck", str(program)], capture_output=True, text=True, timeout=300)
    return "Invalid __global__ write" in result.stdout


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=ROOT.parent / "shared/kernels/overhead.cu")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--output", type=pathlib.Path, help="folder for raw outputs and results.json")
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    name, arch = device()
    tool = [str(BUILD / "ops-debug"), "run", "--device", "gpu", "--check"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        source = folder / "overhead_checked.cu"
        source.write_text(with_checksums(arguments.source.read_text()))
        program = [str(compile_cuda(nvcc, source, arch)), str(arguments.repetitions)]
        ways = {"native": program,
                "checks off": [*tool, "none", "--", *program],
                "null rewrite": [*tool, "memory", "--rewrite", "null", "--", *program],
                "memory checking": [*tool, "memory", "--", *program]}
        sanitizer = shutil.which("compute-sanitizer")
        if sanitizer and sanitizer_works(sanitizer, nvcc, folder, arch):
            ways["compute-sanitizer memcheck"] = [sanitizer, "--tool", "memcheck", *program]
        results = {}
        for way, command in ways.items():
            kernels, seconds, output, code = measure(command)
            results[way] = {"kernels": kernels, "seconds": seconds, "code": code}
            if arguments.output:
                arguments.output.mkdir(parents=True, exist_ok=True)
                (arguments.output / f"{way.replace(' ', '_')}.txt").write_text(output)
            if len(kernels) != 8:
                print(f"{way}: {len(kernels)} of 8 kernels, exit code {code}\n{output[-4000:]}")
                return 1
    if arguments.output:
        (arguments.output / "results.json").write_text(json.dumps({"device": name, "results": results}, indent=1))

    native = results["native"]["kernels"]
    others = ["checks off", "null rewrite", "memory checking", "compute-sanitizer memcheck"]
    print(f"{name}; median of {arguments.repetitions} event times after a warm-up; factors relative to native\n")
    print("| kernel | native ms | " + " | ".join(others) + " |\n| --- | --- |" + " --- |" * len(others))
    for kernel, (milliseconds, _) in native.items():
        cells = [f"{results[way]['kernels'][kernel][0] / milliseconds:.2f}×" if way in results else "not measurable"
                 for way in others]
        print(f"| {kernel} | {milliseconds:.3f} | " + " | ".join(cells) + " |")
    means = {way: geometric_mean([results[way]["kernels"][k][0] / native[k][0] for k in native]) for way in others
             if way in results}
    print("| geometric mean | | " + " | ".join(f"{means[way]:.2f}×" if way in means else "not measurable" for way in others)
          + " |\n")
    print("| end-to-end | seconds |\n| --- | --- |")
    for way in ["native", *others]:
        print(f"| {way} | " + (f"{results[way]['seconds']:.1f}" if way in results else "not measurable") + " |")

    equal = True
    for way in results:
        differing = [k for k in native if results[way]["kernels"][k][1] != native[k][1]]
        if differing:
            equal = False
            print(f"\n{way}: results differ from native's in {', '.join(differing)}")
        if results[way]["code"] != 0:
            equal = False
            print(f"\n{way}: exit code {results[way]['code']}, so a finding or a failure")
    if equal:
        print("\nResults of all kernels equal native's in every column; no way reported a finding.")
    missed = [f"{way}: {means[way]:.3f}× is above the goal of {goal}×" for way, goal in GOALS.items() if means[way] > goal]
    print("\n" + ("\n".join(missed) or "Goals met: " + ", ".join(f"{way} ≤ {goal}×" for way, goal in GOALS.items()) + "."))
    return 0 if equal and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
