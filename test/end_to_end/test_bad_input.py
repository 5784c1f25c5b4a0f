"""Bad input ends in a message that says what happened and what to do, with the right exit code, and never in a crash."""
import os
import struct

import conftest
import pytest

USAGE, TOOL_FAILURE = 2, 3


def assert_message(run, *parts):
    for part in parts:
        assert part in run.stderr, run.stderr
    assert "hint" in run.stderr
    assert "Segmentation" not in run.stderr and "terminate called" not in run.stderr


def test_kernel_file_that_does_not_exist(tool):
    run = tool("check-memory", "--kernel", "no_such_kernel.cu", "--input-shape", "8")
    assert run.code in (USAGE, TOOL_FAILURE)
    assert_message(run, "no_such_kernel.cu")


def test_entry_that_does_not_exist(tool, nvcc):
    source = conftest.ROOT / "examples/matmul_kernel.cu"
    run = tool("check-memory", "--kernel", source, "--entry", "no_such_entry", "--input-shape", "64x64")
    assert run.code in (USAGE, TOOL_FAILURE)
    assert_message(run, "no_such_entry", "matmul_kernel")


def test_source_that_does_not_compile(tool, nvcc, tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text("__global__ void k(float* p) { p[0] = undefined_name; }\n")
    run = tool("check-memory", "--kernel", source, "--input-shape", "8")
    assert run.code == TOOL_FAILURE
    assert_message(run, "undefined_name")


def test_missing_nvcc(tool, tmp_path):
    source = tmp_path / "k.cu"
    source.write_text("__global__ void k(float* p, int n) { if (threadIdx.x < n) p[threadIdx.x] = 1; }\n")
    nowhere = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(tmp_path), "OPS_DEBUG_TOOLKIT": "none"}
    run = tool("check-memory", "--kernel", source, "--input-shape", "8", environment=nowhere)
    assert run.code == TOOL_FAILURE
    assert_message(run, "nvcc")


def test_ptx_with_a_syntax_error_names_line_and_column(tool, tmp_path):
    source = tmp_path / "broken.ptx"
    source.write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n  add.s32 %r1 %r2;\n}\n")
    run = tool("check-memory", "--kernel", source)
    assert run.code == TOOL_FAILURE
    assert_message(run, "broken.ptx", "6:")


def test_garbage_fatbin(tool, tmp_path):
    """A program that loads a damaged fatbin gets the driver's error, and the tool goes on."""
    program = conftest.BUILD / "test/programs/end_to_end_load_image"
    image = tmp_path / "garbage.fatbin"
    image.write_bytes(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40) + os.urandom(256))
    run = tool("run", "--check", "memory", "--", program, image)
    assert run.stdout.startswith("load error ")
    assert run.code == 0
    assert run.report is not None


@pytest.fixture
def log(tool, tmp_path):
    path = tmp_path / "run.odlog"
    tool("run", "--check", "memory", "--log", path, "--", conftest.BUILD / "test/programs/end_to_end_driver_dlopen",
         "overflow")
    return path


def test_truncated_log_is_read_to_its_last_whole_frame(tool, log):
    log.write_bytes(log.read_bytes()[:-3])
    run = tool("report", log)
    assert run.report is not None, run.stderr
    assert [finding["kind"] for finding in run.report["findings"]] == ["oob-global"]
    assert any("cut off" in remark["text"] for remark in run.report["remarks"])


def test_log_that_is_no_log(tool, tmp_path):
    path = tmp_path / "text.odlog"
    path.write_text("this is not a log")
    run = tool("report", path)
    assert run.code == TOOL_FAILURE
    assert run.report is None
    assert_message(run, "text.odlog")


def test_unknown_command_suggests_the_nearest(tool):
    run = tool("check-memry", json_report=False)
    assert run.code == USAGE
    assert "check-memory" in run.stderr
