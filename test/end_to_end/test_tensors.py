"""Tensors in a framework's memory pool have bounds of their own. The framework is a stand-in with PyTorch's C++ names,
split over libraries as PyTorch is, loaded the way Python loads it."""
import pathlib
import subprocess
import sys

import conftest
import pytest

FOLDER = conftest.ROOT / "test/end_to_end/programs/pool"


@pytest.fixture(scope="module")
def pool(nvcc, tmp_path_factory):
    """[program, library]: arguments follow."""
    folder = tmp_path_factory.mktemp("pool")
    stubs = pathlib.Path(nvcc).parent.parent / "lib64/stubs"

    def compile_library(name, source, *flags):
        subprocess.run([nvcc, "-O1", "-std=c++17", "-lineinfo", "-gencode", "arch=compute_90,code=compute_90",
                        "-cudart", "shared", "-shared", "-Xcompiler", "-fPIC", f"-L{folder}", f"-L{stubs}",
                        "-Xlinker", "-rpath=$ORIGIN", "-o", str(folder / f"lib{name}.so"), str(FOLDER / source),
                        *flags], check=True, capture_output=True, text=True, timeout=300)

    compile_library("torch_like_core", "torch_like_core.cc")
    compile_library("torch_like_tensors", "torch_like_tensors.cc", "-ltorch_like_core")
    compile_library("torch_like_allocator", "torch_like_allocator.cc", "-ltorch_like_core", "-lcuda")
    compile_library("pool_program", "pool_program.cu", "-ltorch_like_tensors", "-ltorch_like_allocator",
                    "-ltorch_like_core")
    program = folder / "pool_main"
    subprocess.run(["g++", "-std=c++17", "-o", str(program), str(FOLDER / "pool_main.cc"), "-ldl"], check=True)
    return [program, folder / "libpool_program.so"]


@pytest.fixture
def check(tool, pool):
    def run(*arguments, options=()):
        return tool("run", "--check", "memory", *options, "--", *pool, *arguments)
    return run


def line_of(comment):
    lines = (FOLDER / "pool_program.cu").read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if comment in line)


def the_finding(run):
    assert run.code == 86, run.stderr
    assert len(run.report["findings"]) == 1, run.report["findings"]
    return run.report["findings"][0]


@pytest.mark.parametrize("segments", ["malloc", "expandable"])
def test_one_element_past_a_tensor_inside_a_segment(check, segments):
    run = check("overflow", segments)
    finding = the_finding(run)
    assert run.stdout == "3\n"
    assert finding["kind"] == "oob-global"
    assert finding["line"] == line_of("line of the store")
    assert finding["count"] == 1
    assert finding["allocation"]["size_bytes"] == 4000
    tensor = finding["allocation"]["tensor"]
    assert (tensor["framework"], tensor["shape"], tensor["dtype"]) == ("PyTorch", [10, 100], "float32")
    assert tensor["segment"]["size_bytes"] == 2 << 20


@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_tensors_are_known_when_the_driver_brings_us_in(tool, pool, binding):
    now = ["LD_BIND_NOW=1"] if binding == "now" else []
    run = tool("run", "--check", "memory", "--", "env", "-u", "LD_PRELOAD", *now, *pool, "overflow")
    finding = the_finding(run)
    assert [process["injected"] for process in run.report["coverage"]["processes"]] == [True]
    assert finding["allocation"]["tensor"]["shape"] == [10, 100]
    assert run.stdout == "3\n"


def test_without_tensors_the_overflow_stays_inside_the_segment(check):
    run = check("overflow", options=["--tensors", "off"])
    assert run.code == 0
    assert run.report["findings"] == []


@pytest.mark.parametrize("segments", ["malloc", "expandable"])
def test_shadow_memory_knows_where_a_tensor_ends(check, segments):
    finding = the_finding(check("overflow-table", segments))
    assert finding["kind"] == "oob-global"
    assert finding["line"] == line_of("line of the indirect store")
    assert finding["count"] == 1
    assert finding["allocation"]["tensor"]["shape"] == [10, 100]


def test_shadow_memory_follows_a_block_that_changes_its_size(check):
    run = check("overflow-reuse")
    finding = the_finding(run)
    assert run.stdout == "3\n3\n3\n3\n"
    assert finding["kernel"].startswith("(anonymous namespace)::StoreOne")
    assert finding["kind"] == "oob-global"
    assert finding["allocation"]["tensor"]["shape"] == [8, 125]


def test_a_tensor_that_was_freed_after_the_launch_is_not_called_freed(check):
    finding = the_finding(check("overflow-then-freed"))
    assert finding["kind"] == "oob-global"
    assert finding["allocation"]["freed"] is False
    assert finding["allocation"]["tensor"]["shape"] == [10, 100]


def test_the_extent_of_a_strided_tensor_counts(check):
    finding = the_finding(check("strided"))
    assert finding["count"] == 1
    assert finding["allocation"]["size_bytes"] == 84
    assert finding["allocation"]["tensor"]["shape"] == [3, 5]


def test_a_bad_index_into_memory_that_no_tensor_holds(check):
    finding = the_finding(check("bad-index"))
    assert finding["kind"] == "oob-global"
    assert finding["allocation"]["tensor"]["shape"] == [10, 100]


@pytest.mark.parametrize("segments", ["malloc", "expandable"])
def test_use_of_a_freed_tensor(check, segments):
    finding = the_finding(check("freed", segments))
    assert finding["kind"] == "use-after-free"
    assert finding["count"] == 900
    assert finding["allocation"]["tensor"]["shape"] == [30, 30]


def test_a_graph_that_uses_a_freed_tensor_at_replay(check):
    run = check("freed-graph")
    finding = the_finding(run)
    assert run.stdout == "2\n"
    assert finding["kind"] == "use-after-free"
    assert finding["count"] == 900  # of the second replay only
    assert finding["allocation"]["tensor"]["shape"] == [30, 30]


PYTHON_PROGRAM = """
import ctypes, sys
def initialise():
    ctypes.PyDLL("libcuda.so.1").cuInit(0)  # as frameworks do, with the interpreter's lock
def make_tensors(name):
    library = ctypes.CDLL(sys.argv[1])  # gives up the lock around calls, as PyTorch does
    arguments = (ctypes.c_char_p * 2)(b"", name)
    return library.RunPoolProgram(2, arguments)
initialise()
sys.exit(make_tensors(sys.argv[2].encode()))
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames are read from Python 3.11 on")
def test_python_lines_are_known_without_the_interpreters_lock(tool, pool, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PYTHON_PROGRAM)
    run = tool("run", "--check", "memory", "--", sys.executable, program, pool[1], "freed")
    finding = the_finding(run)
    tensor = finding["allocation"]["tensor"]
    call = next(i for i, line in enumerate(PYTHON_PROGRAM.splitlines(), start=1) if "return library" in line)
    for stack in (tensor["allocation_stack"], tensor["free_stack"], finding["launch"]["python_stack"]):
        assert [(frame["function"], frame["line"]) for frame in stack] == [("make_tensors", call), ("<module>", call + 2)]
        assert stack[0]["file"] == str(program)


@pytest.mark.parametrize("name", ["loop", "streams", "graph-pool", "graph-turns", "grow"])
@pytest.mark.parametrize("segments", ["malloc", "expandable"])
def test_right_programs_are_silent_and_compute_the_same(check, pool, name, segments, tmp_path):
    expected = {"loop": "3 3 3 3 1536\n", "streams": "6\n", "graph-pool": "12\n", "graph-turns": "12 1\n", "grow": "4 4 4 \n"}[name]
    run = check(name, segments)
    assert run.report["findings"] == []
    assert run.code == 0
    assert run.stdout == expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_streams_stay_silent_under_other_schedules(check, seed):
    run = check("streams", options=["--schedule-seed", str(seed)])
    assert run.report["findings"] == []
    assert run.stdout == "6\n"
