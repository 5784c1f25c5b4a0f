"""Kernels that run as nodes of a graph are checked like launched ones, however the node came about."""
import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/graph.cu"
NODES_SOURCE = conftest.ROOT / "test/end_to_end/programs/graph_nodes.cu"
WAYS = ["explicit", "any-node", "set-params", "hand-back", "exec-set-params", "update", "child", "conditional", "disabled"]


@pytest.fixture(scope="module")
def graph_program(built):
    return built(SOURCE, "-cudart", "shared")


@pytest.fixture(scope="module")
def nodes_program(built):
    return built(NODES_SOURCE, "-cudart", "shared")


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


def test_replays_count_as_launches_and_captures_do_not(tool, graph_program):
    coverage = tool("run", "--check", "memory", "--", graph_program).report["coverage"]
    assert coverage["launches"] == coverage["checked_launches"] == 6  # two nodes, three replays


@pytest.mark.parametrize("way", WAYS)
def test_program_that_makes_nodes_sees_its_own_kernel_and_no_finding(tool, nodes_program, way):
    run = tool("run", "--check", "memory", "--", nodes_program, way)
    assert run.stdout == "0 failures, last value 3\n"
    assert run.report["findings"] == []
    assert run.report["coverage"]["checked_launches"] == run.report["coverage"]["launches"] == 3
    assert run.code == 0


@pytest.mark.parametrize("way", WAYS)
def test_fault_of_a_node_is_found_however_the_node_was_made(tool, nodes_program, way):
    run = tool("run", "--check", "memory", "--", nodes_program, way, "overflow")
    assert run.stdout == "0 failures, last value 3\n"
    assert [finding["kind"] for finding in run.report["findings"]] == ["oob-global", "oob-global"]
    assert all(finding["count"] == 3 for finding in run.report["findings"])
    assert run.code == 86


def test_graph_that_reads_memory_freed_since_the_capture_is_found_with_both_stacks(tool, nodes_program):
    run = tool("run", "--check", "memory", "--", nodes_program, "freed")
    assert run.code == 86
    findings = run.report["findings"]
    assert [finding["kind"] for finding in findings] == ["use-after-free", "use-after-free"]
    for finding in findings:
        assert finding["count"] == 3000
        assert finding["allocation"]["free_api"] == "cuMemFree"
        assert finding["allocation"]["free_stack"][0]["function"] == "main"
        assert finding["launch"]["graph_node"] is True
        assert finding["launch"]["stack"][0]["function"] == "main"  # where it was captured


def test_graph_whose_memory_is_kept_is_silent(tool, nodes_program):
    run = tool("run", "--check", "memory", "--", nodes_program, "kept")
    assert run.report["findings"] == []
    assert run.code == 0


def test_kernels_that_are_not_selected_run_as_they_are_in_graphs_and_are_counted(tool, nodes_program):
    run = tool("run", "--check", "memory", "--kernel-name", "no_such_kernel", "--", nodes_program, "explicit", "overflow")
    assert run.stdout.startswith("0 failures")
    assert run.report["findings"] == []
    assert run.report["coverage"]["launches"] == 3
    assert run.report["coverage"]["checked_launches"] == 0


# What instrumented kernels find, as on a GPU. Every program captures in a mode in which a call of ours could invalidate the capture.
RACES = {"branches": (3, "stream-race"), "child": (2, "stream-race"), "captured": (5, "stream-race"), "update": (3, "stream-race"),
         "streams": (3, "stream-race"), "shared": (3, "race-shared")}


@pytest.fixture(scope="module")
def races_program(built):
    return built(conftest.ROOT / "test/end_to_end/programs/graph_races.cu", "-cudart", "shared")


def check_races(tool, program, *words):
    return tool("run", "--engine", "ptx", "--replay", "off", "--check", "race,sync,init", "--", program, *words)


@pytest.mark.parametrize("way", RACES)
def test_race_of_kernels_in_a_graph_is_found_each_time_it_runs(tool, races_program, way):
    run = check_races(tool, races_program, way)
    launches, kind = RACES[way]
    assert run.stdout.startswith("last value")
    assert [finding["kind"] for finding in run.report["findings"]] == [kind]
    finding = run.report["findings"][0]
    assert finding["count"] >= 64 * launches
    assert any(access["launch"].get("graph_node") for access in finding["accesses"])
    assert run.code == 86


@pytest.mark.parametrize("way", [*RACES, "alternating"])
def test_kernels_in_graphs_that_are_ordered_are_silent(tool, races_program, way):
    run = check_races(tool, races_program, f"{way}_right")
    assert run.stdout.startswith("last value")
    assert run.report["findings"] == run.report.get("unproven", []) == []
    assert run.report["coverage"]["checked_launches"] == run.report["coverage"]["launches"]
    assert run.code == 0


@pytest.mark.parametrize("way", WAYS)
def test_nodes_made_in_any_way_keep_their_parameters_when_races_are_checked(tool, nodes_program, way):
    run = check_races(tool, nodes_program, way)
    assert run.stdout == "0 failures, last value 3\n"
    assert run.report["findings"] == []
    assert run.code == 0
