"""run --capture: the tensors of chosen kernels before and after each launch, as files that diff reads."""
import json
import struct

import numpy
import pytest

import conftest

SOURCE = conftest.ROOT / "examples/reduce_sum_fixed.cu"


@pytest.fixture(autouse=True)
def needs_nvcc(nvcc):
    """The runner compiles the kernel file."""


def capture(tool, folder, *flags, seed=0):
    return tool("run", "--check", "memory", "--capture", "reduce_sum", "--capture-folder", folder, *flags, "--",
                conftest.BUILD / "ops-debug-runner", "--kernel", SOURCE, "--block-size", "256", "--seed", seed)


def read(path):
    """Metadata, and arrays by name."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__")
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "F32"
        arrays[name] = numpy.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
    return metadata, arrays


def test_inputs_and_outputs_are_saved_with_their_types(tool, tmp_path):
    run = capture(tool, tmp_path / "a")
    assert run.code == 0, run.stderr
    metadata, arrays = read(tmp_path / "a/reduce_sum#0.safetensors")
    assert metadata["kernel"].startswith("reduce_sum(") and metadata["sequence"] == "0"
    assert sorted(arrays) == ["arg0", "arg1", "arg1.after"]  # arg0 is a pointer to const
    assert not arrays["arg1"].any()
    rows = arrays["arg1.after"].size
    numpy.testing.assert_allclose(arrays["arg1.after"], arrays["arg0"].reshape(rows, -1).sum(1), rtol=1e-3, atol=1e-3)


def test_statistics_agree_with_the_values(tool, tmp_path):
    capture(tool, tmp_path / "a")
    metadata, arrays = read(tmp_path / "a/reduce_sum#0.safetensors")
    statistics = json.loads(metadata["statistics"])["arg0"]
    values = arrays["arg0"].astype(float)
    assert (statistics["count"], statistics["nan"], statistics["inf"]) == (values.size, 0, 0)
    for name, expected in {"min": values.min(), "max": values.max(), "mean": values.mean(), "l2": numpy.linalg.norm(values)}.items():
        assert statistics[name] == pytest.approx(expected, rel=1e-6)


def test_beyond_the_budget_statistics_are_kept(tool, tmp_path):
    run = capture(tool, tmp_path / "a", "--capture-memory", "0")
    metadata, arrays = read(tmp_path / "a/reduce_sum#0.safetensors")
    assert arrays == {} and sorted(json.loads(metadata["statistics"])) == ["arg0", "arg1", "arg1.after"]
    assert any("only statistics" in remark["text"] for remark in run.report["remarks"])


def test_kernels_that_are_not_named_are_left_out(tool, tmp_path):
    run = tool("run", "--check", "memory", "--capture", "softmax", "--capture-folder", tmp_path / "a", "--",
               conftest.BUILD / "ops-debug-runner", "--kernel", SOURCE, "--block-size", "256")
    assert run.code == 0 and not list((tmp_path / "a").glob("*.safetensors"))


@pytest.mark.parametrize("flags, words", [
    (["--capture", "("], "never closed"),
    (["--capture-folder", "x"], "goes with --capture"),
    (["--check", "race", "--capture", "."], "--check memory"),
])
def test_what_cannot_be_asked_is_refused(tool, flags, words):
    run = tool("run", *flags, "--", "true")
    assert run.code == 2 and words in run.stderr


def test_two_runs_are_compared_and_the_first_divergence_named(tool, tmp_path):
    capture(tool, tmp_path / "a")
    capture(tool, tmp_path / "b")
    capture(tool, tmp_path / "c", seed=1)
    same = tool("diff", tmp_path / "a", tmp_path / "b", json_report=False)
    other = tool("diff", tmp_path / "a", tmp_path / "c", json_report=False)
    assert same.code == 0, same.stdout + same.stderr
    assert other.code == 86
    assert "reduce_sum#0/arg0" in other.stdout
