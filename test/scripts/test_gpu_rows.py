"""How test/gpu and the training benchmark judge what they see; the GPU itself is not needed."""

import pathlib
import re
import subprocess
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test/gpu"), str(ROOT / "scripts")]

import bench_training  # noqa: E402
import framework_rows  # noqa: E402
from framework_rows import Wanted  # noqa: E402
from gpu_session import Once, Outcome, Session, expect, format_table, run_process  # noqa: E402


def finding(**changes):
    base = {"kind": "oob-global", "kernel": "fill", "file": "/p/a.py", "line": 3, "message": "4-byte store",
            "allocation": {"size_bytes": 4000, "tensor": {"shape": [10, 100], "dtype": "float32",
                                                          "allocation_stack": [{"file": "/p/a.py", "line": 1}]}}}
    return {**base, **changes}


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("one\ntwo\nstore  # planted\n")
    return file


def test_finding_as_wanted(source):
    wanted = Wanted("oob-global", [10, 100], "fill", "# planted", "a.py")
    assert framework_rows.findings_problems([finding(file=str(source))], (wanted,)) == []


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"kind": "misaligned"}, "is misaligned, not oob-global"),
        ({"allocation": {"tensor": {"shape": [9], "dtype": "float32", "allocation_stack": [{"file": "/p/a.py"}]}}},
         "float32[9], not float32[10, 100]"),
        ({"allocation": {"tensor": {"shape": [10, 100], "dtype": "float32"}}}, "stack [], without a.py"),
        ({"kernel": "other"}, "in kernel other, not fill"),
        ({"line": 2}, "on line 2, not 3"),
        ({"file": "/elsewhere/b.py"}, "in file /elsewhere/b.py, not a.py"),
    ],
)
def test_finding_that_differs(source, changes, problem):
    wanted = Wanted("oob-global", [10, 100], "fill", "# planted", "a.py", allocated_in="a.py")
    found = framework_rows.findings_problems([finding(**{"file": str(source), **changes})], (wanted,))
    assert len(found) == 1 and problem in found[0]


def test_no_finding_and_one_too_many():
    assert framework_rows.findings_problems([], (Wanted("oob-global"),)) == ["no finding, oob-global wanted"]
    assert framework_rows.findings_problems([finding()], ()) == ["more findings: oob-global in fill"]
    both = [finding(), finding(kind="use-after-free")]
    assert framework_rows.findings_problems(both, (Wanted("oob-global"),)) == ["more findings: use-after-free in fill"]
    assert framework_rows.findings_problems(both, (Wanted("oob-global"), Wanted("use-after-free"))) == []


def test_line_in_a_string_that_was_compiled(tmp_path):
    script = tmp_path / "script.py"
    script.write_text('import x\nK = x(r"""extern kernel {\n  body; // planted\n}""")\n')
    wanted = Wanted("oob-global", statement="// planted", source=str(script), first_line="extern kernel")
    assert framework_rows.finding_problems(finding(line=2), wanted) == []
    assert framework_rows.finding_problems(finding(line=3), wanted) == ["is on line 3, not 2"]


def coverage(checked, launches, reason="no PTX"):
    return {"launches": launches, "checked_launches": checked,
            "by_kernel": [{"name": "k", "launches": launches, "checked_launches": checked, "not_checked_reason": reason}]}


def test_every_launch_must_be_covered():
    assert framework_rows.coverage_problems(coverage(7, 7), True) == ("100.0 % of 7", [])
    text, problems = framework_rows.coverage_problems(coverage(6, 7), True)
    assert text == "85.7 % of 7" and problems == ["1 launches unchecked (k…): no PTX"]
    assert framework_rows.coverage_problems(coverage(0, 0), True)[1] == ["no launch was seen"]
    assert framework_rows.coverage_problems(coverage(0, 0), False) == ("", [])
    assert framework_rows.coverage_problems(coverage(1, 1), False)[1]


def test_output_may_differ_in_times_only():
    native = "median step 8.20 ms, loss 0.021431\n"
    assert framework_rows.same_output(native, "median step 12.90 ms, loss 0.021431\n", 0) == []
    assert framework_rows.same_output(native, "median step 8.20 ms, loss 0.021432\n", 0)
    assert framework_rows.same_output(native, "median step 8.20 ms, loss 0.021432\n", 1e-4) == []
    assert framework_rows.same_output(native, "median step 8.20 ms, loss 0.031432\n", 1e-4)
    assert framework_rows.same_output("digest a 1\n", "digest a 2\n", 1e-4)


def test_every_faulty_program_has_a_right_twin():
    programs = framework_rows.programs(ROOT.parent / "shared")
    assert len({program.name for program in programs}) == len(programs)

    def script(program):
        return next(part for part in reversed(program.command) if part.endswith(".py"))

    right = {script(program) for program in programs if not program.findings}
    faulty = {script(program) for program in programs if program.findings}
    assert faulty and faulty <= right


def test_framework_programs_are_python():
    files = sorted((ROOT / "test/gpu/frameworks").glob("*.py"))
    assert files
    for file in files:
        compile(file.read_text(), str(file), "exec")


def test_rows_can_be_chosen_and_nothing_hides_a_broken_one(tmp_path):
    session = Session(tmp_path, None)
    session.add("one", "silent", lambda: [], "first")
    session.add("two", "silent", lambda: 1 / 0, "second", weight=5)
    session.add("three", "silent", lambda: Outcome(["exit code 1"], "50.0 % of 2", 1.0, 2.0), "second")
    rows = session.execute(2, "", [])
    assert [row.name for row in rows] == ["one", "two", "three"]
    assert rows[1].outcome.problems == ["ZeroDivisionError: division by zero"]
    table = format_table(rows)
    assert "| three | silent | exit code 1 | 50.0 % of 2 | 1.0 | 2.0 | NO |" in table
    assert table.endswith("1 passed, 2 failed")
    assert [row.name for row in session.execute(2, "t", [])] == ["two", "three"]
    assert [row.name for row in session.execute(2, "", ["first"])] == ["one"]
    assert session.execute(2, "two", [], dry=True)[0].outcome.problems == []


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        run_process(["sh", "-c", "sleep 60 & echo $! >child; wait"], tmp_path, {}, 0.5)
    child = pathlib.Path(f"/proc/{(tmp_path / 'child').read_text().strip()}")
    for _ in range(100):
        if not child.exists() or " Z " in (child / "stat").read_text():
            return
        time.sleep(0.05)
    pytest.fail("the child still runs")


def test_a_program_is_built_once():
    once, built = Once(), []

    def build():
        time.sleep(0.05)
        built.append(1)
        return "program"

    results = []
    threads = [threading.Thread(target=lambda: results.append(once.get("key", build))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["program"] * 4 and built == [1]


def test_expectations_of_the_older_rows():
    result = subprocess.CompletedProcess([], 86, "out\n", "")
    report = {"findings": [{"kind": "oob-global"}]}
    assert expect(result, report, 86, "out\n", ["oob-global"]) == []
    assert len(expect(result, report, 0, "other\n", [])) == 3
    assert "no report" in expect(result, None, 86)[0]


def run(step_ms, loss="0.5", coverage_text="", problem=""):
    return bench_training.Run(step_ms, loss, 1.0, coverage_text, problem)


NATIVE, OFF, _, CHECKED = bench_training.WAYS[:4]
LOSS = {False: "0.5", True: "0.7"}


def test_benchmark_reads_what_the_program_printed():
    result = subprocess.CompletedProcess([], 0, "median step 8.25 ms, loss 0.021431\n", "")
    report = {"coverage": {"launches": 10, "checked_launches": 9}, "findings": []}
    seen = bench_training.parse(result, 3.0, report)
    assert (seen.step_ms, seen.loss, seen.coverage, seen.problem) == (8.25, "0.021431", "90.0 % of 10", "")
    assert bench_training.parse(subprocess.CompletedProcess([], 1, "", "boom"), 3.0, None).problem == "exit code 1: boom"


def test_benchmark_judges_goals_losses_and_coverage():
    good = {NATIVE: [run(8), run(8.1)], OFF: [run(8.1)], CHECKED: [run(12, coverage_text="100.0 % of 5")]}
    assert bench_training.problems(good, 8.0, LOSS) == []
    assert bench_training.problems({OFF: [run(8.3)]}, 8.0, LOSS) == []  # judged in turns only
    assert bench_training.problems({CHECKED: [run(17)]}, 8.0, LOSS) == ["memory checking: above the goal of 2.0×"]
    assert bench_training.problems({CHECKED: [run(float("nan"))]}, 8.0, LOSS) == ["memory checking: above the goal of 2.0×"]
    assert bench_training.problems({CHECKED: [run(9, loss="0.6")]}, 8.0, LOSS) == ["memory checking: loss 0.6, natively 0.5"]
    assert "only 99.0 % of 5" in bench_training.problems({CHECKED: [run(9, coverage_text="99.0 % of 5")]}, 8.0, LOSS)[0]
    sanitizer = bench_training.WAYS[-1]
    assert bench_training.problems({sanitizer: [run(200, loss="0.7")]}, 8.0, LOSS) == []


def test_benchmark_runs_the_ways_forwards_and_backwards():
    order = [way.name for way in bench_training.schedule(bench_training.WAYS, 2)]
    assert order.count("native") == order.count("memory checking") == 2 and order.count("native, cache off") == 1
    assert order[0] == order[-1] == "native"


def test_benchmark_measures_pairs_in_turns(tmp_path, monkeypatch):
    """Programs that sleep in their steps: all of them work, one at a time, and the ratio is that of the medians."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("from . import cuda\n")
    (tmp_path / "torch/cuda.py").write_text("def synchronize(): pass\n")
    (tmp_path / "step.py").write_text(
        "import statistics, time, torch\n"
        "times, begins = [], []\n"
        "for _ in range(40):\n"
        "    start = time.perf_counter(); time.sleep(0.002); torch.cuda.synchronize(); times.append(time.perf_counter() - start)\n"
        "    begins.append(start)\n"
        f"open(r'{tmp_path}/' + str(begins[0]) + '.turns', 'w').write(' '.join(map(str, begins)))\n"
        "print(f'median step {statistics.median(times[1:]) * 1e3:.2f} ms, loss 0.5')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bench = bench_training.Bench(tmp_path, None)
    pairs = bench_training.run_pairs(bench, [sys.executable, str(tmp_path / "step.py")], bench_training.WAYS[0], 2)
    assert [run.problem for pair in pairs for run in pair] == [""] * 4
    lines, ratio = bench_training.pairs_table(pairs)
    assert lines[-1].startswith("| 2 | ") and ratio == pytest.approx(1, abs=0.5)
    steps = sorted((float(begin), file.name) for file in tmp_path.glob("*.turns") for begin in file.read_text().split()[1:])
    changes = sum(first[1] != second[1] for first, second in zip(steps, steps[1:]))
    assert changes <= 4 * (40 / bench_training.TURN_STEPS + 1)  # at random it would be over a hundred


def test_rows_are_listed_without_a_gpu_and_have_names_of_their_own():
    listed = subprocess.run([sys.executable, str(ROOT / "test/gpu/run_tests.py"), "--list"], capture_output=True, text=True)
    names = [line.split(": ", 1)[1].rsplit(" (", 1)[0] for line in listed.stdout.splitlines()]
    assert len(names) == len(set(names)) and len(names) > 100
    unknown = subprocess.run([sys.executable, str(ROOT / "test/gpu/run_tests.py"), "--group", "nothing"], capture_output=True,
                             text=True)
    assert unknown.returncode == 2 and "no group nothing; there are planted" in unknown.stderr
