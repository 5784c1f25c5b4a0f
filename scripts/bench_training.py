#!/usr/bin/env python3
"""What ops-debug costs on a training step of PyTorch: eager and compiled, all ways side by side in one run.

    scripts/bench_training.py [--shared ../shared] [--steps 100] [--repeats 3] [--variants eager,compiled]
                              [--ways native,checks off,...] [--output DIR]

  native                   the program by itself
  checks off               under ops-debug run --check none
  null rewrite             PTX parsed and printed where there is PTX, nothing added, machine code left alone
  memory checking          ops-debug run --check memory: every tensor has its own bounds
  tensors off              the same with --tensors off: only the pool's segments have bounds
  cache off                native and checked with PYTORCH_NO_CUDA_MEMORY_CACHING=1, the usual way to see tensors' bounds
  compute-sanitizer        memcheck; "not measurable" where it does not find a planted fault

Each program prints the median of its step times and its last loss. Ways alternate within a repeat; the table gives the
median of all runs of a way, its factor over native's median, and the range of its runs. One run of a process differs from
the next by more than "checks off" costs: so --pairs processes of it and as many native ones are measured in turns of ten
steps (step_turns.py), and the second table gives the medians over processes and the median of the ratios within pairs.
Every way must print native's loss and, if it checks, have checked every launch; else, or if a goal is missed, the script
ends with 1.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import bench_overhead
import step_turns

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))
GOALS = {"checks off": 1.02, "memory checking": 2.0}
CACHE_OFF = (("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),)


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    flags: tuple[str, ...] | None = None  # of ops-debug run; None: without it
    environment: tuple[tuple[str, str], ...] = ()
    once: bool = False  # in the first repeat only
    sanitizer: bool = False


WAYS = [
    Way("native"),
    Way("checks off", ("--check", "none")),
    Way("null rewrite", ("--check", "memory", "--rewrite", "null"), once=True),
    Way("memory checking", ("--check", "memory")),
    Way("memory checking, tensors off", ("--check", "memory", "--tensors", "off"), once=True),
    Way("native, cache off", environment=CACHE_OFF, once=True),
    Way("memory checking, cache off", ("--check", "memory"), CACHE_OFF, once=True),
    Way("compute-sanitizer memcheck", once=True, sanitizer=True),
]


@dataclasses.dataclass
class Run:
    step_ms: float
    loss: str
    seconds: float
    coverage: str  # of launches; empty: not asked for
    problem: str = ""


def parse(result: subprocess.CompletedProcess, seconds: float, report: dict | None) -> Run:
    printed = re.search(r"median step ([\d.]+) ms, loss ([\d.naninf-]+)", result.stdout)
    run = Run(float(printed[1]) if printed else float("nan"), printed[2] if printed else "", seconds, "")
    if not printed or result.returncode != 0:
        run.problem = f"exit code {result.returncode}: {(result.stdout + result.stderr)[-600:]}"
    if report is not None:
        launches, checked = report["coverage"]["launches"], report["coverage"]["checked_launches"]
        run.coverage = f"{100 * checked / launches:.1f} % of {launches}" if launches else "no launch"
        if report["findings"]:
            run.problem = f"{len(report['findings'])} findings, first {report['findings'][0]['message']}"
    return run


class Bench:
    def __init__(self, folder: pathlib.Path, output: pathlib.Path | None):
        self.folder, self.output, self.number = folder, output, 0
        self.lock = threading.Lock()
        if output:
            output.mkdir(parents=True, exist_ok=True)
        # One home for all ways: native's first run fills the compile caches, as on a user's machine.
        self.environment = {**os.environ, "HOME": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}

    def run(self, way: Way, program: list[str]) -> Run:
        with self.lock:
            self.number += 1
            number = self.number
        report = self.folder / f"report{number}.json"
        command = program
        if way.sanitizer:
            command = ["compute-sanitizer", "--tool", "memcheck", *program]
        elif way.flags is not None:
            command = [str(BUILD / "ops-debug"), "run", "--device", "gpu", "--format", "json", "--output", str(report),
                       *way.flags, "--", *program]
        start = time.perf_counter()
        result = subprocess.run(command, capture_output=True, text=True, timeout=900,
                                env={**self.environment, **dict(way.environment)}, cwd=self.folder)
        seconds = time.perf_counter() - start
        if self.output:
            name = re.sub(r"\W+", "_", way.name)
            (self.output / f"{number:03}_{name}.txt").write_text(
                f"{command}\n{seconds:.2f} s\n{result.stdout}{result.stderr}" + (report.read_text() if report.exists() else ""))
        checks = way.flags is not None and "memory" in way.flags and "null" not in way.flags
        document = json.loads(report.read_text()) if checks and report.exists() else None
        return parse(result, seconds, document)


def schedule(ways: list[Way], repeats: int) -> list[Way]:
    """All ways in each repeat, every other time backwards so that none always comes first."""
    order = []
    for repeat in range(repeats):
        chosen = [way for way in ways if not way.sanitizer and (repeat == 0 or not way.once)]
        order += chosen if repeat % 2 == 0 else reversed(chosen)
    return order


TURN_STEPS = 10


def run_pairs(bench: Bench, program: list[str], off: Way, pairs: int) -> list[tuple[Run, Run]]:
    """Native and `off`, `pairs` processes of each at once, one at a time working."""
    native = Way("native")
    with tempfile.TemporaryDirectory() as scratch, step_turns.Turns(f"{scratch}/turns", 2 * pairs) as turns:
        command = [program[0], str(ROOT / "scripts/step_turns.py"), turns.path, str(TURN_STEPS), *program[1:]]
        with concurrent.futures.ThreadPoolExecutor(2 * pairs) as pool:
            futures = [pool.submit(bench.run, way, command) for _ in range(pairs) for way in (native, off)]
            runs = [future.result() for future in futures]
    return list(zip(runs[::2], runs[1::2]))


def pairs_table(pairs: list[tuple[Run, Run]]) -> tuple[list[str], float]:
    """The lines, and the median ratio."""
    native, off = [first.step_ms for first, _ in pairs], [second.step_ms for _, second in pairs]
    ratios = sorted(second / first for first, second in zip(native, off))
    ratio = statistics.median(ratios)
    return ["| processes of each, in turns | native step ms | checks off step ms | median of ratios | range of ratios |", "| --- " * 5 + "|",
            f"| {len(pairs)} | {statistics.median(native):.2f} | {statistics.median(off):.2f} | {ratio:.3f}× | {ratios[0]:.3f}–{ratios[-1]:.3f} |"], ratio


def table(results: dict[Way, list[Run]], native_ms: float) -> list[str]:
    lines = ["| way | step ms | factor | range of factors | runs | end-to-end s, first | median | launches covered | loss |",
             "| --- " * 9 + "|"]
    for way, runs in results.items():
        if not runs:
            lines.append(f"| {way.name} | not measurable | | | 0 | | | | |")
            continue
        steps = [run.step_ms for run in runs]
        seconds = [run.seconds for run in runs]
        lines.append(
            f"| {way.name} | {statistics.median(steps):.2f} | {statistics.median(steps) / native_ms:.3f}× "
            f"| {min(steps) / native_ms:.3f}–{max(steps) / native_ms:.3f} | {len(runs)} | {seconds[0]:.1f} "
            f"| {statistics.median(seconds):.1f} | {runs[-1].coverage} | {', '.join(sorted({run.loss for run in runs}))} |")
    return lines


def problems(results: dict[Way, list[Run]], native_ms: float, native_loss: dict[bool, str]) -> list[str]:
    """`native_loss`: after the usual number of steps (False) and after compute-sanitizer's (True)."""
    found = []
    for way, runs in results.items():
        for run in runs:
            if run.problem:
                found.append(f"{way.name}: {run.problem}")
            elif run.loss != native_loss[way.sanitizer]:
                found.append(f"{way.name}: loss {run.loss}, natively {native_loss[way.sanitizer]}")
            if run.coverage and not run.coverage.startswith("100.0 %"):
                found.append(f"{way.name}: only {run.coverage} launches checked")
        goal = GOALS.get(way.name)
        if goal and runs and way.name != "checks off" and not statistics.median(run.step_ms for run in runs) <= goal * native_ms:
            found.append(f"{way.name}: above the goal of {goal}×")
    return list(dict.fromkeys(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--sanitizer-steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3, help="0: only what is measured in turns")
    parser.add_argument("--pairs", type=int, default=7, help="processes of native and of \"checks off\", measured in turns; 0: none")
    parser.add_argument("--variants", default="eager,compiled")
    parser.add_argument("--ways", default="", help="comma-separated beginnings of their names; unset: all")
    parser.add_argument("--output", type=pathlib.Path, help="folder for the output of every run")
    arguments = parser.parse_args()
    if arguments.output:
        arguments.output = arguments.output.resolve()
        arguments.output.mkdir(parents=True, exist_ok=True)
    kernels = arguments.shared.resolve() / "kernels"
    compiled = ROOT / "test/gpu/frameworks/train_step_compiled.py"
    variants = {"eager": [sys.executable, str(kernels / "train_step.py")],
                "compiled": [sys.executable, str(compiled), str(kernels)]}
    chosen = arguments.ways.split(",") if arguments.ways else [""]
    ways = [way for way in WAYS if way.name == "native" or any(way.name.startswith(name) for name in chosen)]
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    device, arch = bench_overhead.device()
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        sanitizer = shutil.which("compute-sanitizer")
        works = bool(sanitizer) and bench_overhead.sanitizer_works(sanitizer, nvcc, folder, arch)
        for variant in arguments.variants.split(","):
            bench = Bench(folder, arguments.output and arguments.output / variant)
            program = [*variants[variant], str(arguments.steps)]
            short = [*variants[variant], str(arguments.sanitizer_steps)]
            native_short = bench.run(WAYS[0], short)  # also fills the caches
            results: dict[Way, list[Run]] = {way: [] for way in ways}
            for way in schedule(ways, arguments.repeats):
                results[way].append(bench.run(way, program))
            name = f"{device}; training step, {variant}"
            found = []
            if arguments.repeats:
                for way in ways:
                    if way.sanitizer and works:
                        results[way].append(bench.run(way, short))
                native = results[WAYS[0]]
                native_ms = statistics.median(run.step_ms for run in native)
                print(f"{name}: median step of {arguments.steps} steps ({arguments.sanitizer_steps} for compute-sanitizer), medians over runs\n")
                print("\n".join(table(results, native_ms)) + "\n")
                found += problems(results, native_ms, {False: native[0].loss, True: native_short.loss})
            off = next((way for way in ways if way.name == "checks off"), None)
            if off and arguments.pairs:
                pairs = run_pairs(bench, program, off, arguments.pairs)
                lines, ratio = pairs_table(pairs)
                print(f"{name}: median steps of {arguments.steps}\n")
                print("\n".join(lines) + "\n")
                found += [f"in turns: {run.problem}" for pair in pairs for run in pair if run.problem]
                losses = sorted({run.loss for pair in pairs for run in pair if not run.problem})
                if len(losses) > 1:
                    found.append(f"in turns: losses {', '.join(losses)}")
                if not ratio <= GOALS[off.name]:
                    found.append(f"{off.name}: {ratio:.3f}× in turns is above the goal of {GOALS[off.name]}×")
            print("\n".join(found) or f"{variant}: every way prints native's loss; all goals are met.", end="\n\n", flush=True)
            failed |= bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
