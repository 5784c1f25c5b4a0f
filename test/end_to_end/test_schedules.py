"""Chosen schedules find faults that show rarely, and give the same run again; deadlocks are explained."""
import os
import re

import conftest
import pytest

EXAMPLES = conftest.ROOT / "examples"
PROGRAMS = conftest.ROOT / "test/end_to_end/programs"
SURVIVED = 2000 if os.environ.get("OPS_DEBUG_NIGHTLY") == "1" else 50


@pytest.fixture(scope="module")
def example(built):
    def build(name, *flags):
        return built(EXAMPLES / f"{name}.cu", "-cudart", "shared", *flags)
    return build


@pytest.fixture(scope="module")
def deadlocks(built):
    return built(PROGRAMS / "deadlocks.cu", "-cudart", "shared")


def failing_seed(run) -> int:
    match = re.search(r"ops-debug: schedule (\d+) of 200 failed: exit code 1\n", run.stderr)
    assert match, run.stderr
    return int(match.group(1))


def line_of(mark: str) -> int:
    lines = (PROGRAMS / "deadlocks.cu").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"LINE {mark}" in line)


def ran(run) -> str:
    """What the program itself printed."""
    return run.stdout


@pytest.mark.parametrize("name", ["message_passing", "ticket"])
def test_rare_fault_is_exposed_and_replayed(tool, example, name):
    program = example(name)
    usual = tool("run", "--", program)
    assert usual.code == 0 and usual.stdout.startswith("0 ")
    found = tool("run", "--schedules", "200", "--", program)
    assert found.code == 1
    seed = failing_seed(found)
    assert f"--replay {seed}" in found.stderr
    for _ in range(2):
        again = tool("run", "--replay", seed, "--", program)
        assert again.code == 1
        assert ran(again) == ran(found)
    if seed > 1:  # the lowest failing one was reported
        assert tool("run", "--schedule-seed", seed - 1, "--", program).code == 0


@pytest.mark.parametrize("name", ["message_passing", "ticket"])
def test_fixed_twin_survives(tool, example, name):
    run = tool("run", "--schedules", SURVIVED, "--", example(name, "-DFIXED"), timeout=3600)
    assert run.code == 0, run.stderr
    assert f"ops-debug: {SURVIVED} schedules ran, none failed\n" in run.stderr


def test_checks_work_in_every_schedule(tool, example):
    run = tool("check-memory", "--schedules", "3", "--", example("ticket", "-DFIXED"))
    assert run.code == 0, run.stderr
    assert run.report["findings"] == []


def test_findings_fail_a_schedule(tool):
    run = tool("check-memory", "--schedules", "4", "--kernel", EXAMPLES / "histogram_kernel.cu", "--input-shape", "4096")
    assert run.code == 86
    assert "ops-debug: the default schedule fails already: findings\n" in run.stderr
    assert {finding["kind"] for finding in run.report["findings"]} == {"oob-shared"}


def test_outputs_of_a_kernel_file_are_compared(tool, tmp_path):
    kernel = tmp_path / "ticket_kernel.cu"
    kernel.write_text("""// ops-debug: block=1 grid=6
extern "C" __global__ void take(int* out, int n) {
  const int ticket = *reinterpret_cast<volatile int*>(out);
  *reinterpret_cast<volatile int*>(out) = ticket + 1;
}
""")
    arguments = ["--kernel", kernel, "--input-shape", "16", "--arg", "n=16"]
    run = tool("check-memory", "--schedules", "60", *arguments)
    assert run.code == 86, run.stderr
    assert re.search(r"schedule \d+ of 60 failed: nondeterministic: output out differs", run.stderr)
    assert tool("check-memory", "--schedules", "5", "--any-output", *arguments).code == 0


def test_schedules_need_the_emulator(tool):
    for flag in ("--schedules", "--schedule-seed", "--replay"):
        run = tool("run", flag, "3", "--", "true", device="gpu", json_report=False)
        assert run.code == 2
        assert f"{flag} needs the emulator" in run.stderr


def test_schedule_flags_exclude_each_other(tool):
    run = tool("run", "--schedules", "3", "--replay", "2", "--", "true", json_report=False)
    assert run.code == 2
    assert "exclude each other" in run.stderr


def test_divergent_barrier_is_explained(tool, deadlocks):
    run = tool("run", "--", deadlocks, "barrier")
    assert run.stdout == "cudaErrorLaunchTimeout\n"
    text = run.stderr
    assert re.search(rf"32 threads wait at `barrier.sync 1;` \(PTX line \d+, \S*deadlocks.cu:{line_of('first half')}\)", text)
    assert re.search(rf"32 threads wait at `barrier.sync 2;` \(PTX line \d+, \S*deadlocks.cu:{line_of('second half')}\)", text)
    assert "for barrier 1 of their block, at which 32 of 64 threads have arrived" in text


def test_unequal_grid_syncs_are_explained(tool, deadlocks):
    run = tool("run", "--check", "none", "--", deadlocks, "grid")
    assert run.stdout == "cudaErrorLaunchTimeout\n"
    assert re.search(r"3 threads of 3 blocks spin at `ld.acquire.gpu[^`]*` \(PTX line \d+, \S*/cooperative_groups/details/sync.h:\d+ "
                     rf"inlined at \S*deadlocks.cu:{line_of('second sync')}\)", run.stderr)
    assert re.search(r"93 threads of 3 blocks wait at `barrier.sync 0;` .* for barrier 0 of their block, "
                     r"at which 31 of 32 threads have arrived", run.stderr)
    assert "of 4 blocks 3 wait or spin, 1 has ended" in run.stderr


def test_spin_on_a_block_that_cannot_start_is_explained(tool, deadlocks):
    run = tool("run", "--", deadlocks, "residency")
    assert run.stdout == "cudaErrorLaunchTimeout\n"
    assert re.search(rf"264 threads of 264 blocks spin at `[^`]*` \(PTX line \d+, \S*deadlocks.cu:{line_of('spin')}\)", run.stderr)
    assert "which holds 0" in run.stderr and "variable flag" in run.stderr
    assert "1 cannot start: the device holds 264 of this kernel at a time" in run.stderr


def test_deadlocks_are_found_in_chosen_schedules_too(tool, deadlocks):
    run = tool("run", "--schedules", "4", "--", deadlocks, "grid")
    assert run.code == 1
    assert "deadlock in kernel" in run.stderr
    assert "schedule 1 of 4 failed" in run.stderr


def test_deadlocks_are_found_under_memory_checking_too(tool, deadlocks):
    run = tool("check-memory", "--", deadlocks, "grid")
    assert run.stdout == "cudaErrorLaunchTimeout\n"
    assert "of 4 blocks 3 wait or spin, 1 has ended" in run.stderr


def test_slow_kernel_is_no_deadlock(tool, deadlocks):
    assert tool("run", "--", deadlocks, "slow").stdout == "cudaSuccess\n"
