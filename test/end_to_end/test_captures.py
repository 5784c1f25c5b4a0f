"""Capturing a launch changes nothing for the program, whatever host and device wait for, and says what it leaves out.
`--device emulator --engine ptx` stands for a GPU here.
"""
import time

import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/captures.cu"


@pytest.fixture
def check(tool, built):
    program = built(SOURCE, "-cudart", "shared", "-Xcompiler", "-g")

    def run(*arguments):
        result = tool("run", "--engine", "ptx", "--check", "race,sync", "--", program, *arguments)
        assert result.report is not None, result.stderr
        return result

    return run


def silent(run) -> bool:
    return (run.code, run.report["findings"], run.stdout) == (0, [], "no error\n")


def reasons(run) -> list[str]:
    return [group["reason"] for group in run.report["coverage"]["replays"]["not_replayed"]]


@pytest.mark.parametrize("case", ["fed_by_copy", "fed_by_thread"])
def test_a_kernel_that_waits_for_a_later_copy_is_no_deadlock(check, case):
    run = check(case, 1500)
    assert run.stdout == "no error\n"
    # That a copy writes what a kernel of another stream reads is another matter.
    assert "deadlock" not in [finding["kind"] for finding in run.report["findings"]]


def test_a_kernel_that_waits_for_nobody_is_ended(check):
    begin = time.monotonic()
    run = check("nobody_feeds")
    assert run.code == 86
    assert "deadlock" in [finding["kind"] for finding in run.report["findings"]]
    assert time.monotonic() - begin < 60


def test_a_stream_that_the_host_holds_up_is_not_waited_for_without_bound(check):
    begin = time.monotonic()
    run = check("busy_stream")
    assert silent(run)
    assert time.monotonic() - begin < 40
    assert any("its stream was busy" in reason for reason in reasons(run))


def test_a_kernel_of_a_graph_is_named(check):
    run = check("graph")
    assert silent(run)
    assert any("node of a graph" in reason for reason in reasons(run))


def test_a_few_shapes_of_a_kernel_are_captured_and_the_others_named(check):
    run = check("shapes")
    assert silent(run)
    assert run.report["coverage"]["replays"]["launches"] == 4
    assert reasons(run) == ["launches of 4 other shapes of it were captured"]


def test_tensor_maps_are_made_again(check):
    run = check("tensor_map")
    assert silent(run)
    assert run.report["coverage"]["replays"]["launches"] == 1
    assert reasons(run) == []
