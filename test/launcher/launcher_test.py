"""ops-debug as a user meets it: exit codes, messages, where output goes, what reaches the target, how it ends.

Runs copies of the built ops-debug and ops-debug-analyzer beside stand-ins for the preload library, the emulator and the
runner. Arguments: paths of ops-debug, ops-debug-analyzer, fake_target, fake_library, fake_runner.
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

OPS_DEBUG, ANALYZER, TARGET, LIBRARY, RUNNER = sys.argv[1:6]


def segments_left():
    """Event rings of launchers ("ops-debug-PID-...") that are not running any more; other tests run beside this one."""
    names = {name for name in os.listdir("/dev/shm") if name.startswith("ops-debug-")}
    return {name for name in names if not pathlib.Path("/proc", name.split("-")[2]).exists()}


def analyzer_of(launcher):
    """Process id of the analyzer that process `launcher` started."""
    for process in pathlib.Path("/proc").iterdir():
        try:
            stat = (process / "stat").read_text()
        except (OSError, NotADirectoryError):
            continue
        name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        if name.startswith("ops-debug-analy") and int(rest[1]) == launcher:
            return int(process.name)
    raise AssertionError("no analyzer")


class LauncherTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ops-debug-launcher-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.install = self.folder / "install"
        (self.install / "lib").mkdir(parents=True)
        (self.install / "emulator").mkdir()
        shutil.copy(OPS_DEBUG, self.install / "ops-debug")
        shutil.copy(ANALYZER, self.install / "ops-debug-analyzer")
        shutil.copy(RUNNER, self.install / "ops-debug-runner")
        self.library = self.install / "lib" / "libops_debug_interposer.so"
        shutil.copy(LIBRARY, self.library)
        shutil.copy(LIBRARY, self.install / "emulator" / "libcuda.so.1")

    def command(self, *arguments):
        return [str(self.install / "ops-debug"), *map(str, arguments)]

    def run_tool(self, *arguments, env=None):
        environment = {**os.environ, **(env or {})}
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=60, env=environment, check=False
        )

    def check(self, *words, flags=(), env=None):
        return self.run_tool("check-memory", "--device", "emulator", *flags, "--", TARGET, *words, env=env)

    # ---- exit codes ----

    def test_clean_run_has_the_programs_exit_code(self):
        self.assertEqual(self.check("start", "launches:2:2", "end").returncode, 0)
        self.assertEqual(self.check("start", "launches:2:2", "end", "exit:7").returncode, 7)

    def test_findings_exit_with_86_whatever_the_program_says(self):
        run = self.check("start", "fault", "end", "exit:7")
        self.assertEqual(run.returncode, 86)
        self.assertIn("ops-debug: 1 finding (oob-global 1), 1 kernel, 1 checked", run.stderr)

    def test_a_race_exits_with_86_a_benign_or_unproven_one_does_not(self):
        run = self.run_tool("check-sync", "--device", "emulator", "--", TARGET, "start", "race", "end")
        self.assertEqual(run.returncode, 86)
        self.assertIn("ops-debug: 1 finding (race-global 1), 1 kernel, 1 checked", run.stderr)
        run = self.run_tool("check-sync", "--device", "emulator", "--", TARGET, "start", "race:benign", "end")
        self.assertEqual(run.returncode, 0)
        self.assertIn("note[race-global]: benign: both write the same value", run.stderr)
        run = self.run_tool("check-sync", "--device", "emulator", "--", TARGET, "start", "race:unproven", "end")
        self.assertEqual(run.returncode, 0)
        self.assertIn("unproven[race-global]: ", run.stderr)
        self.assertIn("ops-debug: no findings, 1 unproven, 1 kernel, 1 checked", run.stderr)

    def test_error_exitcode(self):
        self.assertEqual(self.check("start", "fault", "end", flags=["--error-exitcode", "5"]).returncode, 5)

    def test_program_killed_by_a_signal(self):
        run = self.check("start", "launches:1:1", f"signal:{int(signal.SIGSEGV)}")
        self.assertEqual(run.returncode, 128 + signal.SIGSEGV)
        self.assertIn("did not end in an orderly way", run.stderr)

    def test_findings_survive_kill_9_of_the_target(self):
        run = self.check("start", "fault", f"signal:{int(signal.SIGKILL)}")
        self.assertEqual(run.returncode, 86)

    def test_nothing_checked_is_no_success(self):
        run = self.check("start", "launches:3:0", "end")
        self.assertEqual(run.returncode, 4)
        self.assertIn("error: none of the 3 launches could be checked", run.stderr)

    def test_required_coverage(self):
        flags = ["--require-coverage", "60"]
        self.assertEqual(self.check("start", "launches:3:2", "end", flags=flags).returncode, 0)
        self.assertEqual(self.check("start", "launches:2:1", "end", flags=flags).returncode, 4)

    def test_a_tool_that_could_not_work_exits_with_3(self):
        run = self.check("start", "error:no shadow memory", "launches:1:1", "end")
        self.assertEqual(run.returncode, 3)
        self.assertIn("error: no shadow memory", run.stderr)

    def test_program_without_cuda_is_a_note_not_a_failure(self):
        run = self.check("print:hello")
        self.assertEqual(run.returncode, 0)
        self.assertRegex(run.stderr, r"^ops-debug: no CUDA driver call was seen; nothing to check.*\n$")

    # ---- usage ----

    def assert_usage(self, run, *parts):
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertTrue(run.stderr.startswith("ops-debug: error: "), run.stderr)
        self.assertIn("\n  hint: ", run.stderr)
        for part in parts:
            self.assertIn(part, run.stderr)

    def test_bad_usage_says_what_to_do(self):
        self.assert_usage(self.run_tool(), "no command")
        self.assert_usage(self.run_tool("chek-memory"), 'did you mean "check-memory"?')
        self.assert_usage(self.run_tool("check-memory"), "no program")
        self.assert_usage(self.run_tool("run", "--check", "memory", TARGET), "put the program behind it")
        self.assert_usage(self.run_tool("check-memory", "--ouput", "x", "--", TARGET), "did you mean --output?")
        self.assert_usage(self.run_tool("check-memory", "--entry", "k", "--", TARGET), "needs --kernel FILE")
        self.assert_usage(self.run_tool("check-sync"), "no program", "ops-debug check-sync -- ./program")
        self.assert_usage(self.run_tool("check-sync", "--block-size", "8", "--", TARGET), "needs --kernel FILE", "check-sync")
        self.assert_usage(self.run_tool("run", "--check", "rase", "--", TARGET), "race, sync, init", "did you mean race?")
        self.assert_usage(self.run_tool("report"), "no log")
        self.assert_usage(self.run_tool("check-memory", "--", "/no/such/program"), "no such file")
        self.assert_usage(self.run_tool("check-memory", "--", "no-such-program-here"), "command not found")
        self.assert_usage(self.run_tool("check-memory", "--", "/tmp"), "is a directory")

    def test_program_that_cannot_be_executed(self):
        script = self.folder / "train.py"
        script.write_text("print('x')\n")
        self.assert_usage(self.run_tool("check-memory", "--", script), "not executable", f"python3 {script}")
        broken = self.folder / "broken"
        broken.write_bytes(b"\x7fnonsense")
        broken.chmod(0o755)
        run = self.run_tool("check-memory", "--device", "emulator", "--", broken)
        self.assertEqual(run.returncode, 2)
        self.assertIn("Exec format error", run.stderr)

    def test_help_of_every_command_has_an_example(self):
        run = self.run_tool("--help")
        self.assertEqual(run.returncode, 0)
        for command in ("check-memory", "check-sync", "check-precision", "run", "report"):
            self.assertIn(command, run.stdout)
            text = self.run_tool(command, "--help")
            self.assertEqual(text.returncode, 0)
            self.assertIn("Example:\n  ops-debug " + command, text.stdout)
            self.assertIn("Exit codes:", text.stdout)
        self.assertNotIn("--rewrite", self.run_tool("run", "--help").stdout)

    def test_version(self):
        self.assertRegex(self.run_tool("--version").stdout, r"^ops-debug \d+\.\d+\.\d+\n$")

    def test_help_behind_the_separator_belongs_to_the_program(self):
        run = self.check("--help", "print:mine")
        self.assertEqual(run.stdout, "mine\n")

    # ---- output ----

    def test_the_programs_stdout_stays_its_own(self):
        run = self.check("start", "print:result", "fault", "end")
        self.assertEqual(run.stdout, "result\n")

    def test_report_to_a_file_as_json(self):
        path = self.folder / "report.json"
        run = self.check("start", "fault", "end", flags=["--format", "json", "--output", path])
        self.assertEqual(run.stderr, "")
        report = json.loads(path.read_text())
        self.assertEqual(report["schema"], 1)
        self.assertEqual(report["findings"][0]["kind"], "oob-global")
        self.assertEqual(report["coverage"]["processes"][0]["device"], "fake device")

    def test_report_to_stdout(self):
        run = self.check("start", "fault", "end", flags=["--output", "-"])
        self.assertIn("ops-debug: 1 finding", run.stdout)

    def test_report_that_cannot_be_written_is_told_before_the_program_runs(self):
        run = self.check("print:ran", flags=["--output", "/no/such/folder/x"])
        self.assertEqual(run.returncode, 3)
        self.assertEqual(run.stdout, "")
        self.assertIn("cannot write the report", run.stderr)

    # ---- log ----

    def test_offline_report_equals_the_live_one(self):
        log = self.folder / "run.odlog"
        for style in ("text", "json"):
            live = self.check("start", "many:2000", "fault", "end", flags=["--log", log, "--format", style])
            offline = self.run_tool("report", log, "--format", style)
            self.assertEqual(offline.returncode, 86)
            self.assertEqual(offline.stdout, live.stderr)

    def test_clean_log_reports_clean(self):
        log = self.folder / "run.odlog"
        self.check("start", "launches:1:1", "end", flags=["--log", log])
        self.assertEqual(self.run_tool("report", log).returncode, 0)

    def test_truncated_log_gives_what_is_left_and_says_so(self):
        log = self.folder / "run.odlog"
        self.check("start", "fault", "end", flags=["--log", log])
        log.write_bytes(log.read_bytes()[:-10])
        run = self.run_tool("report", log)
        self.assertEqual(run.returncode, 86)
        self.assertIn("the recording was cut off", run.stdout)

    def test_what_is_no_log_is_refused(self):
        garbage = self.folder / "garbage"
        garbage.write_bytes(b"\x00garbage" * 100)
        for path, text in ((garbage, "is not an ops-debug log"), ("/no/such/log", "No such file")):
            run = self.run_tool("report", path)
            self.assertEqual(run.returncode, 3)
            self.assertIn(text, run.stderr)
            self.assertIn("  hint: ", run.stderr)

    def test_log_that_cannot_be_written(self):
        run = self.check("print:ran", flags=["--log", "/no/such/folder/x.odlog"])
        self.assertEqual(run.returncode, 3)
        self.assertIn("cannot write log", run.stderr)

    # ---- what reaches the target ----

    def test_environment_of_the_target(self):
        names = ["LD_PRELOAD", "LD_LIBRARY_PATH", "OPS_DEBUG_CHECKS", "OPS_DEBUG_REWRITE", "OPS_DEBUG_ON_ERROR"]
        names += ["OPS_DEBUG_QUARANTINE_BYTES", "OPS_DEBUG_EMULATOR", "OPS_DEBUG_EMULATE", "FAKE_LIBRARY_LOADED"]
        run = self.check(
            *[f"env:{name}" for name in names],
            flags=["--quarantine-size", "1M", "--on-error", "trap", "--emulate", "a100,h100"],
            env={"LD_PRELOAD": "libm.so.6", "LD_LIBRARY_PATH": "/mine"},
        )
        values = dict(line.split("=", 1) for line in run.stdout.splitlines())
        self.assertEqual(values["LD_PRELOAD"], f"{self.library}:libm.so.6")
        self.assertEqual(values["LD_LIBRARY_PATH"], f"{self.install}/emulator:/mine")
        self.assertEqual(values["OPS_DEBUG_CHECKS"], "memory")
        self.assertEqual(values["OPS_DEBUG_REWRITE"], "checks")
        self.assertEqual(values["OPS_DEBUG_ON_ERROR"], "trap")
        self.assertEqual(values["OPS_DEBUG_QUARANTINE_BYTES"], str(1 << 20))
        self.assertEqual(values["OPS_DEBUG_EMULATOR"], "1")
        self.assertEqual(values["OPS_DEBUG_EMULATE"], "a100,h100")
        self.assertEqual(values["FAKE_LIBRARY_LOADED"], "1")

    def test_filters_and_engine_reach_the_target(self):
        names = ["ENGINE", "TENSORS", "KERNEL_NAME", "LAUNCH_SKIP", "LAUNCH_COUNT", "SAMPLE", "LEAK_CHECK", "PTX_STORE"]
        run = self.check(
            *[f"env:OPS_DEBUG_{name}" for name in names],
            flags=["--engine", "ptx", "--tensors", "off", "--kernel-name", "gemm|soft", "--launch-skip", "1"]
            + ["--launch-count", "5", "--sample", "1/10", "--leak-check", "--ptx-store", "none"],
        )
        values = dict(line.split("=", 1) for line in run.stdout.splitlines())
        self.assertEqual(
            [values[f"OPS_DEBUG_{name}"] for name in names],
            ["ptx", "0", "gemm|soft", "1", "5", "10", "1", "(unset)"],
        )

    def test_checks_reach_the_target(self):
        for arguments, checks in (
            (["check-memory"], "memory"),
            (["check-sync"], "race,sync,init"),
            (["check-sync", "--check", "race"], "race"),
            (["check-precision"], "precision"),
            (["run"], "memory"),
            (["run", "--check", "sync,race"], "race,sync"),
            (["run", "--check-sync"], "race,sync,init"),
            (["run", "--check", "all", "--engine", "ptx", "--replay", "3"], "memory,race,sync,init,precision"),
        ):
            run = self.run_tool(*arguments, "--device", "emulator", "--", TARGET, "env:OPS_DEBUG_CHECKS")
            self.assertEqual(run.stdout, f"OPS_DEBUG_CHECKS={checks}\n", arguments)

    def test_a_race_ends_a_search_for_schedules(self):
        run = self.run_tool("check-sync", "--schedules", "2", "--", TARGET, "start", "race", "end")
        self.assertEqual(run.returncode, 86)
        self.assertIn("schedule 1 of 2 failed: findings", run.stderr)

    def test_a_wrong_regular_expression_is_shown_with_its_place(self):
        run = self.check("print:ran", flags=["--kernel-name", "soft(max"])
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("\n  soft(max\n      ^\n", run.stderr)

    def test_program_is_found_on_the_path(self):
        folder = pathlib.Path(TARGET).parent
        run = self.run_tool(
            "run", "--check", "none", "--device", "emulator", "--", "fake_target", "env:OPS_DEBUG_CHECKS",
            env={"PATH": f"/nowhere:{folder}"},
        )  # fmt: skip
        self.assertEqual(run.stdout, "OPS_DEBUG_CHECKS=none\n")

    def test_kernel_files_go_to_the_runner_with_their_flags(self):
        run = self.run_tool(
            "check-memory", "--device", "emulator", "--kernel", "k.cu", "--input-shape", "8x8", "--arg", "n=-1",
            "--arg=m=2", "--grid", "4", "--debug-build", "--nvcc-option=-Iinc", "--", "a", "--b", "exit=7",
        )  # fmt: skip
        self.assertEqual(
            run.stdout.split(),
            ["--kernel=k.cu", "--input-shape=8x8", "--arg=n=-1", "--arg=m=2", "--grid=4", "--debug-build"]
            + ["--nvcc-option=-Iinc", "--", "a", "--b", "exit=7"],
        )
        self.assertEqual(run.returncode, 7)
        self.assertNotIn("no CUDA driver call", run.stderr)

    def test_kernel_files_are_checked_for_races_too(self):
        run = self.run_tool(
            "check-sync", "--device", "emulator", "--check", "all", "--kernel", "reduce_sum.cu", "--block-size", "256",
            "--check-boundary",
        )  # fmt: skip
        self.assertEqual(run.stdout.split(), ["--kernel=reduce_sum.cu", "--block-size=256", "--check-boundary"])

    def test_missing_parts_of_the_installation_are_named(self):
        self.library.unlink()
        run = self.check("print:ran")
        self.assertEqual((run.returncode, run.stdout), (3, ""))
        self.assertIn("libops_debug_interposer.so is missing", run.stderr)

    def test_missing_analyzer(self):
        (self.install / "ops-debug-analyzer").unlink()
        run = self.check("print:ran")
        self.assertEqual((run.returncode, run.stdout), (3, ""))
        self.assertIn("ops-debug-analyzer", run.stderr)

    def test_a_gpu_that_is_not_there(self):
        if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
            self.skipTest("this machine has a GPU")
        run = self.run_tool("check-memory", "--device", "gpu", "--", TARGET)
        self.assertEqual(run.returncode, 3)
        self.assertIn("no usable NVIDIA GPU", run.stderr)
        self.assertIn("--device emulator", run.stderr)

    def test_auto_takes_the_emulator_without_a_gpu(self):
        if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
            self.skipTest("this machine has a GPU")
        run = self.run_tool("check-memory", "--", TARGET, "env:OPS_DEBUG_EMULATOR")
        self.assertEqual(run.stdout, "OPS_DEBUG_EMULATOR=1\n")

    # ---- signals and violent ends ----

    def start(self, *words):
        process = subprocess.Popen(
            self.command("check-memory", "--device", "emulator", "--", TARGET, *words),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_sigterm_is_passed_on_and_the_report_still_comes(self):
        process = self.start("start", "fault", "ready", "wait")
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 86)
        self.assertIn("1 finding", stderr)

    def test_sigint_is_passed_on(self):
        process = self.start("start", "launches:1:1", "ready", "wait")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)

    def test_an_analyzer_that_is_killed_is_told_of_and_the_program_goes_on(self):
        process = self.start("start", "ready", "wait")
        os.kill(analyzer_of(process.pid), signal.SIGKILL)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3)
        self.assertIn("the analyzer ended before the program did", stderr)

    def test_no_shared_memory_stays_behind(self):
        before = segments_left()
        self.check("start", "fault", "end")
        self.check("start", f"signal:{int(signal.SIGKILL)}")
        process = self.start("start", "ready", "wait")
        os.kill(analyzer_of(process.pid), signal.SIGKILL)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(segments_left() - before, set())

    # ---- shared memory ----

    def test_shared_memory_that_cannot_be_had_does_not_stop_the_program_but_is_told_of(self):
        for options, text in (("ro", "Read-only file system"), ("size=1m", "No space left on device")):
            mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} none /dev/shm && exec "$@"', "sh"]
            if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode != 0:
                self.skipTest("needs the right to mount")
            run = subprocess.run(
                [*mount, *self.command("check-memory", "--device", "emulator", "--", TARGET, "start", "fault", "end")],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            self.assertEqual(run.returncode, 86)
            self.assertIn("the event ring is in nameless memory", run.stderr)
            self.assertIn(text, run.stderr)

    # ---- installation ----

    def test_only_the_c_library_is_needed(self):
        allowed = ("linux-vdso", "libc.so", "libm.so", "libpthread.so", "ld-linux", "/lib64/ld-linux")
        for program in (OPS_DEBUG, ANALYZER):
            lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split("\n")
            others = [line for line in lines if line.strip() and not line.strip().startswith(allowed)]
            self.assertEqual(others, [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
