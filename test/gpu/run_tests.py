#!/usr/bin/env python3
"""All GPU tests in one command; prints one table. Needs a built tree, nvcc, an NVIDIA GPU, and for the rows of group
"frameworks" PyTorch, Triton, CuPy, JAX and ONNX Runtime.

    test/gpu/run_tests.py [--shared ../shared] [--output DIR] [--only REGEX] [--group NAME] [--jobs N]
    test/gpu/run_tests.py --native      the framework programs by themselves, twice: do they work and print the same?

Programs are compiled here with a static cudart, SASS and PTX, as users build them. Rows run side by side, so their times
show no more than the order of magnitude (scripts/bench_*.py measure). Exit code 1 if a row is not ok.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/support"))
import cases  # noqa: E402
import planted  # noqa: E402
from framework_rows import add_frameworks  # noqa: E402
from gpu_session import BUILD, Session, expect, format_table  # noqa: E402
from sass_rows import add_sass_cases  # noqa: E402
from sync_rows import add_sync_rows  # noqa: E402

# Ways to make a kernel node of a graph (test/end_to_end/programs/graph_nodes.cu).
NODES = ["explicit", "any-node", "set-params", "hand-back", "exec-set-params", "update", "child", "conditional", "disabled"]


def add_planted(session: Session, source: pathlib.Path) -> None:
    def run(name: str, *arguments, flags=()):
        program = session.build(source, *(flags or ["-cudart=static"]))
        return session.run(name, "run", "--check", "memory", *arguments[:-1], "--", program, arguments[-1])

    for expected in planted.EXPECTED:
        def check(expected=expected):
            result, report = run(f"planted{expected.fault}", expected.fault)
            return expect(result, report, 86) or planted.problems(report, source, expected)

        session.add(f"planted {expected.fault}", f"{expected.kind} in {expected.kernel}", check, "planted")
    for fault in planted.SILENT:
        session.add(f"planted {fault}", "silent", lambda fault=fault: expect(
            *run(f"planted{fault}", fault), 0, kinds=[]), "planted")
    session.add("planted 1, --on-error trap", "oob-global", lambda: expect(
        *run("planted_trap", "--on-error", "trap", 1), 86, kinds=["oob-global"]), "planted")
    for expected in planted.EXPECTED:
        session.add(f"planted {expected.fault}, -G build", expected.kind, lambda expected=expected: expect(
            *run(f"planted{expected.fault}_g", expected.fault, flags=["-G"]), 86, kinds=[expected.kind]), "planted")


def add_machine_code(session: Session, source: pathlib.Path) -> None:
    """Programs without PTX, and programs with both under --engine sass: the second engine finds what it promises."""
    for flags, ptx in ((["--engine", "auto"], False), (["--engine", "sass"], True)):
        words = "SASS only" if not ptx else "--engine sass"

        def run(fault: int, flags=flags, ptx=ptx):
            return session.run(f"planted{fault}_sass_{ptx}", "run", "--check", "memory", *flags, "--",
                               session.build(source, "-cudart=static", ptx=ptx), fault)

        for expected in planted.EXPECTED:
            if expected.fault not in (1, 12, 15):
                continue

            def check(expected=expected, run=run):
                result, report = run(expected.fault)
                problems = expect(result, report, 86, kinds=[expected.kind])
                finding = report["findings"][0] if not problems else {}
                if finding and finding.get("line") != planted.line_of(source, expected.statement):
                    problems.append(f"line {finding.get('line')}")
                if finding and expected.kernel not in finding["kernel"]:
                    problems.append(f"kernel {finding['kernel']}")
                coverage = report["coverage"] if report else {"launches": 0, "checked_launches": 0}
                if coverage["checked_launches"] < coverage["launches"]:
                    problems.append(f"{coverage['checked_launches']} of {coverage['launches']} launches checked")
                return problems

            session.add(f"planted {expected.fault}, {words}", f"{expected.kind} in {expected.kernel}", check, "machine code")
        for fault in (4, 9, 13):
            session.add(f"planted {fault}, {words}", "silent", lambda fault=fault, run=run: expect(
                *run(fault), 0, kinds=[]), "machine code")


def add_cases(session: Session) -> None:
    def run(name: str, twin: str):
        return session.run(f"case_{name}_{twin}", "run", "--check", "memory", "--",
                           session.build(cases.SOURCE, "-cudart=static"), name, twin)

    for name, (kind, _, _) in cases.EXPECTED.items():
        def check(name=name):
            result, report = run(name, "wrong")
            return expect(result, report, 86, "no error\n") or cases.problems(report, name)

        session.add(f"case {name}, wrong", kind, check, "cases")
        session.add(f"case {name}, right", "silent", lambda name=name: expect(
            *run(name, "right"), 0, "no error\n", []), "cases")


def add_matrix_cases(session: Session) -> None:
    def program():
        return session.build(ROOT / "test/gpu/matrix_cases.cu", "-cudart=static")

    for name, count in (("load", 2), ("store", 2)):  # rows behind the end
        def check_wrong(name=name, count=count):
            result, report = session.run(f"matrix_{name}_wrong", "run", "--check", "memory", "--", program(), name, "wrong")
            problems = expect(result, report, 86, "0 no error\n", ["oob-shared"])
            seen = sum(finding["count"] for finding in report["findings"]) if report else 0
            return problems or ([] if seen == count else [f"{seen} accesses, not {count}"])

        def check_right(name=name):
            native = subprocess.run([str(program()), name, "right"], capture_output=True, text=True, check=True).stdout
            return expect(*session.run(f"matrix_{name}_right", "run", "--check", "memory", "--", program(), name, "right"), 0,
                          native, [])

        session.add(f"matrix {name}, wrong", "oob-shared", check_wrong, "matrix")
        session.add(f"matrix {name}, right", "same result, silent", check_right, "matrix")


def add_programs(session: Session) -> None:
    def check(name: str, program, arguments, *wanted):
        return expect(*session.run(name, "run", "--check", "memory", "--", program(), *arguments), *wanted)

    for cudart in ("static", "shared"):
        def build(cudart=cudart):
            return session.build(ROOT / "test/end_to_end/programs/runtime_api.cu", f"-cudart={cudart}")

        session.add(f"runtime program -cudart={cudart}", "unchanged, silent", lambda cudart=cudart, build=build: check(
            f"runtime_{cudart}", build, [], 0, "sum 1998.0 no error\n", []), "programs")
        session.add(f"runtime program -cudart={cudart}, faulty", "oob-global", lambda cudart=cudart, build=build: check(
            f"runtime_{cudart}_faulty", build, ["overflow"], 86, None, ["oob-global"]), "programs")
    for name in ("end_to_end_driver_dlopen", "end_to_end_driver_linked"):
        def program(name=name):
            return BUILD / "test/programs" / name

        session.add(name, "unchanged, silent", lambda name=name, program=program: check(
            name, program, [], 0, "sum 499500\n", []), "programs")
        session.add(f"{name}, faulty", "oob-global", lambda name=name, program=program: check(
            f"{name}_faulty", program, ["overflow"], 86, "sum 499500\n", ["oob-global"]), "programs")
    session.add("own protobuf and abseil", "unchanged, silent", lambda: check(
        "own_protobuf", lambda: BUILD / "test/programs/end_to_end_own_protobuf", [], 0, "protobuf 42\ndriver 0 1\n", []),
        "programs")


def add_graphs(session: Session) -> None:
    def check(source: str, arguments: list[str], code: int, stdout: str | None, kinds: list[str]) -> list[str]:
        result, report = session.run("_".join([source, *arguments]), "run", "--check", "memory", "--", session.build(
            ROOT / "test/end_to_end/programs" / source, "-cudart=static"), *arguments)
        problems = expect(result, report, code, stdout, kinds)
        coverage = report["coverage"] if report else {"launches": 0, "checked_launches": 0}
        if coverage["checked_launches"] < coverage["launches"] or coverage["launches"] == 0:
            problems.append(f"{coverage['checked_launches']} of {coverage['launches']} launches checked")
        return problems

    twice = ["oob-global", "oob-global"]  # load and store
    wanted = [("captured graph", "graph.cu", [], 0, "cudaSuccess cudaSuccess cudaSuccess 33\n", []),
              ("captured graph, faulty", "graph.cu", ["overflow"], 86, "cudaSuccess cudaSuccess cudaSuccess 33\n", twice)]
    for way in NODES:
        wanted += [(f"graph node, {way}", "graph_nodes.cu", [way], 0, "0 failures, last value 3\n", []),
                   (f"graph node, {way}, faulty", "graph_nodes.cu", [way, "overflow"], 86, "0 failures, last value 3\n", twice)]
    wanted += [("graph, memory freed before the replay", "graph_nodes.cu", ["freed"], 86, None,
                ["use-after-free", "use-after-free"]),
               ("graph, memory kept", "graph_nodes.cu", ["kept"], 0, None, [])]
    for name, source, arguments, code, stdout, kinds in wanted:
        session.add(name, ", ".join(dict.fromkeys(kinds)) or "unchanged, silent",
                    lambda source=source, arguments=arguments, code=code, stdout=stdout, kinds=kinds: check(
                        source, arguments, code, stdout, kinds), "graphs")


def add_overhead(session: Session, source: pathlib.Path) -> None:
    session.add("overhead.cu, full size", "silent", lambda: expect(
        *session.run("overhead", "run", "--check", "memory", "--", session.build(source, "-cudart=static"), 1), 0, kinds=[]),
        "programs")


def add_examples(session: Session) -> None:
    arguments = ("--input-shape", "1024x1024", "--check-boundary")
    session.add("examples/matmul_kernel.cu, --debug-build", "oob-global", lambda: expect(
        *session.run("matmul_debug", "check-memory", "--kernel", ROOT / "examples/matmul_kernel.cu", *arguments,
                     "--debug-build"), 86, kinds=["oob-global"]), "examples")
    for name, code, kinds in (("matmul_kernel.cu", 86, ["oob-global"]), ("matmul_kernel_fixed.cu", 0, [])):
        session.add(f"examples/{name}", ", ".join(kinds) or "silent", lambda name=name, code=code, kinds=kinds: expect(
            *session.run(name, "check-memory", "--kernel", ROOT / "examples" / name, *arguments), code, kinds=kinds),
            "examples")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    parser.add_argument("--output", type=pathlib.Path, help="folder for the output of every row")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name contains this")
    parser.add_argument("--group", action="append", default=[], help="rows of this group; may be repeated")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="rows at the same time")
    parser.add_argument("--native", action="store_true", help="framework programs only, without ops-debug")
    parser.add_argument("--list", action="store_true", help="print names and groups, run nothing")
    arguments = parser.parse_args()
    if arguments.output:
        arguments.output = arguments.output.resolve()
        arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ops-debug-gpu-tests-") as folder:
        session = Session(pathlib.Path(folder), arguments.output)
        if not arguments.native:
            add_planted(session, arguments.shared.resolve() / "kernels/planted.cu")
            add_overhead(session, arguments.shared.resolve() / "kernels/overhead.cu")
            add_machine_code(session, arguments.shared.resolve() / "kernels/planted.cu")
            add_sass_cases(session)
            add_cases(session)
            add_matrix_cases(session)
            add_programs(session)
            add_graphs(session)
            add_examples(session)
            add_sync_rows(session, arguments.shared.resolve())
        add_frameworks(session, arguments.shared, arguments.native)
        unknown = set(arguments.group) - set(session.groups())
        if unknown:
            parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(session.groups())}")
        rows = session.execute(arguments.jobs, arguments.only, arguments.group, dry=arguments.list)
    if arguments.list:
        print("\n".join(f"{row.group}: {row.name} ({row.wanted})" for row in rows))
        return 0
    table = format_table(rows)
    print(table)
    if arguments.output:
        (arguments.output / "table.md").write_text(table + "\n")
    return 1 if not rows or any(row.outcome.problems for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
