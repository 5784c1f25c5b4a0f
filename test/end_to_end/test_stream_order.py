"""The order of work in streams, as programs establish it: by calls that the tool follows, and by means that it cannot see."""
import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/stream_order.cu"
TEXT = SOURCE.read_text()


def cases(first: str, last: str) -> list[str]:
    """Names of the functions between two section lines of the program."""
    part = TEXT[TEXT.index(first):TEXT.index(last)]
    return [line.split()[2].split("(")[0] for line in part.splitlines() if line.startswith("static void ") and "(Setting&" in line]


IN_ORDER = cases("// ---- in order", "// ---- not in order")
SYNCHRONISATION = cases("// ---- synchronisation", "#define CASE")


@pytest.fixture(scope="module")
def program(built):
    return built(SOURCE, "-cudart", "shared", "-Xcompiler", "-g", "-L", str(conftest.BUILD / "emulator"), "-l:libcuda.so.1", "-Xlinker", "--allow-shlib-undefined")


@pytest.fixture
def check(tool, program):
    def run(name: str, *options: str):
        devices = ("--emulate", "sm_90,sm_90") if name.startswith("devices") else ()
        result = tool("run", "--check", "race", *devices, *options, "--", program, name)
        assert result.report is not None, result.stderr
        assert result.stdout == "cudaSuccess\n"
        return result

    return run


ENGINES = pytest.mark.parametrize("engine", ["auto", "ptx"])  # ptx: as on a GPU

NOT_BY_KERNELS = {"used_before_it_is_allocated": "an allocation leaves nothing that an instrumented kernel meets",
                  "devices_do_not_wait": "each device has cells of its own"}


def line_with(text: str, behind: str) -> int:
    """The line of `text` in the function `behind`."""
    start = TEXT.index(f"static void {behind}(")
    return TEXT[:TEXT.index(text, start)].count("\n") + 1


@ENGINES
@pytest.mark.parametrize("name", IN_ORDER)
def test_right_program_is_silent(check, name, engine):
    run = check(name, "--engine", engine)
    assert run.report["findings"] == []
    assert run.report["unproven"] == []
    assert run.code == 0


@ENGINES
@pytest.mark.parametrize("name, sides", [
    ("pageable_copy_may_be_under_way", ("cuMemcpyHtoD", "copy")),
    ("used_before_it_is_allocated", ("cuMemAllocAsync", "fill")),
    ("source_was_refilled", ("cuMemcpyHtoDAsync", "the host before cuStreamSynchronize")),
    ("target_was_given_back", ("cuMemcpyDtoHAsync", "cuMemFreeHost")),
    ("host_function_of_another_stream", ("fill", "copy")),
    ("devices_do_not_wait", ("fill", "cuMemcpyPeerAsync")),
])
def test_missing_order_is_found_with_both_sides(check, name, sides, engine):
    if engine == "ptx" and name in NOT_BY_KERNELS:
        pytest.skip(NOT_BY_KERNELS[name])
    run = check(name, "--engine", engine)
    assert [finding["kind"] for finding in run.report["findings"]] == ["stream-race"]
    accesses = run.report["findings"][0]["accesses"]
    named = [access.get("operation") or access["kernel"].split("(")[0] for access in accesses]
    assert sorted(named) == sorted(sides)  # which came first is what nothing decides
    assert run.code == 86


def test_operation_names_its_line_and_stream(check):
    accesses = check("source_was_refilled").report["findings"][0]["accesses"]
    assert accesses[0]["stack"][0]["line"] == line_with("cudaMemcpyAsync", "source_was_refilled")
    assert accesses[1]["stack"][0]["line"] == line_with("cudaStreamSynchronize", "source_was_refilled")
    assert accesses[0]["stream"] == "stream 1 (non-blocking)"


@ENGINES
@pytest.mark.parametrize("name, line", [
    ("second_wait_is_redundant", "cudaDeviceSynchronize"),
    ("wait_before_a_copy_to_the_host", "cudaStreamSynchronize"),
])
def test_redundant_wait_is_a_note_with_its_line(check, name, line, engine):
    run = check(name, "--engine", engine)
    assert [(finding["kind"], finding["severity"]) for finding in run.report["findings"]] == [("redundant-sync", "note")]
    finding = run.report["findings"][0]
    assert finding["call"]["stack"][0]["line"] == line_with(line, name)
    assert finding["count"] == 4
    assert run.code == 0


@ENGINES
@pytest.mark.parametrize("name", [name for name in SYNCHRONISATION if name not in ("second_wait_is_redundant", "wait_before_a_copy_to_the_host")])
def test_needed_or_single_wait_is_silent(check, name, engine):
    assert check(name, "--engine", engine).report["findings"] == []


@pytest.mark.parametrize("name", ["host_function_tells_the_host", "two_threads_take_turns", "pool_hands_memory_on", "branches_of_a_graph_join"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_right_program_is_silent_in_other_schedules(check, name, seed):
    assert check(name, "--schedule-seed", str(seed)).report["findings"] == []


@pytest.mark.parametrize("name", ["pool_hands_memory_on", "source_changes_after_the_wait", "value_in_memory_orders"])
def test_right_program_is_silent_with_all_checks(tool, program, name):
    run = tool("run", "--check", "all", "--", program, name)
    assert run.stdout == "cudaSuccess\n"
    assert run.report["findings"] == []


def test_without_the_check_nothing_is_said(tool, program):
    run = tool("run", "--check", "memory", "--", program, "source_was_refilled")
    assert run.report["findings"] == []
    assert run.stdout == "cudaSuccess\n"
