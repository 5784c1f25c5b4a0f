"""Rows of run_tests.py for races, barriers, uninitialised memory and stream order: the exam of test/cases and test/matrix on a GPU.

    from sync_rows import add_sync_rows
    add_sync_rows(session, shared)  # groups "sync planted", "sync cases", "sync programs", "sync frameworks", "sync matrix"

On a GPU the instrumented kernel decides, and the CPU device where it cannot, by running the launch once more. What is left
unproven (too large, too slow to be run again) is counted in the cell and is no failure. Programs that hang are ended by the tool.
"""
import pathlib
import subprocess
import sys

from framework_rows import PROGRAMS, QUIET, caches
from gpu_session import BUILD, ROOT, Outcome, Session, expect, run_process

sys.path.insert(0, str(ROOT / "test/support"))
sys.path.insert(0, str(ROOT / "test/cases"))
import case_misses  # noqa: E402
import case_table  # noqa: E402
import planted_all  # noqa: E402

MODE = "gpu-ptx"
# Instructions of one architecture only need its own target.
ARCHITECTURES = {"gemm_wgmma": "90a"}
# What a program is right to be told besides: it makes a call fail on purpose.
BESIDES = {"device_services": ("failed-call",)}


def coverage_of(report: dict | None) -> str:
    coverage = report["coverage"] if report else {"launches": 0, "checked_launches": 0}
    return f"{coverage['checked_launches']} of {coverage['launches']}"


def add_planted_all(session: Session, shared: pathlib.Path) -> None:
    source = shared / "kernels/planted.cu"
    for fault in range(16):
        def check(fault=fault):
            result, report = session.run(f"planted{fault}_all", "run", "--check", "all", "--", session.build(source, "-cudart=static"), fault)
            problems = expect(result, report, 0 if fault in planted_all.SILENT else 86) or planted_all.all_problems(report, source, fault)
            return Outcome(problems, coverage_of(report), note=f"{len(report.get('unproven', []))} unproven" if report else "")

        wanted = "silent" if fault in planted_all.SILENT else "its own fault and nothing else"
        session.add(f"planted {fault}, --check all", wanted, check, "sync planted")
    session.add("overhead.cu, --check race,sync,init", "silent", lambda: expect(
        *session.run("overhead_sync", "run", "--check", "race,sync,init", "--", session.build(shared / "kernels/overhead.cu", "-cudart=static"), 1,
                     timeout=600), 0, kinds=[]), "sync planted", weight=3)


def add_case_rows(session: Session) -> None:
    for case in case_table.read_cases():
        for variant in ("wrong", "right"):
            if variant == "wrong" and case.is_trap:
                continue

            def check(case=case, variant=variant):
                wrong = variant == "wrong"
                result, report = session.run(f"sync_case_{case.name}_{variant}", "run", "--check", "all", "--",
                                             session.build(case.source, "-cudart=static", "-Xcompiler=-g"), case.name, variant,
                                             timeout=40 if wrong and "deadlock" in case.kinds else 120)
                problems, unproven = case_table.problems(report, case, wrong, exact=False)
                listed = case_misses.TABLES[MODE].get((case.name, variant))
                if listed is not None:
                    problems = [] if problems else [f"listed in case_misses.py ({listed}), but decided"]
                if not wrong and f"{case.name} right: cudaSuccess" not in result.stdout:
                    problems.append(f"the program says {result.stdout[-200:]!r}")
                return Outcome(problems, coverage_of(report), note="unproven" if unproven else f"listed: {listed}" if listed else "")

            session.add(f"sync case {case.name}, {variant}", " or ".join(case.needed) if variant == "wrong" else "silent", check, "sync cases")


def add_whole_programs(session: Session) -> None:
    for source in sorted((ROOT / "test/whole_kernels").glob("*.cu")):
        def build(source=source):
            architecture = ARCHITECTURES.get(source.stem, "90")
            program = session.folder / f"whole_{source.stem}"
            arguments = [session.nvcc, "-O2", "-std=c++17", "-lineinfo", "-cudart", "static", "-gencode",
                         f"arch=compute_{architecture},code=[compute_{architecture},sm_{architecture}]", "-o", str(program), str(source)]
            session.once.get(program, lambda: subprocess.run(arguments, check=True))
            return program

        def check(source=source, build=build):
            program = build()
            native = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=120).stdout
            result, report = session.run(f"whole_{source.stem}_sync", "run", "--check", "race,sync,init", "--", program, timeout=600)
            problems = expect(result, report, 0, native)
            problems += [f"{finding['kind']}: {finding['message']}" for finding in (report or {"findings": []})["findings"]
                         if finding.get("severity") != "note" and finding["kind"] not in BESIDES.get(source.stem, ())]
            return Outcome(problems, coverage_of(report), note=f"{len(report.get('unproven', []))} unproven" if report else "")

        session.add(f"{source.stem}, --check race,sync,init", "unchanged, silent", check, "sync programs", weight=2)


def add_triton(session: Session) -> None:
    """Right kernels as Triton compiles them, beside those of PyTorch, which are machine code only and not instrumented for races."""
    command = [sys.executable, str(PROGRAMS / "triton_kernels.py")]
    kernels = ("matmul_kernel", "softmax_kernel", "attention_kernel")

    def check():
        environment = {**QUIET, **caches(session.folder / "caches/triton_sync")}
        native, native_seconds = run_process(command, session.folder, environment, 300)
        result, report = session.run("triton_sync", "run", "--check", "race,sync,init", "--", *command, environment=environment, timeout=300)
        outcome = Outcome(expect(result, report, 0, native.stdout), coverage_of(report), native_seconds)
        for finding in report["findings"] if report else []:
            if finding.get("severity") != "note":
                outcome.problems.append(f"{finding['kind']}: {finding['message']}")
        for name in kernels if report else ():
            launches = [entry for entry in report["coverage"]["by_kernel"] if name in entry["name"]]
            if not launches or any(entry["checked_launches"] < entry["launches"] for entry in launches):
                outcome.problems.append(f"{name} is not checked")
        outcome.note = f"{len(report.get('unproven', []))} unproven" if report else ""
        return outcome

    session.add("Triton matmul, softmax and attention, --check race,sync,init", "unchanged, silent", check, "sync frameworks", weight=4)


def add_matrix(session: Session) -> None:
    def check():
        result = subprocess.run([sys.executable, str(ROOT / "test/matrix/evaluate.py"), "--build", str(BUILD), "--nvcc", session.nvcc, "--device", "gpu",
                                 "--engine", "ptx", "--details", "--into", str(session.folder / "matrix")], capture_output=True, text=True, timeout=1200)
        session.keep("sync_matrix", result.stdout + result.stderr)
        last = [line for line in result.stdout.splitlines() if line.startswith("| all |")]
        problems = [] if result.returncode == 0 else (result.stdout + result.stderr).splitlines()[-3:]
        return Outcome(problems, note="wrong, found, missed, right, silent, false alarms, unproven: " + last[0] if last else "")

    session.add("matrix of micro-kernels", "no miss, no false alarm", check, "sync matrix", weight=5)


def add_sync_rows(session: Session, shared: pathlib.Path) -> None:
    add_planted_all(session, shared)
    add_case_rows(session)
    add_whole_programs(session)
    add_triton(session)
    add_matrix(session)
