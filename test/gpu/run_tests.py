#!/usr/bin/env python3
"""All GPU tests in one command; prints one table. Needs a built tree, nvcc and an NVIDIA GPU.

    test/gpu/run_tests.py [--shared ../shared] [--output DIR]

Programs are compiled here with a static cudart, SASS and PTX, as users build them. Exit code 1 if a row is not ok.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "test/support"))
import cases  # noqa: E402
import planted  # noqa: E402


@dataclasses.dataclass
class Row:
    name: str
    wanted: str
    seen: str
    ok: bool
    seconds: float


class Session:
    def __init__(self, folder: pathlib.Path, output: pathlib.Path | None):
        self.folder, self.output = folder, output
        self.nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        self.rows: list[Row] = []

    def build(self, source: pathlib.Path, *flags: str) -> pathlib.Path:
        program = self.folder / (source.stem + "_" + "_".join(flag.strip("-") for flag in flags))
        subprocess.run([self.nvcc, "-O2", "-std=c++17", "-lineinfo", "-gencode", "arch=compute_90,code=sm_90", "-gencode",
                        "arch=compute_90,code=compute_90", *flags, "-o", str(program), str(source)], check=True)
        return program

    def run(self, name: str, *arguments) -> tuple[subprocess.CompletedProcess, dict | None]:
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        command, *rest = [str(argument) for argument in arguments]
        result = subprocess.run([str(BUILD / "ops-debug"), command, "--device", "gpu", "--format", "json", "--output",
                                 str(report), *rest], capture_output=True, text=True, timeout=300)
        if self.output:
            (self.output / f"{name}.txt").write_text(
                result.stdout + result.stderr + (report.read_text() if report.exists() else "no report\n"))
        return result, json.loads(report.read_text()) if report.exists() else None

    def add(self, name: str, wanted: str, check) -> None:
        """check() -> list of problems."""
        start = time.perf_counter()
        try:
            found = check()
        except Exception as error:  # a broken row must not hide the others
            found = [f"{type(error).__name__}: {error}"]
        self.rows.append(Row(name, wanted, "; ".join(found) or "as wanted", not found, time.perf_counter() - start))


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


def add_planted(session: Session, source: pathlib.Path) -> None:
    program = session.build(source, "-cudart=static")
    for expected in planted.EXPECTED:
        def check(expected=expected):
            result, report = session.run(f"planted{expected.fault}", "run", "--check", "memory", "--", program, expected.fault)
            return expect(result, report, 86) or planted.problems(report, source, expected)

        session.add(f"planted {expected.fault}", f"{expected.kind} in {expected.kernel}", check)
    for fault in planted.SILENT:
        def check(fault=fault):
            return expect(*session.run(f"planted{fault}", "run", "--check", "memory", "--", program, fault), 0, kinds=[])

        session.add(f"planted {fault}", "silent", check)


    session.add("planted 1, --on-error trap", "oob-global", lambda: expect(
        *session.run("planted_trap", "run", "--check", "memory", "--on-error", "trap", "--", program, 1), 86,
        kinds=["oob-global"]))
    debug = session.build(source, "-G")
    for expected in planted.EXPECTED:
        session.add(f"planted {expected.fault}, -G build", expected.kind, lambda expected=expected: expect(
            *session.run("planted_g", "run", "--check", "memory", "--", debug, expected.fault), 86, kinds=[expected.kind]))


def add_cases(session: Session) -> None:
    program = session.build(cases.SOURCE, "-cudart=static")
    for name, (kind, _, _) in cases.EXPECTED.items():
        def check(name=name):
            result, report = session.run(f"case_{name}", "run", "--check", "memory", "--", program, name, "wrong")
            return expect(result, report, 86, "no error\n") or cases.problems(report, name)

        session.add(f"case {name}, wrong", kind, check)
        session.add(f"case {name}, right", "silent", lambda name=name: expect(
            *session.run(f"case_{name}", "run", "--check", "memory", "--", program, name, "right"), 0, "no error\n", []))


def add_matrix_cases(session: Session) -> None:
    program = session.build(ROOT / "test/gpu/matrix_cases.cu", "-cudart=static")
    for name, count in (("load", 2), ("store", 2)):  # rows behind the end
        native = subprocess.run([str(program), name, "right"], capture_output=True, text=True, check=True).stdout

        def check_wrong(name=name, count=count):
            result, report = session.run(f"matrix_{name}", "run", "--check", "memory", "--", program, name, "wrong")
            problems = expect(result, report, 86, "0 no error\n", ["oob-shared"])
            seen = sum(finding["count"] for finding in report["findings"]) if report else 0
            return problems or ([] if seen == count else [f"{seen} accesses, not {count}"])

        session.add(f"matrix {name}, wrong", "oob-shared", check_wrong)
        session.add(f"matrix {name}, right", "same result, silent", lambda name=name, native=native: expect(
            *session.run(f"matrix_{name}", "run", "--check", "memory", "--", program, name, "right"), 0, native, []))


def add_programs(session: Session) -> None:
    source = ROOT / "test/end_to_end/programs/runtime_api.cu"
    for flags in (["-cudart=static"], ["-cudart=shared"]):
        program = session.build(source, *flags)
        session.add(f"runtime program {flags[0]}", "unchanged, silent", lambda program=program: expect(
            *session.run("runtime", "run", "--check", "memory", "--", program), 0, "sum 1998.0 no error\n", []))
        session.add(f"runtime program {flags[0]}, faulty", "oob-global", lambda program=program: expect(
            *session.run("runtime_faulty", "run", "--check", "memory", "--", program, "overflow"), 86, None, ["oob-global"]))
    for name in ("end_to_end_driver_dlopen", "end_to_end_driver_linked"):
        program = BUILD / "test/programs" / name
        session.add(name, "unchanged, silent", lambda program=program, name=name: expect(
            *session.run(name, "run", "--check", "memory", "--", program), 0, "sum 499500\n", []))
        session.add(f"{name}, faulty", "oob-global", lambda program=program, name=name: expect(
            *session.run(name, "run", "--check", "memory", "--", program, "overflow"), 86, "sum 499500\n", ["oob-global"]))
    protobuf = BUILD / "test/programs/end_to_end_own_protobuf"
    session.add("own protobuf and abseil", "unchanged, silent", lambda: expect(
        *session.run("own_protobuf", "run", "--check", "memory", "--", protobuf), 0, "protobuf 42\ndriver 0 1\n", []))


def add_examples(session: Session) -> None:
    arguments = ("--input-shape", "1024x1024", "--check-boundary")
    session.add("examples/matmul_kernel.cu, --debug-build", "oob-global", lambda: expect(
        *session.run("matmul_debug", "check-memory", "--kernel", ROOT / "examples/matmul_kernel.cu", *arguments,
                     "--debug-build"), 86, kinds=["oob-global"]))
    for name, code, kinds in (("matmul_kernel.cu", 86, ["oob-global"]), ("matmul_kernel_fixed.cu", 0, [])):
        session.add(f"examples/{name}", ", ".join(kinds) or "silent", lambda name=name, code=code, kinds=kinds: expect(
            *session.run(name, "check-memory", "--kernel", ROOT / "examples" / name, *arguments), code, kinds=kinds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    parser.add_argument("--output", type=pathlib.Path, help="folder for the output of every row")
    arguments = parser.parse_args()
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(pathlib.Path(folder), arguments.output)
        add_planted(session, arguments.shared / "kernels/planted.cu")
        overhead = session.build(arguments.shared / "kernels/overhead.cu", "-cudart=static")
        session.add("overhead.cu, full size", "silent", lambda: expect(
            *session.run("overhead", "run", "--check", "memory", "--", overhead, 1), 0, kinds=[]))
        add_cases(session)
        add_matrix_cases(session)
        add_programs(session)
        add_examples(session)
    print("| test | wanted | seen | ok | s |\n| --- | --- | --- | --- | --- |")
    for row in session.rows:
        print(f"| {row.name} | {row.wanted} | {row.seen} | {'yes' if row.ok else 'NO'} | {row.seconds:.1f} |")
    failed = sum(not row.ok for row in session.rows)
    print(f"{len(session.rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
