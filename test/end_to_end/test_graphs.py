"""Kernels that run as nodes of a captured graph are checked like launched ones."""
import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/graph.cu"


@pytest.fixture(scope="module")
def graph_program(built):
    return built(SOURCE, "-cudart", "shared")


def test_captured_and_replayed_graph_runs_unchanged_and_silent(tool, graph_program):
    run = tool("run", "--check", "memory", "--", graph_program)
    assert run.stdout == "cudaSuccess cudaSuccess cudaSuccess 33\n"
    assert run.report["findings"] == []
    assert run.code == 0


def test_fault_of_a_captured_kernel_is_found_at_the_replays(tool, graph_program):
    run = tool("run", "--check", "memory", "--", graph_program, "overflow")
    assert run.stdout == "cudaSuccess cudaSuccess cudaSuccess 33\n"  # the bad store is skipped
    assert run.code == 86
    findings = run.report["findings"]
    assert [finding["kind"] for finding in findings] == ["oob-global", "oob-global"]  # load and store
    assert all(finding["count"] == 3 for finding in findings)  # once per replay
    assert all(finding["kernel"].startswith("add(") for finding in findings)
    assert all(finding["line"] == 10 for finding in findings)
