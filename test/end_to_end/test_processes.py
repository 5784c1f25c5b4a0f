"""Habits of real programs: children, exec, signals, other tools in the process, one log per process."""
import ctypes.util
import os
import shutil
import signal
import subprocess
import sys
import time

import conftest
import pytest

PROGRAMS = conftest.BUILD / "test/programs"
LAZY, NOW = PROGRAMS / "end_to_end_processes", PROGRAMS / "end_to_end_processes_now"
PLUGIN = PROGRAMS / "libend_to_end_plugin.so"
SOURCES = conftest.ROOT / "test/end_to_end/programs"
SUM = "sum 499500\n"


@pytest.fixture
def check(tool):
    def run(*command, **options):
        return tool("run", "--check", "memory", "--", *command, **options)

    return run


def kinds(run) -> list[str]:
    return [finding["kind"] for finding in run.report["findings"]]


def processes(run) -> list[dict]:
    return run.report["coverage"]["processes"]


def launches(run) -> tuple[int, int]:
    return run.report["coverage"]["launches"], run.report["coverage"]["checked_launches"]


def remarks(run) -> list[str]:
    return [remark["text"] for remark in run.report["remarks"]]


# Children


def test_forked_child_and_parent_announce_themselves_and_the_finding_names_the_child(check):
    run = check(LAZY, "fork-then-both")
    assert run.stdout == 2 * SUM + "child exited with 0\n"
    assert len(processes(run)) == 2 and launches(run) == (2, 2)
    assert kinds(run) == ["oob-global"]
    child = max(process["id"] for process in processes(run))
    assert [place["id"] for place in run.report["findings"][0]["processes"]] == [child]
    assert remarks(run) == []


def test_idle_forked_children_leave_no_trace(check):
    run = check(LAZY, "fork-idle")
    assert run.stdout == 4 * "child exited with 0\n" + SUM
    assert len(processes(run)) == 1 and launches(run) == (1, 1)
    assert kinds(run) == [] and remarks(run) == [] and run.code == 0


def test_forked_child_that_the_driver_refuses_does_not_count_its_parents_launches_again(check):
    run = check(LAZY, "fork-after-init")
    assert run.stdout == "cuCtxSynchronize: error 3\nchild exited with 0\n" + SUM
    assert launches(run) == (1, 1) and len(processes(run)) == 2


def test_fork_while_another_thread_launches(check):
    run = check(LAZY, "fork-while-launching")
    assert run.stdout == SUM
    assert len(processes(run)) == 1 and kinds(run) == [] and remarks(run) == []


def test_child_that_ends_by_exit_at_once_loses_no_fault(check):
    run = check(LAZY, "fork-exit-at-once")
    assert run.stdout == "child exited with 3\n"
    assert kinds(run) == ["oob-global"] and launches(run) == (1, 1) and remarks(run) == []


def test_vforked_child_is_a_process_of_its_own_and_the_parent_goes_on_being_checked(check):
    run = check(LAZY, "vfork", LAZY, "compute", "overflow")
    assert run.stdout == 2 * SUM + "child exited with 0\n" + SUM
    assert len(processes(run)) == 2 and launches(run) == (3, 3)
    assert len(run.report["findings"]) == 1  # the same place in both
    assert len(run.report["findings"][0]["processes"]) == 2
    assert run.report["findings"][0]["count"] == 2


@pytest.mark.parametrize("name, number", [("SEGV", signal.SIGSEGV), ("KILL", signal.SIGKILL), ("ABRT", signal.SIGABRT)])
def test_what_a_child_sent_before_it_died_is_reported(check, name, number):
    run = check(LAZY, "killed-child", name)
    assert run.stdout == f"{SUM}child killed by {int(number)}\n{SUM}"
    assert kinds(run) == ["oob-global"] and launches(run) == (2, 2)
    told = " ".join(remarks(run))
    assert ("did not end in an orderly way" if name == "KILL" else f"was ended by SIG{name}") in told


def test_a_child_that_outlives_the_program_is_waited_for_a_moment(check):
    run = check(LAZY, "daemon")
    assert kinds(run) == ["oob-global"] and remarks(run) == []


def test_a_process_that_passes_its_work_on_by_fork_is_not_taken_for_gone(check):
    run = check(LAZY, "relay")
    assert kinds(run) == ["oob-global"] and remarks(run) == []


def test_a_daemon_that_goes_on_is_named(check):
    run = check(LAZY, "daemon", "long")
    assert kinds(run) == ["oob-global"]
    assert any("was still running when the program ended" in text for text in remarks(run))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loader_workers_that_do_not_use_the_device_are_silent(check, method):
    run = check(sys.executable, SOURCES / "data_loader.py", method)
    assert run.stdout == "before 4950\nbatches 328350\nafter 4950\n"
    assert len(processes(run)) == 1 and launches(run) == (2, 2)
    assert kinds(run) == [] and remarks(run) == [] and run.code == 0


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_use_the_device_are_checked(check, method):
    run = check(sys.executable, SOURCES / "data_loader.py", method, "uses")
    assert run.stdout == "before 4950\nbatches 328350\nworkers [4950, 4950]\nafter 4950\n"
    assert kinds(run) == ["oob-global"] and run.report["findings"][0]["count"] == 2
    assert launches(run) == (4, 4) and remarks(run) == []


# exec


def test_exec_reports_what_the_replaced_program_left(check):
    run = check(LAZY, "exec", "/bin/echo", "hello")
    assert run.stdout == "hello\n"
    assert kinds(run) == ["oob-global"] and remarks(run) == []


def test_two_programs_under_one_process_id(check):
    run = check(LAZY, "exec", NOW, "compute")
    assert run.stdout == SUM
    assert [os.path.basename(process["executable"]) for process in processes(run)] == [LAZY.name, NOW.name]
    assert len({process["id"] for process in processes(run)}) == 1
    assert launches(run) == (2, 2) and kinds(run) == ["oob-global"] and remarks(run) == []


def test_exec_that_fails_lets_the_program_go_on_checked(check):
    run = check(LAZY, "exec", "/nonexistent")
    assert run.stdout == "exec failed\n" + SUM
    assert kinds(run) == ["oob-global"] and launches(run) == (1, 1) and remarks(run) == []


# Environments that lost something


@pytest.mark.parametrize("program", [LAZY, NOW])
def test_child_without_ld_preload_is_checked_through_the_driver(check, program):
    run = check(LAZY, "spawn-without", "LD_PRELOAD", program, "compute", "overflow")
    assert run.stdout == SUM + "child exited with 0\n"
    assert kinds(run) == ["oob-global"] and launches(run) == (1, 1) and remarks(run) == []
    assert [process["injected"] for process in processes(run)] == [True]


def test_program_that_looks_everything_up_is_checked_without_ld_preload(check):
    run = check("env", "-u", "LD_PRELOAD", PROGRAMS / "end_to_end_driver_dlopen", "overflow")
    assert run.stdout == SUM
    assert kinds(run) == ["oob-global"] and launches(run) == (2, 2)


def test_run_time_api_program_is_checked_without_ld_preload(check, built):
    program = built(SOURCES / "runtime_api.cu", "-cudart", "shared")
    run = check("env", "-u", "LD_PRELOAD", program, "overflow")
    assert run.stdout == "sum 1997.0 no error\n" or run.stdout.startswith("sum ")
    assert kinds(run) == ["oob-global"] and launches(run) == (2, 2)
    right = check("env", "-u", "LD_PRELOAD", program)
    assert right.stdout == "sum 1998.0 no error\n" and kinds(right) == [] and launches(right) == (2, 2)


def test_python_is_checked_without_ld_preload(check):
    run = check("env", "-u", "LD_PRELOAD", sys.executable, SOURCES / "data_loader.py", "spawn", "uses")
    assert run.stdout == "before 4950\nbatches 328350\nworkers [4950, 4950]\nafter 4950\n"
    assert kinds(run) == ["oob-global"] and launches(run) == (4, 4)


def test_library_that_is_loaded_twice_is_checked_without_ld_preload(check):
    run = check("env", "-u", "LD_PRELOAD", LAZY, "plugin", PLUGIN)
    assert run.stdout == 2 * SUM
    assert kinds(run) == ["oob-global"] and launches(run) == (2, 2)


def test_child_with_an_empty_environment_is_named(check):
    run = check("env", "-i", f"LD_LIBRARY_PATH={conftest.BUILD}/emulator", LAZY, "compute")
    assert run.stdout == SUM
    told = [text for text in remarks(run) if "was started without the tool" in text]
    assert len(told) == 1 and str(LAZY) in told[0] and "LD_PRELOAD" in told[0]


def test_spawned_child_with_an_empty_environment_is_named(check):
    run = check(LAZY, "spawn-without", "*", NOW, "compute")
    assert any(str(NOW) in text and "environment was cleared" in text for text in remarks(run))


def test_a_program_that_cannot_load_the_driver_may_run_without_the_tool(check, tmp_path):
    program = tmp_path / "static"
    compiled = subprocess.run(["g++", "-static", "-x", "c++", "-o", str(program), "-"], input="int main() { return 0; }",
                              text=True, capture_output=True)
    if compiled.returncode != 0:
        pytest.skip("no static C library")
    run = check("env", "-i", program)
    assert run.code == 0
    assert not any("environment was cleared" in text for text in remarks(run))


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGABRT,
                                    signal.SIGSEGV])
def test_signal_with_default_action_loses_no_fault_and_stays_invisible(tool, number):
    run = tool("run", "--check", "memory", "--error-exitcode", "0", "--", LAZY, "raise", str(int(number)))
    assert run.stdout == "default 1\n"
    assert run.code == 128 + number
    assert kinds(run) == ["oob-global"] and launches(run) == (1, 1)
    assert any(f"was ended by {signal.Signals(number).name}" in text for text in remarks(run))


def test_the_programs_own_handler_is_called_and_default_set_again_is_ours_again(tool):
    run = tool("run", "--check", "memory", "--error-exitcode", "0", "--", LAZY, "own-handler")
    assert run.stdout == "old is default 1\nown handler\n"
    assert run.code == 128 + signal.SIGTERM and kinds(run) == ["oob-global"]


def test_sigterm_from_outside_reaches_the_program_and_the_report_is_written(tmp_path):
    report = tmp_path / "report.txt"
    run = subprocess.Popen([conftest.BUILD / "ops-debug", "run", "--device", "emulator", "--check", "memory", "--output",
                            report, "--", LAZY, "sleep"], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "sleeping\n"
    began = time.monotonic()
    run.terminate()
    assert run.wait(timeout=20) == 86
    assert time.monotonic() - began < 5
    assert "oob-global" in report.read_text() and "was ended by SIGTERM" in report.read_text()


def test_a_kernel_that_never_ends_does_not_keep_a_signal_from_ending_the_program(tmp_path):
    report = tmp_path / "report.txt"
    run = subprocess.Popen([conftest.BUILD / "ops-debug", "run", "--device", "emulator", "--check", "memory", "--output",
                            report, "--", LAZY, "spin"], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "spinning\n"
    time.sleep(0.3)
    began = time.monotonic()
    run.terminate()
    assert run.wait(timeout=20) == 86
    assert time.monotonic() - began < 5
    assert "oob-global" in report.read_text() and "was ended by SIGTERM" in report.read_text()


# Odd lives


def test_static_destructor_that_launches_is_checked(check):
    run = check(LAZY, "late")
    assert run.stdout == "main ends\nlate end\n"
    assert kinds(run) == ["oob-global"] and launches(run) == (1, 1)


def test_threads_that_launch_while_the_program_exits(check):
    run = check(LAZY, "threads-at-exit", timeout=30)
    assert run.stdout == "main ends\n"
    assert kinds(run) == ["oob-global"] and run.code == 86


def test_library_that_uses_the_driver_and_is_closed(check):
    run = check(LAZY, "plugin", PLUGIN)
    assert run.stdout == 2 * SUM
    assert kinds(run) == ["oob-global"] and launches(run) == (2, 2)


def test_few_open_files_blocked_signals_and_another_folder(check):
    run = check(LAZY, "confined")
    assert run.stdout == SUM and kinds(run) == ["oob-global"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_program_that_gives_its_rights_away(check):
    run = check(LAZY, "another-user")
    assert run.stdout == SUM and kinds(run) == ["oob-global"] and remarks(run) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot is root's")
def test_program_that_locks_itself_in(check, tmp_path):
    run = check(LAZY, "chroot", tmp_path)
    assert run.stdout == SUM and kinds(run) == ["oob-global"]


# Other tools


def test_another_preloaded_library_is_named(check):
    library = ctypes.util.find_library("z")
    run = check(LAZY, "compute", environment={"LD_PRELOAD": library})
    assert run.stdout == SUM
    assert any(f"{library} (LD_PRELOAD)" in text for text in remarks(run))


def test_another_injection_library_keeps_its_place_and_is_named(check, tmp_path):
    run = check("sh", "-c", f'echo "$CUDA_INJECTION64_PATH"; {LAZY} compute',
                environment={"CUDA_INJECTION64_PATH": str(PLUGIN)})
    assert run.stdout == f"{PLUGIN}\n{SUM}"
    assert any(f"{PLUGIN.name} (CUDA_INJECTION64_PATH)" in text for text in remarks(run))


def test_a_tool_that_left_its_variables_is_named(check):
    run = check(LAZY, "compute", environment={"NV_SANITIZER_INJECTION_PORT_BASE": "49152"})
    assert any("compute-sanitizer" in text for text in remarks(run))


def test_a_profiler_that_begins_is_named(check):
    library = PROGRAMS / "libend_to_end_profiling.so"
    run = check(sys.executable, "-c", f"import ctypes; print(ctypes.CDLL('{library}').cuptiActivityEnable(41))")
    assert run.stdout == "42\n"
    assert any("a CUPTI client" in text for text in remarks(run))


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
def test_a_debugger_is_named(check):
    run = check("gdb", "-q", "-batch", "-ex", "run", "--args", LAZY, "compute")
    assert SUM.strip() in run.stdout
    assert any("gdb (it traces this process)" in text for text in remarks(run))


# Logs

RANKS = "for rank in 0 1 2; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=3 {program} compute {what} & done; wait"


def test_one_log_per_process_each_readable_alone_and_merged(tool, tmp_path):
    folder = tmp_path / "logs"
    command = RANKS.format(program=LAZY, what="overflow")
    live = tool("run", "--check", "memory", "--log", f"{folder}/", "--", "sh", "-c", command)
    logs = sorted(folder.iterdir())
    ids = {process["rank"]: process["id"] for process in processes(live)}
    assert [log.name for log in logs] == [f"{LAZY.name}.rank{rank}.{ids[rank]}.odlog" for rank in "012"]

    finding = live.report["findings"][0]
    assert kinds(live) == ["oob-global"] and finding["count"] == 3
    assert sorted(place["rank"] for place in finding["processes"]) == ["0", "1", "2"]
    assert launches(live) == (3, 3)

    for log in logs:
        alone = tool("report", log)
        assert kinds(alone) == ["oob-global"] and launches(alone) == (1, 1) and len(processes(alone)) == 1
    merged = tool("report", folder)
    assert merged.report["coverage"] == live.report["coverage"]
    assert kinds(merged) == ["oob-global"] and merged.report["findings"][0]["count"] == 3
    assert kinds(tool("report", *logs)) == ["oob-global"]


def test_merged_text_lists_the_ranks(tool, tmp_path):
    (tmp_path / "logs").mkdir()
    command = RANKS.format(program=LAZY, what="overflow")
    run = tool("run", "--check", "memory", "--log", tmp_path / "logs", "--", "sh", "-c", command, json_report=False)
    assert "ranks 0, 1, 2" in run.stderr
    assert "ranks 0, 1, 2" in tool("report", tmp_path / "logs", json_report=False).stdout


def test_rank_of_other_launchers(tool):
    run = tool("run", "--check", "memory", "--", LAZY, "compute",
               environment={"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"})
    assert [(process["rank"], process["world_size"]) for process in processes(run)] == [("5", "8")]


def test_logs_of_two_runs_with_equal_process_ids_are_different_processes(tool, tmp_path):
    run = tool("run", "--check", "memory", "--log", tmp_path / "a.odlog", "--", LAZY, "compute", "overflow")
    shutil.copy(tmp_path / "a.odlog", tmp_path / "b.odlog")
    merged = tool("report", tmp_path / "a.odlog", tmp_path / "b.odlog")
    assert len(processes(merged)) == 2 and launches(merged) == (2, 2)
    assert kinds(merged) == ["oob-global"] and merged.report["findings"][0]["count"] == 2
    assert len(processes(run)) == 1


def test_folder_without_a_log_and_file_that_is_none(tool, tmp_path):
    run = tool("report", tmp_path)
    assert run.code == 3 and "no log in folder" in run.stderr
    (tmp_path / "text.odlog").write_text("this is not a log")
    assert tool("report", tmp_path).code == 3


def test_run_without_cuda_leaves_a_readable_log_in_the_folder(tool, tmp_path):
    tool("run", "--check", "memory", "--log", f"{tmp_path}/logs/", "--", "true")
    merged = tool("report", tmp_path / "logs")
    assert remarks(merged) == ["no CUDA driver call was seen"]
