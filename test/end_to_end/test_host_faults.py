"""Launches and calls that failed and that the program ignored, leaks, and programs that do not wait for their kernels."""
import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/host_faults.cu"


@pytest.fixture(scope="module")
def program(built):
    return built(SOURCE, "-cudart", "shared")


def found(run, kind):
    return [finding for finding in run.report["findings"] if finding["kind"] == kind]


@pytest.mark.parametrize(("mistake", "words"), [
    ("shared", ["61440 bytes (60 kB) of dynamic shared memory", "49152 bytes (48 kB)", "cudaFuncSetAttribute"]),
    ("block", ["2048 threads", "the device allows 1024"]),
    ("bounds", ["512 threads", "this kernel allows 128", "__launch_bounds__"]),
    ("empty", ["the grid has 0 blocks in x"]),
    ("grid", ["70000 blocks in y", "65535"]),
    ("cooperative", ["a cooperative launch of 100000 blocks", "132 multiprocessors"]),
    ("device", ["the stream belongs to another device"]),
])
def test_refused_launch_is_explained_in_words(tool, program, mistake, words):
    run = tool("run", "--emulate", "h100,h100", "--", program, mistake)
    assert run.stdout == "cudaSuccess 1\n"
    launches = found(run, "invalid-launch")
    assert len(launches) == len(run.report["findings"]) == 1
    for word in words:
        assert word in launches[0]["message"]
    assert run.code == 86


@pytest.mark.parametrize(("mistake", "words"), [
    ("copy", ["cuMemcpyDtoH", "goes beyond the end of the allocation of 4096 bytes"]),
    ("twice", ["cuMemFree", "was freed before"]),
    ("inside", ["cuMemFree", "64 bytes behind the start"]),
    ("shared-impossible", ["1048576 bytes of dynamic shared memory", "232448"]),
])
def test_failed_call_that_the_program_ignored_is_found(tool, program, mistake, words):
    run = tool("run", "--", program, mistake)
    calls = found(run, "failed-call")
    assert len(calls) == len(run.report["findings"]) == 1
    for word in words:
        assert word in calls[0]["message"]


def test_equal_failures_of_one_place_are_one_finding_with_a_count(tool, program):
    run = tool("run", "--", program, "copy")
    assert found(run, "failed-call")[0]["count"] == 3


@pytest.mark.parametrize("way", ["right", "shared-allowed", "ask"])
def test_right_programs_and_calls_that_ask_are_silent(tool, program, way):
    run = tool("run", "--leak-check", "--", program, way)
    assert run.report["findings"] == []
    assert run.code == 0


def test_memory_that_is_never_freed_is_listed(tool, program):
    run = tool("run", "--leak-check", "--", program, "leak")
    leaks = {leak["allocation"]["api"]: leak for leak in found(run, "leak")}
    assert {api: leak["allocation"]["size_bytes"] for api, leak in leaks.items()} == {
        "cuMemAlloc": 1000, "cuMemHostAlloc": 2000, "cuMemAllocManaged": 3000}
    assert all(leak["allocation"]["allocation_stack"][0]["function"] == "main" for leak in leaks.values())


def test_memory_that_a_device_reset_takes_is_a_leak(tool, program):
    run = tool("run", "--leak-check", "--", program, "leak-reset")
    assert [leak["allocation"]["size_bytes"] for leak in found(run, "leak")] == [1000]


def test_memory_that_a_destructor_of_a_global_object_frees_is_no_leak(tool, program):
    run = tool("run", "--leak-check", "--", program, "late")
    assert run.report["findings"] == []


def test_without_leak_check_leaks_are_not_looked_for(tool, program):
    assert tool("run", "--", program, "leak").report["findings"] == []


@pytest.mark.parametrize("end", ["killed", "aborted"])
def test_faults_that_nobody_waited_for_survive_the_end_of_the_process(tool, program, end):
    run = tool("run", "--", program, end)
    assert [finding["kind"] for finding in run.report["findings"]] == ["oob-global", "oob-global"]
    assert run.report["coverage"]["launches"] == 1
