"""The first command of the README, on a machine without a GPU."""
import conftest
import planted
import pytest

EXAMPLES = conftest.ROOT / "examples"


def check(tool, name):
    run = tool("check-memory", "--kernel", EXAMPLES / name, "--input-shape", "1024x1024", "--check-boundary")
    assert run.report is not None, run.stderr
    return run


@pytest.fixture(scope="module")
def faulty_line():
    return planted.line_of(EXAMPLES / "matmul_kernel.cu", "B[k * N + col]")


def test_the_planted_boundary_fault_is_found_at_its_line_and_first_thread(tool, nvcc, faulty_line):
    run = check(tool, "matmul_kernel.cu")
    assert run.code == 86
    assert len(run.report["findings"]) == 1
    finding = run.report["findings"][0]
    assert (finding["kind"], finding["line"]) == ("oob-global", faulty_line)
    assert (finding["block"], finding["thread"]) == ([0, 0, 0], [0, 0, 0])
    assert finding["count"] == 256 * 16 * 64  # each of 256 blocks reads one tile of 16 x 64 elements too many
    assert finding["allocation"]["size_bytes"] == 4 * 1024 * 1024
    assert finding["allocation"]["distance_bytes"] == 0
    assert finding["parameter"]["index"] == 1


def test_the_right_twin_is_silent(tool, nvcc):
    run = check(tool, "matmul_kernel_fixed.cu")
    assert run.report["findings"] == []
    assert run.code == 0
