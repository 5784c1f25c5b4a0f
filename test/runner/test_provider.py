"""A kernel file as a provider of ops-debug validate, on the CPU device."""

import json
import pathlib
import sys

import pytest

numpy = pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from ops_debug import _safetensors  # noqa: E402

# y = alpha * x * w[column], and the gradients by two kernels with a buffer between them.
SCALE = """
// ops-debug: w=shape:x.dim1 y=shape:x.dim0,x.dim1 n=x.size cols=x.dim1 attr.mode=rows backward=prepare,finish
__global__ void scale(const float* x, const float* w, float* y, int n, int cols, float alpha) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = alpha * x[i] * w[i % cols];
}
// ops-debug: scaled=shape:n
__global__ void prepare(const float* grad_y, float* scaled, int n, float alpha) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) scaled[i] = alpha * grad_y[i];
}
__global__ void finish(const float* x, const float* w, const float* scaled, float* grad_x, float* grad_w, int n, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  grad_x[i] = scaled[i] * w[i % cols];
  atomicAdd(&grad_w[i % cols], scaled[i] * x[i]);
}
"""
X = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
W = numpy.array([1, 10, 100], numpy.float32)


def write_request(path, tensors, **metadata):
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    converted = []
    for name, array in tensors.items():
        converted.append(_safetensors.Tensor(name, str(array.dtype), array.shape, array.tobytes()))
    _safetensors.write(path, converted, texts)
    return path


def read_response(path):
    answers, _ = _safetensors.read(path)
    return {a.name: numpy.frombuffer(a.data, a.dtype).reshape(a.shape) for a in answers}


def test_outputs_and_gradients_for_several_requests(emulated, source, tmp_path):
    gradients = write_request(
        tmp_path / "a", {"x": X, "w": W, "cotangent.y": X}, attributes={"alpha": 2}, gradients="1"
    )
    in_order = write_request(tmp_path / "b", {"left": X + 1, "right": W})
    run = emulated("--provider", source(SCALE), gradients, tmp_path / "ra", in_order, tmp_path / "rb")
    assert run.returncode == 0, run.stderr
    first, second = read_response(tmp_path / "ra"), read_response(tmp_path / "rb")
    assert numpy.array_equal(first["y"], 2 * X * W)
    assert numpy.array_equal(first["grad.x"], 2 * X * W)
    assert numpy.array_equal(first["grad.w"], (2 * X * X).sum(0))
    assert numpy.array_equal(second["y"], (X + 1) * W)


def test_a_description_has_shapes_types_and_attributes(emulated, source):
    question = {"inputs": [{"shape": [2, 3]}], "attributes": {"stated": 5}}
    run = emulated("--provider", source(SCALE), "--describe", json.dumps(question))
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert [(i["name"], i["shape"], i["dtype"]) for i in answer["inputs"]] == [
        ("x", [2, 3], "float32"),
        ("w", [3], "float32"),
    ]
    assert answer["outputs"] == [["y", [2, 3], "float32"]]
    assert answer["attributes"] == {"mode": "rows", "stated": 5}
    assert answer["gradients"] is True


@pytest.mark.parametrize(
    "tensors, metadata, code, text",
    [
        ({"x": X, "w": W.astype(numpy.float16)}, {}, 4, "w is float16, but parameter w is float const* (float32)"),
        ({"x": X, "w": W[:2]}, {}, 2, "w is 2, but parameter w is planned as 3"),
        ({"x": X, "w": W}, {"attributes": {"mode": "columns"}}, 4, 'is written for mode="rows" (launch comment)'),
        ({"x": X}, {}, 2, "input w is missing"),
        ({"x": X, "w": W, "v": W}, {}, 2, "3 inputs are given, but the kernel reads 2 (x, w)"),
    ],
)
def test_what_does_not_fit_is_said(emulated, source, tmp_path, tensors, metadata, code, text):
    run = emulated("--provider", source(SCALE), write_request(tmp_path / "a", tensors, **metadata), tmp_path / "b")
    assert run.returncode == code, run.stderr
    assert text in run.stderr
    assert not (tmp_path / "b").exists()


def test_a_kernel_without_backward_cannot_give_gradients(emulated, source, tmp_path):
    kernel = source("__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }")
    request = write_request(tmp_path / "a", {"x": W, "cotangent.y": W}, gradients="1")
    run = emulated("--provider", kernel, "--block", 3, request, tmp_path / "b")
    assert run.returncode == 4
    assert run.stderr.count("\n") == 1 and "backward=KERNEL" in run.stderr


def test_a_file_that_is_no_request_is_named(emulated, source, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 16)
    run = emulated("--provider", source(SCALE), tmp_path / "a.safetensors", tmp_path / "b")
    assert run.returncode != 0
    assert "a.safetensors" in run.stderr
