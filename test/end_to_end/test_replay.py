"""Launches that an instrumented kernel cannot decide are captured and run once more on the CPU device: what that finds, what it
settles, what it leaves open and says so. `--device emulator --engine ptx` stands for a GPU here.
"""
import os
import pathlib
import signal
import subprocess
import time

import conftest
import killing
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/replay.cu"
LINES = {line.split("// LINE ")[1].strip(): number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if "// LINE " in line}


@pytest.fixture
def program(built):
    return built(SOURCE, "-cudart", "shared", "-Xcompiler", "-g")


@pytest.fixture
def check(tool, program, tmp_path):
    """check("flag", "--replay-time", 1): the run; captures are written to a folder of the test, which is empty in the end."""

    def run(case, *flags, checks="race,sync,init"):
        folder = tmp_path / "captures"
        folder.mkdir(exist_ok=True)
        result = tool("run", "--engine", "ptx", "--check", checks, *flags, "--", program, case, environment={"TMPDIR": str(folder)})
        assert result.report is not None, result.stderr
        assert list(folder.iterdir()) == []
        return result

    return run


def replays(run) -> dict:
    return run.report["coverage"]["replays"]


def lines(finding: dict) -> list[int]:
    return sorted(access["line"] for access in finding["accesses"])


def stack_lines(stack: list[dict]) -> list[int]:
    return [frame.get("line") for frame in stack if pathlib.Path(frame.get("file", "")).name == SOURCE.name]


def test_a_race_that_only_the_replay_sees_is_a_finding_of_the_program(check):
    run = check("copy", checks="race")
    assert run.code == 86
    (finding,) = run.report["findings"]
    assert (finding["kind"], finding["engine"]) == ("race-shared", "replay")
    assert finding["kernel"].startswith("void copy_and_use<")
    assert lines(finding) == sorted([LINES["copy"], LINES["use"]])
    assert LINES["launch of copy"] in stack_lines(finding["launch"]["stack"])
    assert (replays(run)["launches"], replays(run)["not_replayed"]) == (1, [])
    assert run.report["coverage"]["launches"] == 1


def test_its_right_twin_is_replayed_and_silent(check):
    run = check("copy_waited")
    assert (run.code, run.report["findings"], run.report["unproven"]) == (0, [], [])
    assert (replays(run)["launches"], replays(run)["not_replayed"]) == (1, [])


def test_an_unproven_pair_that_races_becomes_a_finding_with_its_allocation(check):
    run = check("flag")
    assert run.code == 86
    assert run.report["unproven"] == []
    (finding,) = [finding for finding in run.report["findings"] if finding["kind"] == "race-global"]
    assert lines(finding) == sorted([LINES["produce"], LINES["consume"]])
    assert LINES["allocation"] in stack_lines(finding["allocation"]["allocation_stack"])
    assert LINES["launch of hand-over"] in stack_lines(finding["launch"]["stack"])


def test_an_unproven_pair_that_is_ordered_goes(check):
    run = check("flag_released")
    assert (run.code, run.report["findings"], run.report["unproven"]) == (0, [], [])
    assert replays(run)["decided_pairs"] > 0
    # The first launch speaks for those of the same shape.
    assert (replays(run)["launches"], replays(run)["kernels"]) == (1, 1)


def test_without_replays_the_pair_stays_unproven(check):
    run = check("flag_released", "--replay", "off")
    assert (run.code, run.report["findings"]) == (0, [])
    assert len(run.report["unproven"]) > 0
    assert "replays" not in run.report["coverage"]


def test_an_unwritten_byte_matters_or_not(check):
    run = check("words")
    assert [finding["kind"] for finding in run.report["findings"]] == ["uninitialised-read"]
    assert run.report["findings"][0]["line"] == LINES["words"]
    run = check("words_masked")
    assert (run.code, run.report["findings"]) == (0, [])
    assert replays(run)["not_replayed"] == []


def test_memory_that_a_module_variable_leads_to_is_captured(check):
    run = check("variable")
    assert (run.code, run.report["findings"]) == (0, [])
    assert run.stdout.startswith("sum 160\n")
    assert (replays(run)["launches"], replays(run)["not_replayed"]) == (1, [])


def test_what_is_too_large_is_named_and_can_be_allowed(check):
    run = check("large")
    assert (run.code, run.report["findings"]) == (0, [])
    (group,) = replays(run)["not_replayed"]
    assert "--replay-memory" in group["reason"]
    assert [kernel.split("(")[0] for kernel in group["kernels"]] == ["void copy_and_use<false>"]
    assert any(text.startswith("cp.async: ") for text in group["undecided"])
    run = check("large", "--replay-memory", "128M", checks="race")
    assert [finding["kind"] for finding in run.report["findings"]] == ["race-shared"]
    assert replays(run)["not_replayed"] == []


def test_the_text_report_names_what_is_open(tool, program):
    run = tool("run", "--engine", "ptx", "--check", "race", "--", program, "large", json_report=False)
    text = run.stdout + run.stderr
    assert "not replayed:" in text
    assert "--replay-memory" in text
    assert "cp.async: " in text


def test_a_long_replay_is_ended_in_time(check):
    begin = time.monotonic()
    run = check("long", "--replay-time", "1")
    assert time.monotonic() - begin < 20
    assert (run.code, run.report["findings"]) == (0, [])
    (group,) = replays(run)["not_replayed"]
    assert group["reason"] == "it took longer than 1 s (--replay-time)"


def test_kernels_that_the_gpu_decides_are_not_captured(tool, built, shared_kernels):
    planted = built(shared_kernels / "planted.cu", "-cudart", "shared")
    run = tool("run", "--engine", "ptx", "--check", "race,sync,init", "--", planted, 4)
    assert len(run.report["findings"]) > 0
    assert "replays" not in run.report["coverage"]


def test_a_deadlock_is_proved_and_explained(check):
    run = check("barriers")
    assert run.code == 86
    (finding,) = [finding for finding in run.report["findings"] if finding["kind"] == "deadlock"]
    waiting = sorted(waiter["line"] for waiter in finding["waiters"])
    assert waiting == sorted([LINES["first half"], LINES["second half"]])


def test_the_log_gives_the_same_report(check, tool, tmp_path):
    log = tmp_path / "run.odlog"
    run = check("flag", "--log", log)
    again = tool("report", log)
    assert again.report["findings"] == run.report["findings"]
    assert again.report["coverage"]["replays"] == replays(run)


def test_kill_9_of_the_analyzer_leaves_no_process_and_no_folder(program, tmp_path):
    folder = tmp_path / "captures"
    folder.mkdir()
    command = [conftest.BUILD / "ops-debug", "run", "--device", "emulator", "--engine", "ptx", "--check", "race", "--", program, "long"]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, "TMPDIR": str(folder)})

    def running(name):
        return [each.pid for each in killing.processes() if each.name == name[:15] and folder_of(each.pid) == str(folder)]

    try:
        deadline = time.monotonic() + 30
        while not running("ops-debug-replayer") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert running("ops-debug-replayer"), "no replay was started"
        analyzers = [each.pid for each in killing.processes() if each.session == process.pid and each.name == "ops-debug-analyzer"[:15]]
        os.kill(min(analyzers), signal.SIGKILL)
        process.communicate(timeout=60)
        deadline = time.monotonic() + 10
        while running("ops-debug-replayer") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert running("ops-debug-replayer") == []
        assert list(folder.iterdir()) == []
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def folder_of(pid: int) -> str:
    """TMPDIR of a process, "" if it is gone."""
    try:
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((word[7:].decode() for word in words if word.startswith(b"TMPDIR=")), "")
