"""Rows of run_tests.py for the second engine: programs without PTX (sass_cases.cu), each with a fault and right.

    from sass_rows import add_sass_cases
    add_sass_cases(session)
"""
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCE = FOLDER / "sass_cases.cu"

# case: kinds of the findings of the wrong one, and what the first one says.
CASES = {
    "device_function": (["oob-global"], {"function": "fetch"}),
    "inlined": (["oob-global"], {"kernel": "inlined"}),
    "tail": (["oob-global"], {"access_bytes": 1}),
    "vector": (["oob-global"], {"access_bytes": 16}),
    "atomic": (["oob-global"], {"kernel": "add_atomically"}),
    "async_copy": (["oob-global"], {"kernel": "async_copy"}),
    "bulk_copy": (["oob-global"], {"kernel": "bulk_copy"}),
    "bulk_store": (["oob-global"], {"kernel": "bulk_store"}),
    "generic": (["oob-global"], {"kernel": "generic_spaces"}),
    "graph": (["use-after-free"], {"kernel": "copy"}),
    "node": (["use-after-free"], {"kernel": "copy"}),
    "cooperative": (["oob-global"], {"kernel": "all_together"}),
    "wild": (["failed-call", "oob-global"], {"kernel": "wild"}),
    "many": (["oob-global"], {"kernel": "many", "count": 100}),
    "threads": (["oob-global"], {"kernel": "copy", "count": 4}),
    "contexts": (["oob-global"], {"kernel": "copy", "count": 2}),
    "modules": (["oob-global", "oob-global"], {}),
}


def line_of(case: str) -> int | None:
    for number, text in enumerate(SOURCE.read_text().splitlines(), 1):
        if "// fault:" in text and case in text.split("// fault:")[1].split():
            return number
    return None


def problems_of(report: dict | None, case: str, with_lines: bool) -> list[str]:
    kinds, words = CASES[case]
    findings = report["findings"] if report else []
    problems = []
    if sorted(finding["kind"] for finding in findings) != kinds:
        return [f"findings {[(finding['kind'], finding.get('kernel')) for finding in findings]}"]
    first = findings[0]
    if any(finding.get("engine") != "sass" for finding in findings if finding["kind"] != "failed-call"):
        problems.append("not found by the engine for machine code")
    for key, value in words.items():
        held = first.get(key)
        if held != value and not (isinstance(value, str) and value in str(held)):
            problems.append(f"{key} {held!r} instead of {value!r}")
    wanted = line_of(case) if with_lines else None
    if wanted is not None and first.get("line") != wanted:
        problems.append(f"line {first.get('line')} instead of {wanted}")
    if case == "modules" and sorted(finding["kernel"] for finding in findings) != ["first", "second"]:
        problems.append(f"kernels {[finding['kernel'] for finding in findings]}")
    return problems


def add_sass_cases(session) -> None:
    def cubin() -> pathlib.Path:
        file = session.folder / "sass_module.cubin"

        def make():
            subprocess.run([session.nvcc, "-O2", "-lineinfo", "-arch=sm_90", "-cubin", "-o", str(file),
                            str(FOLDER / "sass_module.cu")], check=True)
            return file

        return session.once.get(file, make)

    def check(case: str, wrong: bool, flags: tuple[str, ...]) -> list[str]:
        program = session.build(SOURCE, *flags, "-lcuda", ptx=False)
        arguments = [case, "wrong" if wrong else "right", *([cubin()] if case == "modules" else [])]
        result, report = session.run(f"sass_{case}_{arguments[1]}", "run", "--check", "memory", "--", program, *arguments)
        problems = [] if result.returncode == (86 if wrong else 0) else [f"exit code {result.returncode}"]
        coverage = report["coverage"] if report else {"launches": 0, "checked_launches": 0}
        if coverage["checked_launches"] < coverage["launches"] or coverage["launches"] == 0:
            problems.append(f"{coverage['checked_launches']} of {coverage['launches']} launches checked")
        if not wrong:
            return problems + ([f"findings {report['findings']}"] if report and report["findings"] else [])
        return problems + problems_of(report, case, with_lines=True)

    for case, (kinds, _) in CASES.items():
        session.add(f"SASS {case}", f"{', '.join(sorted(set(kinds)))}, with its line",
                    lambda case=case: check(case, True, ("-cudart=static",)), "machine code")
        session.add(f"SASS {case}, right", "silent",
                    lambda case=case: check(case, False, ("-cudart=static",)), "machine code")
