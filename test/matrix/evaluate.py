"""Compiles the matrix, runs it under ops-debug and holds each report against the verdicts.

    python3 evaluate.py --build BUILD [--into FOLDER] [--device emulator|gpu] [--engine auto|ptx] [--only REGEX] [--details]

Right kernels of a program run in one process, which has to be silent; wrong ones in another, and each has to have a
finding of its kind that names its two marked lines. What ends a context, and whatever has no kernel of its own to be
known by (orders of streams), runs alone. A finding without proof counts as a miss on the emulator; on a GPU, where a
launch may be too large or too slow to be run again, it is counted by itself.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import generate
import matrix_misses
import micro

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import finding_lines  # noqa: E402

CHECKS = "race,sync,init"
OK, UNPROVEN = "ok", "unproven"
TIMEOUT_S = {"emulator": 280, "gpu": 300}
HANG_S = 40  # of a kernel that hangs on a GPU: it is ended some 6 s after its launch
REPLAY_S = 60  # of one launch; a program of several hundred kernels has three times that for all, on a busy machine
# The driver of a GPU translates a whole module before its first kernel runs.
MOST_KERNELS = {"emulator": 10**6, "gpu": 48}


@dataclasses.dataclass
class Verdict:
    expectation: micro.Expectation
    outcome: str  # OK, UNPROVEN, or what is wrong
    detail: str = ""


def compile_all(nvcc: str, folder: pathlib.Path, device: str, jobs: int = 2, programs: set[str] | None = None) -> None:
    code = (["-gencode", "arch=compute_90,code=sm_90"] if device == "gpu" else []) + ["-gencode", "arch=compute_90,code=compute_90"]
    cudart = "static" if device == "gpu" else "shared"

    def one(source: pathlib.Path) -> None:
        program = source.with_suffix("")
        if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
            return
        subprocess.run([nvcc, "-O2", "-std=c++17", "-lineinfo", "-Xcompiler", "-g", "-cudart", cudart, *code, "-o", str(program), str(source)],
                       check=True, capture_output=True, text=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        sources = [path for path in folder.glob("*.cu") if programs is None or path.stem in programs]
        list(pool.map(one, sorted(sources, key=lambda path: -path.stat().st_size)))


def lines_of(entry: dict, expectation: micro.Expectation) -> list[int]:
    return finding_lines.lines_of(entry, f"{expectation.program}.cu")


def kernel_of(entry: dict) -> str:
    return re.split(r"[($ ]", entry.get("kernel", "") or "")[0]


def of_program(entry: dict, expectation: micro.Expectation) -> bool:
    """The entry speaks of this kernel: by its name, or by a line of it."""
    if kernel_of(entry) == expectation.name:
        return True
    return expectation.program == "streams" or any(expectation.first_line <= line <= expectation.last_line for line in lines_of(entry, expectation)[:1])


def shown(entry: dict) -> str:
    lines = [side.get("line") for side in entry.get("accesses") or [entry]]
    return f"{entry.get('severity', '')} {entry.get('kind')} lines {lines}: {entry.get('message', '')[:160]}"


def counts(entry: dict) -> bool:
    return entry.get("kind") != "redundant-sync" and entry.get("severity") != "note"


def unchecked(report: dict) -> str:
    """Silence says nothing where nothing was checked."""
    coverage = report.get("coverage", {})
    launches, checked = coverage.get("launches", 0), coverage.get("checked_launches", 0)
    return "" if checked == launches and launches > 0 else f"{checked} of {launches} launches checked"


def judge(expectation: micro.Expectation, report: dict, exact: bool) -> Verdict:
    findings = [entry for entry in report["findings"] if of_program(entry, expectation)]
    unproven = [entry for entry in report.get("unproven", []) if of_program(entry, expectation)]
    if not expectation.wrong:
        loud = [entry for entry in findings if counts(entry) or (not expectation.benign and entry.get("kind") != "redundant-sync")]
        if loud:
            return Verdict(expectation, "false alarm", shown(loud[0]))
        if unproven:
            return Verdict(expectation, "false alarm" if exact else UNPROVEN, "unproven: " + shown(unproven[0]))
        return Verdict(expectation, OK)
    loud = [entry for entry in findings if counts(entry)]
    if not loud:
        if unproven:
            return Verdict(expectation, "missed" if exact else UNPROVEN, "unproven: " + shown(unproven[0]))
        return Verdict(expectation, "missed", "; ".join([shown(entry) for entry in findings] + [unchecked(report)]))
    other_kinds = [entry for entry in loud if entry["kind"] not in expectation.kinds]
    if other_kinds:
        return Verdict(expectation, "wrong kind", f"not {expectation.kinds}: {shown(other_kinds[0])}")
    marked = {*expectation.required, *expectation.allowed}
    astray = [entry for entry in loud if not {*lines_of(entry, expectation)} <= marked]
    if marked and astray:
        return Verdict(expectation, "wrong line", f"marked {sorted(marked)}: {shown(astray[0])}")
    if expectation.required:
        required = {*expectation.required}
        # A broken flag races like what it guards: naming the flag explains the fault as well.
        source = f"{expectation.program}.cu"
        named = [{*lines_of(entry, expectation), *finding_lines.waiting_lines_of(entry, source)} & (marked if expectation.allowed else required)
                 for entry in loud]
        enough = 2 if len(required) >= 2 and any(kind.startswith(("race", "missing")) for kind in expectation.kinds) else 1
        if not any(len(lines) >= enough for lines in named):
            return Verdict(expectation, "wrong line", f"both sides are {sorted(required)}: {shown(loud[0])}")
    return Verdict(expectation, OK)


class Matrix:
    def __init__(self, tool: pathlib.Path, folder: pathlib.Path, device: str, engine: str):
        self.tool, self.folder, self.device, self.engine = tool, folder, device, engine
        self.exact = device == "emulator" and engine != "ptx"
        self.seconds = 0.0

    def run(self, program: str, *words: str, hangs: bool = False) -> tuple[dict | None, str]:
        """The report, and what is wrong if there is none."""
        with tempfile.TemporaryDirectory(prefix="ops-debug-matrix-") as scratch:
            report = pathlib.Path(scratch) / "report.json"
            started = time.monotonic()
            limit = HANG_S if hangs and self.device == "gpu" else TIMEOUT_S[self.device]
            command = [str(self.tool), "run", "--device", self.device, "--engine", self.engine, "--check", CHECKS, "--replay-time", str(REPLAY_S),
                       "--format", "json", "--output", str(report), "--", str(self.folder / program), *words]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"},
                                       start_new_session=True)
            try:
                stdout, stderr = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the program, too, which may hold a GPU
                process.communicate()
                return None, f"still running after {limit} s"
            finally:
                self.seconds += time.monotonic() - started
            if not report.exists():
                return None, f"no report, exit code {process.returncode}: {stderr[-300:]}"
            return json.loads(report.read_text()), stdout + stderr

    def run_together(self, expectations: list[micro.Expectation], word: str) -> list[Verdict]:
        if not expectations:
            return []
        names = [e.name for e in expectations]
        report, text = self.run(expectations[0].program, word)
        if report is None:
            return [Verdict(e, "no report", text) for e in expectations]
        if f"{len(names)} kernels" not in text:
            return [Verdict(e, "did not run", text[-300:]) for e in expectations]
        verdicts = [judge(e, report, self.exact) for e in expectations]
        failed = [e.name for e in expectations if f"{e.name}: " in text.split("ran: ")[0]]
        known = [entry for entry in report["findings"] if counts(entry) and not any(of_program(entry, e) for e in expectations)]
        lost, holes = report.get("lost_events", 0), unchecked(report)
        for verdict in verdicts:
            if verdict.expectation.name in failed and verdict.outcome == OK:
                verdict.outcome, verdict.detail = "did not run", "the launch failed"
        if known:
            verdicts[0] = Verdict(expectations[0], "finding of nobody", shown(known[0]))
        if lost:
            verdicts[0] = Verdict(expectations[0], "events lost", str(lost))
        if holes:
            return [v if v.outcome != OK else Verdict(v.expectation, "not checked", holes) for v in verdicts]
        return verdicts

    def run_alone(self, expectation: micro.Expectation) -> Verdict:
        report, text = self.run(expectation.program, expectation.name, hangs="deadlock" in expectation.kinds)
        if report is None:
            return Verdict(expectation, "no report", text)
        verdict = judge(expectation, report, self.exact)
        if verdict.outcome == OK and not expectation.wrong and unchecked(report) and expectation.program != "streams":
            return Verdict(expectation, "not checked", unchecked(report))
        return verdict

    def run_all(self, expectations: list[micro.Expectation], jobs: int = 2) -> list[Verdict]:
        groups = collections.defaultdict(list)
        for e in expectations:
            if not e.alone:
                groups[e.program, e.verdict_word()].append(e)
        alone = [e for e in expectations if e.alone]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            together = [pool.submit(self.run_together, group, word) for (_, word), group in groups.items()]
            single = [pool.submit(self.run_alone, e) for e in alone]
            return [v for future in together for v in future.result()] + [future.result() for future in single]


def surprises(verdicts: list[Verdict], mode: str) -> list[str]:
    """What is neither right nor listed, and what is listed but right."""
    listed = matrix_misses.table(mode)
    fine = (OK, UNPROVEN) if mode.startswith("gpu") else (OK,)
    problems = []
    for verdict in verdicts:
        name = verdict.expectation.name
        reason = next((reason for pattern, reason in listed.items() if re.fullmatch(pattern, name)), None)
        if verdict.outcome in fine and reason is not None:
            problems.append(f"{name}: listed in matrix_misses.py ({reason}), but it is {verdict.outcome}: take it out")
        elif verdict.outcome not in fine and reason is None:
            problems.append(f"{name}: {verdict.outcome}: {verdict.detail}")
    for pattern, reason in listed.items():
        if not any(re.fullmatch(pattern, verdict.expectation.name) and verdict.outcome not in fine for verdict in verdicts):
            problems.append(f"matrix_misses.py: nothing is missed as {pattern!r} ({reason}): take it out")
    return problems


def format_table(verdicts: list[Verdict], mode: str) -> str:
    """One line per family: kernels, right, wrong, found, silent, unproven, missed, false alarms."""
    families = collections.defaultdict(list)
    for verdict in verdicts:
        parts = verdict.expectation.name.split("_")
        families["_".join(parts[:2]) if verdict.expectation.program != "streams" else "streams"].append(verdict)
    rows = [f"| {mode} | wrong | found | missed | right | silent | false alarms | unproven |", "| --- " * 8 + "|"]
    total = [0] * 7
    for family, members in [*sorted(families.items()), ("all", verdicts)]:
        wrong = [v for v in members if v.expectation.wrong]
        right = [v for v in members if not v.expectation.wrong]
        numbers = [len(wrong), sum(v.outcome == OK for v in wrong), sum(v.outcome not in (OK, UNPROVEN) for v in wrong), len(right),
                   sum(v.outcome == OK for v in right), sum(v.outcome not in (OK, UNPROVEN) for v in right),
                   sum(v.outcome == UNPROVEN for v in members)]
        rows.append(f"| {family} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--into", type=pathlib.Path, help="folder of sources and programs; kept and used again")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--device", choices=("emulator", "gpu"), default="emulator")
    parser.add_argument("--engine", choices=("auto", "ptx"), default="auto")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--programs", default="", metavar="REGEX", help="only these programs")
    parser.add_argument("--jobs", type=int, default=min(len(os.sched_getaffinity(0)), 16), help="programs at the same time")
    parser.add_argument("--details", action="store_true", help="every verdict that is not as wanted")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ops-debug-matrix-") as scratch:
        folder = (arguments.into or pathlib.Path(scratch)).resolve()
        expectations = [e for e in generate.generate(folder, MOST_KERNELS[arguments.device])
                        if re.search(arguments.only, e.name) and re.search(arguments.programs, e.program)]
        started = time.monotonic()
        compile_all(arguments.nvcc, folder, arguments.device, arguments.jobs, {e.program for e in expectations})
        compiled = time.monotonic()
        matrix = Matrix(arguments.build.resolve() / "ops-debug", folder, arguments.device, arguments.engine)
        if arguments.only:
            with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
                verdicts = list(pool.map(matrix.run_alone, expectations))
        else:
            verdicts = matrix.run_all(expectations, arguments.jobs)
        ended = time.monotonic()
    mode = f"{arguments.device}-{'exact' if matrix.exact else 'ptx'}"
    if arguments.details:
        for verdict in verdicts:
            if verdict.outcome != OK:
                print(f"{verdict.expectation.name}: {verdict.outcome}: {verdict.detail}")
    print(format_table(verdicts, mode))
    print(f"compiled in {compiled - started:.0f} s, run in {ended - compiled:.0f} s")
    problems = surprises(verdicts, mode) if not arguments.only and not arguments.programs else []
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
