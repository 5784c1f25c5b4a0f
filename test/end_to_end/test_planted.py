"""planted.cu on the emulator: seven faults are found at their line, the nine others are not this checker's and stay silent."""
import planted
import pytest


@pytest.fixture(scope="session")
def program(built, shared_kernels):
    return built(shared_kernels / "planted.cu", "-cudart", "shared")


@pytest.mark.parametrize("expected", planted.EXPECTED, ids=lambda e: f"fault{e.fault}")
def test_fault_is_found(tool, program, shared_kernels, expected):
    run = tool("run", "--check", "memory", "--", program, expected.fault)
    assert run.report is not None, run.stderr
    assert planted.problems(run.report, shared_kernels / "planted.cu", expected) == []
    assert run.code == 86


@pytest.mark.parametrize("fault", planted.SILENT)
def test_other_fault_is_silent(tool, program, fault):
    run = tool("run", "--check", "memory", "--", program, fault)
    assert run.report is not None, run.stderr
    assert run.report["findings"] == []
    assert run.code == 0
    assert run.stdout == ""


def test_program_goes_on_after_a_skipped_access(tool, program):
    """Without the tool fault 11 ends in an error that the program prints; the skipped access leaves none."""
    assert tool("run", "--check", "memory", "--", program, 11).stdout == ""


def test_on_error_trap_stops_the_kernel_and_the_fault_is_reported(tool, program):
    run = tool("run", "--check", "memory", "--on-error", "trap", "--", program, 1)
    assert [finding["kind"] for finding in run.report["findings"]] == ["oob-global"]
    assert "cudaDeviceSynchronize" in run.stdout  # the program sees its launch fail
    assert run.code == 86
