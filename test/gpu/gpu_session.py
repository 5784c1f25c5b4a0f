"""What the rows of run_tests.py share: building programs, running them under ops-debug, the table.

A row is a name, what is wanted, and a check that returns what a table cell needs. Rows run side by side on a pool of
threads, each with files of its own; programs are built when the first row asks for them.
"""
import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))


@dataclasses.dataclass
class Outcome:
    """What a check saw. `problems` empty: as wanted."""
    problems: list[str]
    coverage: str = ""  # of launches
    native_seconds: float | None = None
    tool_seconds: float | None = None
    note: str = ""


@dataclasses.dataclass
class Row:
    name: str
    group: str
    wanted: str
    outcome: Outcome
    seconds: float


def run_process(command: list[str], folder: pathlib.Path, environment: dict[str, str],
                timeout: float) -> tuple[subprocess.CompletedProcess, float]:
    """Result and seconds. Past `timeout` the program and all its children are ended, and TimeoutExpired is raised."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                               env={**os.environ, **environment}, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors), time.perf_counter() - start


class Once:
    """Computes a value for each key once, also if several threads ask."""

    def __init__(self):
        self._lock = threading.Lock()
        self._futures: dict[object, concurrent.futures.Future] = {}

    def get(self, key, compute):
        with self._lock:
            future = self._futures.get(key)
            mine = future is None
            if mine:
                future = self._futures[key] = concurrent.futures.Future()
        if mine:
            try:
                future.set_result(compute())
            except BaseException as error:
                future.set_exception(error)
        return future.result()


class Session:
    def __init__(self, folder: pathlib.Path, output: pathlib.Path | None):
        self.folder, self.output = folder, output
        self.nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        self.once = Once()
        self._numbers = itertools.count()
        self._tasks = []

    def build(self, source: pathlib.Path, *flags: str, ptx: bool = True) -> pathlib.Path:
        """The program, with SASS and PTX as users build it (or without PTX), and line information."""
        program = self.folder / "_".join([source.stem, *[flag.strip("-").replace("=", "_") for flag in flags],
                                          *([] if ptx else ["sass"])])
        code = ["-gencode", "arch=compute_90,code=sm_90", *(["-gencode", "arch=compute_90,code=compute_90"] if ptx else [])]

        def compile_it():
            subprocess.run([self.nvcc, "-O2", "-std=c++17", "-lineinfo", *code, *flags, "-o", str(program), str(source)],
                           check=True)
            return program

        return self.once.get(program, compile_it)

    def new_path(self, suffix: str) -> pathlib.Path:
        return self.folder / f"{next(self._numbers)}{suffix}"

    def run(self, name: str, command: str, *arguments, environment: dict[str, str] | None = None,
            timeout: float = 300) -> tuple[subprocess.CompletedProcess, dict | None]:
        """`ops-debug COMMAND ARGUMENTS…` on the GPU; its result and the report, None if there is none."""
        report = self.new_path(".json")
        result, _ = run_process(
            [str(BUILD / "ops-debug"), command, "--device", "gpu", "--format", "json", "--output", str(report),
             *[str(argument) for argument in arguments]], self.folder, environment or {}, timeout)
        text = report.read_text() if report.exists() else ""
        self.keep(name, f"exit code {result.returncode}\n{result.stdout}{result.stderr}{text or 'no report'}\n")
        return result, json.loads(text) if text else None

    def keep(self, name: str, text: str) -> None:
        if self.output:
            file = self.output / (re.sub(r"[^\w.-]+", "_", name) + ".txt")
            file.write_text((file.read_text() if file.exists() else "") + text)

    def add(self, name: str, wanted: str, check, group: str, weight: int = 1) -> None:
        """check() -> list of problems, or an Outcome. Heavier rows begin first."""
        self._tasks.append((name, wanted, check, group, weight))

    def execute(self, jobs: int, only: str, groups: list[str], dry: bool = False) -> list[Row]:
        """All chosen rows, in the order in which they were added. Dry: nothing is run."""

        def run(task) -> Row:
            name, wanted, check, group, _ = task
            if dry:
                return Row(name, group, wanted, Outcome([]), 0)
            start = time.perf_counter()
            try:
                seen = check()
            except subprocess.TimeoutExpired as error:
                seen = [f"still running after {error.timeout:.0f} s"]
            except Exception as error:  # a broken row must not hide the others
                seen = [f"{type(error).__name__}: {error}"]
            outcome = seen if isinstance(seen, Outcome) else Outcome(seen)
            row = Row(name, group, wanted, outcome, time.perf_counter() - start)
            # The table comes last; whoever is stopped before it keeps this.
            print(f"{'NO ' if outcome.problems else 'ok '} {name} ({row.seconds:.1f} s) {'; '.join(outcome.problems) or outcome.note}",
                  file=sys.stderr, flush=True)
            return row

        chosen = [task for task in self._tasks if re.search(only, task[0]) and (not groups or task[3] in groups)]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            by_weight = sorted(chosen, key=lambda task: -task[4])
            futures = {id(task): pool.submit(run, task) for task in by_weight}
            return [futures[id(task)].result() for task in chosen]

    def groups(self) -> list[str]:
        return list(dict.fromkeys(task[3] for task in self._tasks))


def expect(result, report, code: int, stdout: str | None = None, kinds: list[str] | None = None) -> list[str]:
    if report is None:
        return [f"no report, exit code {result.returncode}: {result.stderr[-300:]}"]
    problems = []
    if result.returncode != code:
        problems.append(f"exit code {result.returncode}")
    if stdout is not None and result.stdout != stdout:
        problems.append(f"stdout {result.stdout[-200:]!r}")
    seen = [finding["kind"] for finding in report["findings"]]
    if kinds is not None and seen != kinds:
        problems.append(f"findings {seen}")
    return problems


def format_table(rows: list[Row]) -> str:
    def cell(text) -> str:
        return str(text).replace("|", "\\|").replace("\n", " ")

    def seconds(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}"

    lines = ["| test | wanted | seen | launches covered | native s | tool s | ok | s |", "| --- " * 8 + "|"]
    for row in rows:
        seen = row.outcome
        words = "; ".join(seen.problems) or ("as wanted" + (f": {seen.note}" if seen.note else ""))
        lines.append(f"| {cell(row.name)} | {cell(row.wanted)} | {cell(words)} | {seen.coverage} | {seconds(seen.native_seconds)} "
                     f"| {seconds(seen.tool_seconds)} | {'NO' if seen.problems else 'yes'} | {row.seconds:.1f} |")
    failed = sum(bool(row.outcome.problems) for row in rows)
    lines.append(f"{len(rows) - failed} passed, {failed} failed")
    return "\n".join(lines)
