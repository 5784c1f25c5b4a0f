"""Replays of captured launches as a user meets them: what they find, what they leave open, how long they take, what is left.

The program and the replayer are stand-ins: fake_target sends the events that its arguments name, and a "capture" holds
how its replay ends and the words of another fake_target. Arguments: paths of ops-debug, ops-debug-analyzer,
fake_target, fake_library.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

OPS_DEBUG, ANALYZER, TARGET, LIBRARY = sys.argv[1:5]

# CAPTURE holds "ending+word+word,argument": the result file's word, then what fake_target does.
REPLAYER = f"""#!/bin/sh
file=$1
set -- $(tr '+,' ' :' < "$file")
case $1 in
  crash) echo "something is wrong" >&2; kill -SEGV $$ ;;
  slow) shift; {TARGET} "$@"; exec sleep 60 ;;
  silent) shift ;;
  *) printf '%s\\nthe reason\\n' "$1" > "$file.result"; shift ;;
esac
exec {TARGET} "$@"
"""
LAUNCH = "+launches,1,1+end"


class ReplayTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ops-debug-replay-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.install = self.folder / "install"
        (self.install / "lib").mkdir(parents=True)
        (self.install / "emulator").mkdir()
        shutil.copy(OPS_DEBUG, self.install / "ops-debug")
        shutil.copy(ANALYZER, self.install / "ops-debug-analyzer")
        shutil.copy(LIBRARY, self.install / "lib" / "libops_debug_interposer.so")
        shutil.copy(LIBRARY, self.install / "emulator" / "libcuda.so.1")
        replayer = self.install / "ops-debug-replayer"
        replayer.write_text(REPLAYER)
        replayer.chmod(0o755)
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}

    def command(self, *words, flags=()):
        tool = [self.install / "ops-debug", "check-sync", "--device", "emulator", "--engine", "ptx"]
        return [str(word) for word in (*tool, *flags, "--", TARGET, *words)]

    def check(self, *words, flags=()):
        """(exit code, report, stderr); nothing is left behind."""
        report = self.folder / "report.json"
        command = self.command(*words, flags=["--format", "json", "--output", report, *flags])
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.environment, check=False)
        self.assertEqual(self.left(), [])
        return run.returncode, json.loads(report.read_text()), run.stderr

    def left(self):
        return [path.name for path in self.temporary.iterdir()]

    def replays_of(self, report):
        return report["coverage"]["replays"]

    # ---- what a replay decides ----

    def test_a_race_of_the_replay_is_a_finding_of_the_program(self):
        code, report, _ = self.check("start", f"capture:1:complete+start+race{LAUNCH}", "launches:1:1", "end")
        self.assertEqual(code, 86)
        (finding,) = report["findings"]
        self.assertEqual((finding["kind"], finding["engine"]), ("race-global", "replay"))
        self.assertEqual(finding["launch"]["grid"], [2, 0, 0])
        self.assertEqual(self.replays_of(report)["launches"], 1)
        self.assertEqual(self.replays_of(report)["not_replayed"], [])
        self.assertEqual(len(report["coverage"]["processes"]), 1)
        self.assertEqual(report["coverage"]["launches"], 1)

    def test_an_unproven_pair_becomes_a_finding_or_goes(self):
        unproven = ("start", "race:unproven")
        code, report, _ = self.check(*unproven, f"capture:1:complete+start{LAUNCH}", "end")
        self.assertEqual((code, report["findings"], report["unproven"]), (0, [], []))
        self.assertEqual(self.replays_of(report)["decided_pairs"], 1)
        code, report, _ = self.check(*unproven, f"capture:1:complete+start+race{LAUNCH}", "end")
        self.assertEqual((code, len(report["findings"]), report["unproven"]), (86, 1, []))
        code, report, _ = self.check(*unproven, f"capture:1:failed+start{LAUNCH}", "end")
        self.assertEqual((code, report["findings"], len(report["unproven"])), (0, [], 1))

    def test_a_finding_names_the_programs_own_allocation(self):
        _, report, _ = self.check("start", f"capture:1:complete+start+read,4,1010{LAUNCH}", "end")
        (finding,) = report["findings"]
        self.assertEqual((finding["allocation"]["id"], finding["allocation"]["api"]), (7, "cuMemAlloc"))

    def test_what_the_device_saw_is_counted_once(self):
        _, report, _ = self.check("start", "race", f"capture:1:complete+start+race{LAUNCH}", "end")
        (finding,) = report["findings"]
        self.assertEqual((finding["engine"], finding["count"]), ("ptx", 1))

    # ---- what stays open ----

    def test_what_was_not_replayed_is_named_with_its_reason(self):
        _, report, _ = self.check(
            "start",
            "not-captured:its buffers hold 3 GiB",
            f"capture:1:failed+start+race{LAUNCH}",
            "capture:2:crash",
            f"capture:3:silent+start{LAUNCH}",
            "capture:4:complete+start+launches,1,0+end",
            "end",
        )
        reasons = [group["reason"] for group in self.replays_of(report)["not_replayed"]]
        self.assertEqual(reasons[:2], ["its buffers hold 3 GiB", "the reason"])
        self.assertEqual(reasons[2], "its process was killed by SIGSEGV: something is wrong")
        self.assertRegex(reasons[3], "^its process ended with exit code 0")
        self.assertRegex(reasons[4], "^the CPU device could not check it")
        (finding,) = report["findings"]  # made before the replay failed
        self.assertEqual(finding["kind"], "race-global")
        for group in self.replays_of(report)["not_replayed"]:
            self.assertEqual(group["kernels"], ["k(float*)"])
            self.assertEqual(group["undecided"], ["cp.async: whether its data has arrived"])

    def test_a_replay_that_takes_too_long_is_ended_and_its_findings_kept(self):
        begin = time.monotonic()
        _, report, _ = self.check("start", "capture:1:slow+start+race", "end", flags=["--replay-time", "1"])
        self.assertLess(time.monotonic() - begin, 8)
        (group,) = self.replays_of(report)["not_replayed"]
        self.assertEqual(group["reason"], "it took longer than 1 s (--replay-time)")
        self.assertEqual([finding["kind"] for finding in report["findings"]], ["race-global"])

    def test_replays_left_at_the_end_have_a_limit_together(self):
        captures = [f"capture:{i}:slow+start" for i in range(1, 21)]
        begin = time.monotonic()
        _, report, _ = self.check("start", *captures, "end", flags=["--replay-time", "1"])
        self.assertLess(time.monotonic() - begin, 12)
        reasons = {group["reason"] for group in self.replays_of(report)["not_replayed"]}
        self.assertIn("3 s after the end of the program were not enough for all replays (--replay-time)", reasons)

    def test_replay_off_captures_nothing(self):
        run = subprocess.run(
            self.command("start", "env:OPS_DEBUG_REPLAY_FOLDER", "end", flags=["--replay", "off"]),
            capture_output=True, text=True, timeout=60, env=self.environment, check=False,
        )  # fmt: skip
        self.assertEqual(run.stdout, "OPS_DEBUG_REPLAY_FOLDER=(unset)\n")

    # ---- deadlocks ----

    def test_a_proved_deadlock_ends_the_program_that_hangs(self):
        code, report, stderr = self.check("start", f"capture:1:deadlock+start+deadlock{LAUNCH}", "stuck:1", "wait")
        self.assertEqual(code, 86)
        self.assertEqual([finding["kind"] for finding in report["findings"]], ["deadlock"])
        self.assertRegex(stderr, r"launch 1 of k\(float\*\) in process \d+ can never end; ending the process")
        self.assertTrue(any("ops-debug ended the process" in remark["text"] for remark in report["remarks"]))

    def test_a_program_that_ignores_sigterm_is_ended_all_the_same(self):
        code, _, _ = self.check("start", f"capture:1:deadlock+start+deadlock{LAUNCH}", "stuck:1", "stubborn")
        self.assertEqual(code, 86)

    def test_a_deadlock_is_reported_though_the_program_ended(self):
        code, report, stderr = self.check("start", f"capture:1:deadlock+start+deadlock{LAUNCH}", "end")
        self.assertEqual((code, [finding["kind"] for finding in report["findings"]]), (86, ["deadlock"]))
        self.assertNotIn("ending the process", stderr)

    def test_threads_that_spin_on_global_memory_are_a_deadlock_only_if_nobody_else_can_write_it(self):
        capture = f"capture:1:spins+start+deadlock{LAUNCH}"
        stuck = "; in the program it had not ended after 5 s, but something else could still have written that memory"
        for words, more in ((("end",), ""), (("stuck:1", "sleep:1", "end"), stuck)):
            code, report, _ = self.check("start", capture, *words)
            self.assertEqual((code, report["findings"]), (0, []))
            (group,) = self.replays_of(report)["not_replayed"]
            self.assertEqual(group["reason"], "the reason" + more)
        code, report, _ = self.check("start", capture, "timeout", "end")
        self.assertIn("deadlock", [finding["kind"] for finding in report["findings"]])
        code, report, _ = self.check("start", capture, "stuck:1:alone", "wait")
        self.assertEqual((code, [finding["kind"] for finding in report["findings"]]), (86, ["deadlock"]))

    # ---- the log ----

    def test_the_log_gives_the_same_report(self):
        for log in (self.folder / "run.odlog", f"{self.folder}/logs/"):
            capture = f"capture:1:complete+start+race{LAUNCH}"
            words = ("start", "race:unproven", capture, "not-captured:too large", "launches:1:1", "end")
            _, report, _ = self.check(*words, flags=["--log", log])
            again = self.folder / "again.json"
            subprocess.run(
                [self.install / "ops-debug", "report", log, "--format", "json", "--output", again],
                timeout=60, env=self.environment, check=False,
            )  # fmt: skip
            self.assertEqual(json.loads(again.read_text()), report)
            self.assertEqual(len(report["findings"]), 1)
        self.assertEqual(len(list((self.folder / "logs").iterdir())), 1)

    # ---- ends of all kinds ----

    def start(self, *words):
        process = subprocess.Popen(
            self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def test_ctrl_c_leaves_out_the_replays_but_not_the_report(self):
        process = self.start("start", "race", "capture:1:slow+start", "end")
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 86)
        self.assertIn("1 launch is still to be replayed on the CPU device (at most 60 s; Ctrl-C leaves", stderr)
        self.assertIn("its replay was interrupted", stderr)
        self.assertEqual(self.left(), [])

    def processes(self):
        """Of this test: command lines that name its folder."""
        found = []
        for process in pathlib.Path("/proc").iterdir():
            try:
                line = (process / "cmdline").read_bytes()
                if str(self.install).encode() in line and "Z" not in (process / "stat").read_text().rsplit(")", 1)[1][:3]:
                    found.append((int(process.name), line.replace(b"\0", b" ").decode()))
            except (OSError, NotADirectoryError):
                continue
        return found

    def test_kill_9_of_the_analyzer_ends_its_replays_and_leaves_no_folder(self):
        process = self.start("start", "capture:1:slow+start", "ready", "sleep:2", "end")
        process.stdout.readline()
        time.sleep(0.7)
        analyzers = [pid for pid, line in self.processes() if "ops-debug-analyzer" in line and "--replay-folder" in line]
        os.kill(min(analyzers), signal.SIGKILL)
        process.wait(timeout=20)
        self.assertEqual(process.returncode, 3)
        self.assertEqual(self.left(), [])
        deadline = time.monotonic() + 5
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(self.processes(), [])

    def test_kill_9_of_the_launcher_ends_the_replays_that_are_left(self):
        process = self.start("start", "capture:1:slow+start", "end")
        time.sleep(1.5)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 5
        while (self.processes() or self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual((self.processes(), self.left()), ([], []))

    def test_the_folder_of_a_killed_launcher_goes_with_the_analyzer_or_the_next_run(self):
        process = self.start("start", "ready", "sleep:3", "end")
        process.stdout.readline()
        (folder,) = self.temporary.iterdir()
        for pid, line in self.processes():
            if "ops-debug-analyzer" in line:
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        self.assertTrue(folder.exists())
        self.check("start", "end")
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
