"""Kills one process of a run with SIGKILL at a random moment and looks at what becomes of the others.

A run is a launcher, its analyzer, the target and a child that the target forked. Each kill is a run of its own in a
session of its own, so that every process of it can be found; this process is their subreaper, so that what nobody waits
for is seen. Runs on the emulator or on a GPU:

    python3 test/support/killing.py --build build --kills 200 --seed 1 --device gpu
"""
import argparse
import collections
import concurrent.futures
import ctypes
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

VICTIMS = ("launcher", "analyzer", "target", "child")
PHASES = {"launcher": ("start", "run", "drain", "report"), "analyzer": ("start", "run", "drain", "report"),
          "target": ("start", "run", "drain"), "child": ("start", "run", "drain")}
MOST_TRIES = 4  # a victim may have ended by itself before its time
PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass
class Plan:
    number: int
    victim: str
    phase: str
    delay_s: float
    run_ms: int
    to_folder: bool  # --log FOLDER/ instead of --log FILE


@dataclasses.dataclass
class Outcome:
    plan: Plan
    killed: bool = False  # the victim was there to be killed
    code: int | None = None  # of the launcher; None: it was the victim
    problems: list[str] = dataclasses.field(default_factory=list)
    log_state: str = "none"  # none, whole, cut, unreadable
    seconds: float = 0.0


@dataclasses.dataclass
class Process:
    pid: int
    name: str
    state: str
    parent: int
    session: int


def read_process(pid: int) -> Process | None:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    rest = text[text.rindex(")") + 2 :].split()
    return Process(pid, text[text.index("(") + 1 : text.rindex(")")], rest[0], int(rest[1]), int(rest[3]))


def processes() -> list[Process]:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [process for process in map(read_process, numbers) if process is not None]


def children_of(pid: int) -> list[Process]:
    try:
        numbers = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # gone, or a kernel without that file
        return [process for process in processes() if process.parent == pid]
    return [process for process in map(read_process, map(int, numbers)) if process is not None]


def become_subreaper() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def make_plans(kills: int, seed: int) -> list[Plan]:
    """Every victim in every phase in turn, at random moments of it."""
    dice = random.Random(seed)
    plans = []
    for number in range(kills):
        victim = VICTIMS[number % 4]
        phase = PHASES[victim][number // 4 % len(PHASES[victim])]
        run_ms = dice.randrange(200, 500)
        delay = {"start": dice.choice((0, dice.uniform(0, 0.05))), "run": dice.uniform(0, run_ms / 1000),
                 "drain": dice.uniform(0, 0.01), "report": dice.uniform(0, 0.06)}[phase]
        plans.append(Plan(number, victim, phase, delay, run_ms, dice.random() < 0.3))
    return plans


class Kill:
    def __init__(self, plan: Plan, tool: pathlib.Path, program: pathlib.Path, device: str, folder: pathlib.Path,
                 patience_s: float, startup_s: float):
        self.plan, self.tool, self.patience_s, self.startup_s = plan, tool, patience_s, startup_s
        self.folder = folder / str(plan.number)
        self.folder.mkdir()
        self.log = self.folder / "logs" if plan.to_folder else self.folder / "run.odlog"
        self.report = self.folder / "report.json"
        self.command = [str(tool), "run", "--device", device, "--check", "memory", "--format", "json", "--output",
                        str(self.report), "--log", str(self.log) + ("/" if plan.to_folder else ""), "--", str(program),
                        str(plan.run_ms)]
        self.program_name = program.name[:15]
        self.outcome = Outcome(plan)

    def members(self) -> list[Process]:
        return [process for process in processes() if process.session == self.launcher.pid]

    def find(self, victim: str) -> Process | None:
        if victim == "launcher":
            return read_process(self.launcher.pid)
        for process in children_of(self.launcher.pid):
            if victim == "analyzer" and process.name.startswith("ops-debug-analy"):
                return process
            if process.name != self.program_name or process.state in "ZX":
                continue
            if victim == "target":
                return process
            for child in children_of(process.pid):
                if victim == "child" and child.state not in "ZX":
                    return child
        return None

    def wait_for(self, victim: str, there: bool, deadline: float) -> Process | None:
        while True:
            process = self.find(victim)
            if (process is not None) == there or time.monotonic() > deadline or self.launcher.poll() is not None:
                return process
            time.sleep(0.0005)

    def strike(self) -> None:
        """Waits for the phase, then for the moment in it, then kills."""
        plan, deadline = self.plan, time.monotonic() + self.patience_s
        if plan.phase == "start":
            self.wait_for(plan.victim, True, deadline)
        else:
            self.wait_for("target", True, deadline)
        if plan.phase in ("run", "drain"):
            time.sleep(self.startup_s)
        if plan.phase == "drain":  # the target's last moments
            time.sleep(max(0.0, plan.run_ms / 1000 - 0.02))
        if plan.phase == "report":
            self.wait_for("target", False, deadline)
        time.sleep(plan.delay_s)
        process = self.find(plan.victim)
        if process is None:
            return
        try:
            os.kill(process.pid, signal.SIGKILL)
            self.outcome.killed = True
        except ProcessLookupError:
            pass

    def run(self) -> Outcome:
        start = time.monotonic()
        with open(self.folder / "stderr", "w+") as stderr:
            self.launcher = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=stderr, start_new_session=True)
            self.strike()
            self.wait_for_the_others()
            self.outcome.seconds = time.monotonic() - start
            stderr.seek(0)
            self.stderr = stderr.read()
        self.check_leftovers()
        self.check_code()
        self.check_log()
        self.check_report()
        if not self.outcome.problems:
            shutil.rmtree(self.folder)
        return self.outcome

    def problem(self, text: str) -> None:
        self.outcome.problems.append(text)

    def wait_for_the_others(self) -> None:
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            self.launcher.poll()
            left = self.members()
            for process in left:
                # What its parent left behind comes to us; of the launcher's children nobody but it may.
                if process.state == "Z" and process.parent == os.getpid() and process.pid != self.launcher.pid:
                    launcher_died = self.outcome.killed and self.plan.victim == "launcher"
                    is_child = process.name == self.program_name
                    if not launcher_died and not is_child:
                        self.problem(f"the launcher left a zombie: {process.name}")
                    try:
                        os.waitpid(process.pid, os.WNOHANG)
                    except ChildProcessError:
                        pass
            if not left and self.launcher.poll() is not None:
                break
            time.sleep(0.005)
        for process in self.members():
            self.problem(f"hung: {process.name} ({process.state})")
            os.kill(process.pid, signal.SIGKILL)
        code = self.launcher.wait()
        if not (self.outcome.killed and self.plan.victim == "launcher"):
            self.outcome.code = code

    def check_leftovers(self) -> None:
        names = [name for name in os.listdir("/dev/shm") if name.startswith(f"ops-debug-{self.launcher.pid}-")]
        if names:
            self.problem(f"left in /dev/shm: {names}")

    def check_code(self) -> None:
        if self.outcome.code is None:
            return
        allowed = {"analyzer": {3, 86}, "target": {137, 86, 4}, "child": {0, 86}, "launcher": {0, 86}}[self.plan.victim]
        if not self.outcome.killed:
            allowed = {86}  # every round of the program has a finding
        if self.outcome.code not in allowed:
            self.problem(f"exit code {self.outcome.code}, expected one of {sorted(allowed)}")
        if self.outcome.code == 3 and "ops-debug: error: " not in self.stderr:
            self.problem("exit code 3 without a message")

    def check_log(self) -> None:
        if not self.log.exists() or (self.log.is_dir() and not any(self.log.iterdir())):
            # Killed before the analyzer came to it.
            if self.outcome.code is not None and self.outcome.code != 3:
                self.problem("no log")
            return
        answer = self.folder / "offline.json"
        run = subprocess.run([str(self.tool), "report", "--format", "json", "--output", str(answer), str(self.log)],
                             capture_output=True, text=True, timeout=60)
        try:
            report = json.loads(answer.read_text())
        except (OSError, ValueError):
            self.outcome.log_state = "unreadable"
            self.problem(f"unreadable log (code {run.returncode}): {run.stderr.strip()}")
            return
        cut = any("cut off" in remark["text"] for remark in report.get("remarks", []))
        self.outcome.log_state = "cut" if cut else "whole"
        if run.returncode not in ({3, 86} if cut else {0, 3, 4, 86}):
            self.problem(f"report of the log exits with {run.returncode}")
        if cut and not (self.outcome.killed and self.plan.victim == "analyzer"):
            self.problem("the log is cut off although the analyzer lived")
        if report["lost_events"] > 0 and not self.outcome.killed:
            self.problem(f"{report['lost_events']} events lost in a run without a kill")

    def check_report(self) -> None:
        if self.report.exists():
            try:
                json.loads(self.report.read_text())
            except ValueError:
                launcher_cleans_up = self.outcome.code is not None
                self.problem("half a report" if self.report.stat().st_size else "an empty report"
                             ) if launcher_cleans_up or self.report.stat().st_size else None
        elif self.outcome.code is not None and self.outcome.code != 3:
            self.problem("no report")
        if self.report.with_suffix(".json.partial").exists() and self.outcome.code is not None:
            self.problem("a part of a report was left")


def run_kills(kills: int, seed: int, tool: pathlib.Path, program: pathlib.Path, device: str = "emulator",
              jobs: int = 2, patience_s: float = 20.0, startup_s: float = 0.0) -> list[Outcome]:
    """`startup_s`: what a driver takes to start, before the program begins to count its time."""
    become_subreaper()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ops-debug-kills-"))

    def strike(plan: Plan) -> Outcome:
        for _ in range(MOST_TRIES):
            outcome = Kill(plan, tool, program, device, folder, patience_s, startup_s).run()
            if outcome.killed or outcome.problems:
                break
            plan = dataclasses.replace(plan, delay_s=plan.delay_s / 3, run_ms=plan.run_ms * 2)
        return outcome

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(strike, make_plans(kills, seed)))
    if not any(outcome.problems for outcome in outcomes):
        shutil.rmtree(folder)
    return outcomes


def describe(outcomes: list[Outcome]) -> str:
    hung = sum(any(problem.startswith("hung") for problem in outcome.problems) for outcome in outcomes)
    unreadable = sum(outcome.log_state == "unreadable" for outcome in outcomes)
    killed = collections.Counter(outcome.plan.victim for outcome in outcomes if outcome.killed)
    logs = collections.Counter(outcome.log_state for outcome in outcomes)
    codes = collections.Counter(str(outcome.code) for outcome in outcomes)
    lines = [f"{len(outcomes)} runs, {sum(killed.values())} kills ({dict(killed)}): {hung} hung, {unreadable} unreadable "
             f"logs; logs {dict(logs)}; exit codes {dict(codes)}; longest "
             f"{max(outcome.seconds for outcome in outcomes):.1f} s"]
    for outcome in outcomes:
        for problem in outcome.problems:
            plan = outcome.plan
            lines.append(f"  #{plan.number} {plan.victim} in {plan.phase} after {plan.delay_s:.3f} s: {problem}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder of ops-debug and test/programs")
    parser.add_argument("--program", help="program to kill; takes a time in milliseconds")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="emulator")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=20.0, help="seconds until a process counts as hung")
    parser.add_argument("--startup", type=float, default=0.0, help="seconds that the driver takes to start (GPU: about 1)")
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    program = pathlib.Path(options.program or build / "test/programs/end_to_end_many_events").resolve()
    outcomes = run_kills(options.kills, options.seed, build / "ops-debug", program, options.device, options.jobs,
                         options.patience, options.startup)
    print(describe(outcomes))
    return 1 if any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
