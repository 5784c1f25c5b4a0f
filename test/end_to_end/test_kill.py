"""Whichever process of a run is killed or stopped, the others end soon, say what happened, and the log can be read."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import conftest
import killing
import pytest

PROGRAM = conftest.BUILD / "test/programs/end_to_end_many_events"
# OPS_DEBUG_KILLS=N runs that many; the nightly tests run 200. OPS_DEBUG_KILL_DEVICE=gpu runs them there.
KILLS = int(os.environ.get("OPS_DEBUG_KILLS", "200" if os.environ.get("OPS_DEBUG_NIGHTLY") == "1" else "32"))
DEVICE = os.environ.get("OPS_DEBUG_KILL_DEVICE", "emulator")


def test_random_kills_leave_no_hung_process_and_no_unreadable_log(capsys):
    outcomes = killing.run_kills(KILLS, 20261130, conftest.BUILD / "ops-debug", PROGRAM, DEVICE)
    with capsys.disabled():
        print("\n" + killing.describe(outcomes))
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert sum(outcome.killed for outcome in outcomes) >= 0.9 * KILLS


class LiveRun:
    """A run of the program in its own session, and its processes."""

    def __init__(self, folder: pathlib.Path, milliseconds: int):
        self.report, self.log = folder / "report.json", folder / "run.odlog"
        command = [conftest.BUILD / "ops-debug", "run", "--device", "emulator", "--check", "memory", "--format", "json",
                   "--output", self.report, "--log", self.log, "--", PROGRAM, milliseconds]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True)

    def find(self, name: str) -> int:
        """Process id of the first process of that name (15 characters), once it is there."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for process in killing.processes():
                if process.session == self.process.pid and process.name == name[:15]:
                    return process.pid
            time.sleep(0.002)
        raise AssertionError(f"{name} did not start")

    def finish(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=60)
        return self.process.returncode, stdout, stderr


@pytest.fixture
def live_run(tmp_path):
    runs = []

    def start(milliseconds):
        runs.append(LiveRun(tmp_path, milliseconds))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)


def remarks_of(report: dict) -> str:
    return " | ".join(remark["text"] for remark in report["remarks"])


def test_killed_analyzer_does_not_touch_the_program_and_is_told_of(live_run, tool):
    run = live_run(1200)
    analyzer = run.find("ops-debug-analyzer")
    run.find("end_to_end_many_events")
    time.sleep(0.4)
    os.kill(analyzer, signal.SIGKILL)
    code, stdout, stderr = run.finish()
    assert stdout.count("rounds ") == 2  # the program and its child came to their ends
    assert code == 3
    assert "the analyzer ended before the program did; the program goes on unobserved" in stderr
    assert not run.report.exists()
    offline = tool("report", run.log)
    assert "cut off" in remarks_of(offline.report)
    assert offline.code in (3, 86)


def test_killed_launcher_leaves_a_report_that_says_so(live_run, tool):
    run = live_run(1500)
    run.find("ops-debug-analyzer")
    target = run.find("end_to_end_many_events")
    time.sleep(0.3)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    deadline = time.monotonic() + 20
    while killing_members(run.process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert killing_members(run.process.pid) == [], f"left behind by {target}"
    assert "ops-debug was killed before the program ended" in remarks_of(json.loads(run.report.read_text()))
    offline = tool("report", run.log)
    assert "ops-debug was killed before the program ended" in remarks_of(offline.report)
    assert "cut off" not in remarks_of(offline.report)


def killing_members(session: int) -> list[str]:
    return [process.name for process in killing.processes() if process.session == session and process.state not in "ZX"]


def events_in(log: pathlib.Path) -> tuple[int, int]:
    """How many events a log holds, and how many losses it tells of. (proto/log.h: zstd can read it.)"""
    data = subprocess.run(["zstd", "-dcq", str(log)], check=True, capture_output=True).stdout

    def varint(place):
        value = shift = 0
        while True:
            byte = data[place]
            value |= (byte & 0x7F) << shift
            place, shift = place + 1, shift + 7
            if byte < 0x80:
                return value, place

    events = lost = place = 0
    while place < len(data):
        length, place = varint(place)
        end, events = place + length, events + 1
        while place < end:
            tag, place = varint(place)
            if tag & 7 == 0:
                _, place = varint(place)
                continue
            size, place = varint(place)
            if tag >> 3 == 10:  # Event.lost_events, whose field 1 is the count
                lost, events = lost + varint(place + 1)[0], events - 1
            if tag >> 3 == 8:  # a remark of the analyzer
                events -= 1
            place += size
    return events, lost


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs zstd to look into the log")
def test_stopped_analyzer_costs_events_that_are_counted_to_the_last_and_holds_nobody_up(tmp_path):
    # A limit on file sizes makes the ring small, so that it fills soon.
    rounds, log, report = 150, tmp_path / "run.odlog", tmp_path / "report.json"
    command = ["sh", "-c", 'ulimit -f 256; exec "$@"', "sh", conftest.BUILD / "ops-debug", "run", "--device", "emulator",
               "--format", "json", "--output", report, "--log", log, "--", PROGRAM, "0", rounds]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    run = LiveRun.__new__(LiveRun)
    run.process = process
    analyzer = run.find("ops-debug-analyzer")
    run.find("end_to_end_many_events")
    os.kill(analyzer, signal.SIGSTOP)
    start = time.monotonic()
    deadline = start + 60
    while len(killing_members(process.pid)) > 2 and time.monotonic() < deadline:  # launcher and analyzer stay
        time.sleep(0.01)
    assert len(killing_members(process.pid)) == 2, "the program waits for the stopped analyzer"
    os.kill(analyzer, signal.SIGCONT)
    code, stdout, stderr = run.finish()
    assert stdout == f"rounds {rounds}\n" * 2
    events, lost = events_in(log)
    # A process that runs for long sends its launch counts five times a second as well.
    more = events + lost - 2 * (6 * rounds + 3)
    assert 0 <= more <= 2 * (5 * (time.monotonic() - start) + 1)
    assert lost > 0
    answer = json.loads(report.read_text())
    assert answer["lost_events"] == lost
    assert "instead of 8 MiB" in remarks_of(answer)
    assert code == 86, stderr


def test_ctrl_c_twice_ends_a_run_whose_analyzer_stands_still(live_run):
    run = live_run(100)
    analyzer = run.find("ops-debug-analyzer")
    run.find("end_to_end_many_events")
    os.kill(analyzer, signal.SIGSTOP)
    time.sleep(1.0)  # the program has ended; the launcher waits for the report
    os.kill(run.process.pid, signal.SIGINT)
    code, _, stderr = run.finish()
    assert code == 3
    assert "interrupted while the report was being written" in stderr
