"""Launches from several threads, on per-thread streams, over several devices."""
import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/threads.cu"


@pytest.fixture(scope="module", params=["legacy", "per-thread"])
def program(built, request):
    return built(SOURCE, "-cudart", "shared", "-default-stream", request.param)


@pytest.mark.parametrize("devices", [1, 2])
def test_right_threads_are_silent_and_every_launch_is_counted(tool, program, devices):
    run = tool("run", "--emulate", ",".join(["h100"] * devices), "--", program)
    assert run.stdout == f"{devices} devices, sum 100, 100 launches, cudaSuccess\n"
    assert run.report["findings"] == []
    assert run.report["coverage"]["checked_launches"] == run.report["coverage"]["launches"] == 100


@pytest.mark.parametrize("devices", [1, 2])
def test_fault_of_each_thread_is_found(tool, program, devices):
    run = tool("run", "--emulate", ",".join(["h100"] * devices), "--", program, "overflow")
    assert run.stdout == f"{devices} devices, sum 100, 100 launches, cudaSuccess\n"
    assert [finding["kind"] for finding in run.report["findings"]] == ["oob-global", "oob-global"]
    assert all(finding["count"] == 4 for finding in run.report["findings"])
    assert run.report["coverage"]["checked_launches"] == 100
