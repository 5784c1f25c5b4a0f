"""Real PyTorch and Triton on the CPU device: their run-time library, allocator, compiler and launcher, no GPU. Needs a
Python with torch: OPS_DEBUG_TORCH_PYTHON, or build/frameworks as scripts/nightly.sh makes it."""
import os
import pathlib
import subprocess

import conftest
import pytest

PROGRAM = conftest.ROOT / "test/end_to_end/frameworks/triton_kernels.py"


@pytest.fixture(scope="module")
def python():
    path = pathlib.Path(os.environ.get("OPS_DEBUG_TORCH_PYTHON", conftest.BUILD / "frameworks/bin/python"))
    if not path.exists() or subprocess.run([path, "-c", "import torch, triton"], capture_output=True).returncode != 0:
        pytest.skip("no Python with PyTorch and Triton (OPS_DEBUG_TORCH_PYTHON)")
    return path


@pytest.fixture(params=["cold", "warm"])
def check(request, tool, python, tmp_path, tmp_path_factory):
    def run(name):
        cache = tmp_path / "triton" if request.param == "cold" else tmp_path_factory.getbasetemp() / "triton"
        return tool("run", "--check", "memory", "--", python, PROGRAM, name, environment={"TRITON_CACHE_DIR": str(cache)})
    return run


@pytest.mark.parametrize("name", ["matmul", "softmax", "layer_norm", "attention"])
def test_right_kernels_are_right_checked_and_silent(check, name):
    run = check(name)
    assert run.stdout.startswith(f"{name} ok"), run.stderr
    assert run.report["findings"] == []
    assert run.code == 0
    coverage = run.report["coverage"]
    assert coverage["checked_launches"] == coverage["launches"] == 1


def line_of(comment):
    return next(i for i, line in enumerate(PROGRAM.read_text().splitlines(), start=1) if comment in line)


def test_one_past_a_tensor_inside_the_pool(check):
    run = check("overflow")
    assert run.code == 86, run.stderr
    (finding,) = run.report["findings"]
    assert (finding["kind"], finding["line"], finding["count"]) == ("oob-global", line_of("the planted store"), 1)
    tensor = finding["allocation"]["tensor"]
    assert (tensor["framework"], tensor["dtype"], tensor["shape"]) == ("PyTorch", "float32", [10, 100])
    assert [frame["function"] for frame in tensor["allocation_stack"]][-3:] == ["overflow", "main", "<module>"]


def test_a_tensor_that_is_gone(check):
    (finding,) = check("freed").report["findings"]
    assert (finding["kind"], finding["count"]) == ("use-after-free", 3000)
    assert finding["allocation"]["tensor"]["shape"] == [3, 1000]
    assert finding["allocation"]["tensor"]["free_stack"][0]["function"] == "freed"
