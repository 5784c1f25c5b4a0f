"""The cases of this folder, read from the comments of their sources, and what a report has to say about each.

    python3 case_table.py --build BUILD [--into FOLDER] [--device emulator|gpu] [--engine auto|ptx] [--only REGEX]

prints one row per program: its kind, and whether the faulty program was found and the right one silent.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "support"))
import finding_lines  # noqa: E402

CHECKS = "all"
TIMEOUT_S = 120
# What comes with a fault and is none of its own: the call that tells the program of its ended kernel.
BESIDES = ("failed-call",)


@dataclasses.dataclass
class Case:
    name: str
    source: pathlib.Path
    needed: list[str]  # one of these kinds has to be found; empty: a trap
    kinds: list[str]  # these may be
    title: str
    required: set[int]
    allowed: set[int]

    @property
    def is_trap(self) -> bool:
        return not self.needed


def read_cases() -> list[Case]:
    cases = []
    for source in sorted(FOLDER.glob("*.cu")):
        text = source.read_text()
        lines = text.splitlines()
        run_by = set(re.findall(r'\{"(\w+)", \w+\}', text))
        for line in lines:
            opened = re.match(r"// (CASE|TRAP) (\w+)(?: ([\w,|-]+))?: (.*)", line)
            if opened is None:
                continue
            _, name, kinds, title = opened.groups()
            if name not in run_by:
                sys.exit(f"{source}: {name} is described, but main does not run it")
            run_by.discard(name)
            marks = {mark: {number for number, text in enumerate(lines, 1)
                            for words in re.findall(rf"{re.escape(mark)} ([\w ]+)$", text) if name in words.split()} for mark in ("//!", "//?")}
            cases.append(Case(name, source, kinds.split(",")[0].split("|") if kinds else [], re.split(r"[|,]", kinds) if kinds else [], title, marks["//!"], marks["//?"]))
            if kinds and not marks["//!"] and not marks["//?"]:
                sys.exit(f"{source}: {name} marks no line")
        if run_by:
            sys.exit(f"{source}: no description of {sorted(run_by)}")
    return cases


def compile_all(nvcc: str, folder: pathlib.Path, device: str, jobs: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    code = (["-gencode", "arch=compute_90,code=sm_90"] if device == "gpu" else []) + ["-gencode", "arch=compute_90,code=compute_90"]
    newest_header = (FOLDER / "cases.h").stat().st_mtime

    def one(source: pathlib.Path) -> None:
        program = folder / source.stem
        if program.exists() and program.stat().st_mtime >= max(source.stat().st_mtime, newest_header):
            return
        subprocess.run([nvcc, "-O2", "-std=c++17", "-lineinfo", "-Xcompiler", "-g", "-cudart", "static" if device == "gpu" else "shared", *code, "-o",
                        str(program), str(source)], check=True, capture_output=True, text=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, sorted(FOLDER.glob("*.cu"), key=lambda path: -path.stat().st_size)))


def shown(entry: dict) -> str:
    lines = [side.get("line") for side in entry.get("accesses") or [entry]]
    return f"{entry.get('severity', '')} {entry.get('kind')} lines {lines}: {entry.get('message', '')[:160]}"


def faults(report: dict, case: Case) -> list[dict]:
    """Findings that are no mere information; of the cases of redundant synchronisation, those too."""
    if case.needed == ["redundant-sync"]:
        return [entry for entry in report["findings"] if entry["kind"] not in BESIDES]
    return [entry for entry in report["findings"] if entry.get("severity") != "note" and entry["kind"] not in (*BESIDES, "redundant-sync")]


def problems(report: dict | None, case: Case, wrong: bool, exact: bool) -> tuple[list[str], bool]:
    """What is wrong with a report; and whether it leaves the case unproven."""
    if report is None:
        return ["no report"], False
    found, unproven = faults(report, case), report.get("unproven", [])
    coverage = report.get("coverage", {})
    if coverage.get("checked_launches", 0) < coverage.get("launches", 1) and not wrong:
        return [f"{coverage.get('checked_launches', 0)} of {coverage.get('launches', 0)} launches checked"], False
    if not wrong:
        if found:
            return [f"false alarm: {shown(entry)}" for entry in found], False
        if unproven:
            return ([f"unproven: {shown(unproven[0])}"] if exact else []), True
        return [], False
    if not any(entry["kind"] in case.needed for entry in found):
        if unproven and not exact:
            return [], True
        seen = "; ".join(shown(entry) for entry in found + unproven)
        return [f"missed: no {' or '.join(case.needed)}" + (f", but {seen}" if seen else "")], bool(unproven)
    wrong_things = [f"not its fault: {shown(entry)}" for entry in found if entry["kind"] not in case.kinds]
    marked = case.required | case.allowed
    for entry in found:
        lines = set(finding_lines.lines_of(entry, case.source.name))
        if entry["kind"] in case.kinds and not lines <= marked:
            wrong_things.append(f"line: marked {sorted(marked)}: {shown(entry)}")
    named = {line for entry in found for lines in (finding_lines.lines_of, finding_lines.waiting_lines_of) for line in lines(entry, case.source.name)}
    if case.required and not named & case.required:
        wrong_things.append(f"no line of {sorted(case.required)}: {shown(found[0])}")
    return wrong_things, False


class Runner:
    def __init__(self, tool: pathlib.Path, folder: pathlib.Path, device: str, engine: str):
        self.tool, self.folder, self.device, self.engine = tool, folder, device, engine
        self.exact = device == "emulator" and engine != "ptx"
        self.mode = f"{device}-{'exact' if self.exact else 'ptx'}"

    def run(self, case: Case, wrong: bool) -> tuple[list[str], bool]:
        with tempfile.TemporaryDirectory(prefix="ops-debug-case-") as scratch:
            report = pathlib.Path(scratch) / "report.json"
            words = [case.name, "wrong" if wrong else "right"]
            try:
                result = subprocess.run([str(self.tool), "run", "--device", self.device, "--engine", self.engine, "--check", CHECKS,
                                         "--format", "json", "--output", str(report), "--", str(self.folder / case.source.stem), *words],
                                        capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, "LC_ALL": "C"})
            except subprocess.TimeoutExpired:
                return [f"still running after {TIMEOUT_S} s"], False
            if not report.exists():
                return [f"no report, exit code {result.returncode}: {result.stderr[-300:]}"], False
            seen, unproven = problems(json.loads(report.read_text()), case, wrong, self.exact)
            errors = wrong and not seen and not unproven and case.needed != ["redundant-sync"]
            if not seen and result.returncode not in ((86, 0) if errors else (0,)):
                seen.append(f"exit code {result.returncode}: {result.stderr[-300:]}")
            if not wrong and f"{case.name} right: cudaSuccess" not in result.stdout:
                seen.append(f"the program says {result.stdout[-200:]!r}")
            return seen, unproven


def format_table(rows: list[tuple[Case, list[str], bool, list[str], bool]], mode: str) -> str:
    """One row per case: faulty program found, right program silent."""
    def word(seen: list[str], unproven: bool, good: str) -> str:
        return "UNPROVEN" if unproven and not seen else good if not seen else "NO: " + seen[0]

    lines = [f"| case ({mode}) | kind | faulty | right | what |", "| --- " * 5 + "|"]
    for case, wrong, wrong_unproven, right, right_unproven in rows:
        faulty = "" if case.is_trap else word(wrong, wrong_unproven, "found")
        lines.append(f"| {case.name} | {' or '.join(case.needed) or 'trap'} | {faulty} | {word(right, right_unproven, 'silent')} | {case.title} |")
    return "\n".join(line.replace("\n", " ") for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--into", type=pathlib.Path, help="folder of programs; kept and used again")
    parser.add_argument("--device", choices=("emulator", "gpu"), default="emulator")
    parser.add_argument("--engine", choices=("auto", "ptx"), default="auto")
    parser.add_argument("--only", default="", metavar="REGEX")
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    with tempfile.TemporaryDirectory(prefix="ops-debug-cases-") as scratch:
        folder = (arguments.into or pathlib.Path(scratch)).resolve()
        compile_all(nvcc, folder, arguments.device)
        runner = Runner(arguments.build.resolve() / "ops-debug", folder, arguments.device, arguments.engine)
        cases = [case for case in read_cases() if re.search(arguments.only, case.name)]

        def row(case: Case):
            wrong = ([], False) if case.is_trap else runner.run(case, True)
            return case, *wrong, *runner.run(case, False)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            rows = list(pool.map(row, cases))
    print(format_table(rows, runner.mode))
    return 1 if any(wrong or right for _, wrong, _, right, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
