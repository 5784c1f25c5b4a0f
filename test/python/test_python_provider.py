"""python -m ops_debug.provider as `ops-debug validate` runs it: requests in, responses out."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

numpy = pytest.importorskip("numpy")
PYTHON = pathlib.Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PYTHON))
from ops_debug import _arrays, _safetensors  # noqa: E402

# A Python with PyTorch, if there is one: this one, or what OPS_DEBUG_TORCH_PYTHON names.
TORCH_PYTHON = os.environ.get("OPS_DEBUG_TORCH_PYTHON", sys.executable)
HAS_TORCH = subprocess.run([TORCH_PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="no PyTorch")

USER_CODE = '''
import numpy as np
print("loaded")

def scale(x, factor=2.0):
    print("called")
    return x * factor

def scale_backward(cotangent, x, factor=2.0):
    return cotangent * factor

def add(a, b):
    return a + b

def sums(x):
    return {"rows": x.sum(0), "columns": x.sum(1)}

def fails(x):
    raise RuntimeError("first\\nsecond")

def quits(x):
    raise SystemExit(0)

def text(x):
    return "no tensor"
'''


def tensor(name, array):
    array = numpy.asarray(array)
    return _safetensors.Tensor(name, str(array.dtype), array.shape, array.tobytes())


def array_of(answer):
    return numpy.frombuffer(answer.data, answer.dtype).reshape(answer.shape)


class Provider:
    def __init__(self, folder):
        self.folder = folder
        self.code = folder / "ops.py"
        self.code.write_text(USER_CODE)

    def run(self, spec, *arguments, python=sys.executable, **variables):
        environment = {**os.environ, "PYTHONPATH": str(PYTHON), **variables}
        return subprocess.run(
            [python, "-m", "ops_debug.provider", spec, *map(str, arguments)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def ask(self, spec, inputs, python=sys.executable, **metadata):
        """(finished process, answers by name or None). `inputs`: arrays or Tensors by name."""
        request, response = self.folder / "request.safetensors", self.folder / "response.safetensors"
        tensors = [v if isinstance(v, _safetensors.Tensor) else tensor(k, v) for k, v in inputs.items()]
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}
        _safetensors.write(request, tensors, texts)
        run = self.run(spec, request, response, python=python)
        if run.returncode != 0:
            return run, None
        answers, self.metadata = _safetensors.read(response)
        return run, {answer.name: answer for answer in answers}

    def describe(self, spec, question, python=sys.executable):
        run = self.run(spec, "--describe", json.dumps(question), python=python)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)


@pytest.fixture
def provider(tmp_path):
    return Provider(tmp_path)


X = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)


def last_line(run):
    return run.stderr.strip().splitlines()[-1]


def test_a_function_of_a_file_computes_in_the_inputs_type(provider):
    run, answers = provider.ask("ops.py:scale", {"x": X}, attributes={"factor": 3})
    assert run.returncode == 0, run.stderr
    assert answers["output0"].dtype == "float32"
    assert numpy.array_equal(array_of(answers["output0"]), 3 * X)
    assert provider.metadata["source"] == "ops.py"


def test_float64_is_computed_and_answered_if_asked_for(provider):
    third = numpy.ones(1, numpy.float16)
    _, answers = provider.ask("numpy.divide", {"a": third, "b": 3 * third}, precision="float64")
    assert array_of(answers["output0"])[0] == 1 / 3


def test_what_the_operator_prints_does_not_reach_stdout(provider):
    run, _ = provider.ask("ops.py:scale", {"x": X})
    assert run.stdout == ""
    assert "loaded" in run.stderr and "called" in run.stderr


def test_gradients_by_the_function_beside_it(provider):
    run, answers = provider.ask(
        "ops.py:scale", {"x": X, "cotangent.output0": X}, gradients="1", attributes={"factor": 5}
    )
    assert run.returncode == 0, run.stderr
    assert numpy.array_equal(array_of(answers["grad.x"]), 5 * X)


def test_no_gradients_is_something_that_it_cannot(provider):
    run, _ = provider.ask("ops.py:add", {"a": X, "b": X, "cotangent.output0": X}, gradients="1")
    assert run.returncode == 4
    assert "add_backward(cotangent, *inputs, **attributes)" in last_line(run)


def test_names_of_a_returned_dict_are_the_outputs(provider):
    _, answers = provider.ask("ops.py:sums", {"x": X})
    assert list(answers) == ["rows", "columns"]
    assert array_of(answers["columns"]).tolist() == [3, 12]


def test_attributes_are_known_under_the_names_of_other_frameworks(provider):
    _, answers = provider.ask("numpy.sum", {"x": X}, attributes={"dim": 1, "keepdim": True})
    assert answers["output0"].shape == (2, 1)


def test_an_attribute_may_stand_between_the_inputs(provider):
    provider.code.write_text("def f(x, power, y):\n    return x**power + y\n")
    _, answers = provider.ask("ops.py:f", {"left": X, "right": X}, attributes={"power": 2})
    assert numpy.array_equal(array_of(answers["output0"]), X**2 + X)


def test_an_unknown_attribute_is_answered_with_the_parameters(provider):
    run, _ = provider.ask("ops.py:scale", {"x": X}, attributes={"fator": 3})
    assert run.returncode == 2
    assert "takes no attribute 'fator'; its parameters are x, factor" in last_line(run)


@pytest.mark.parametrize(
    "spec, code, text",
    [
        ("ops.py:fails", 1, "ops.py:19: in fails: RuntimeError: first second"),
        ("ops.py:quits", 1, "ops.py:22: in quits: SystemExit: 0"),
        ("ops.py:add", 2, "it takes (a, b), and 1 inputs are given (x): missing a required argument: 'b'"),
        ("ops.py:text", 2, "it returned builtins.str where a NumPy array was expected"),
        ("ops.py:scal", 2, "ops has no scal; near it: scale, scale_backward"),
        ("ops.py:np", 2, "it is a module, which cannot be called"),
        ("none.py:f", 2, "no such file: none.py"),
        ("not_installed_here.f", 4, "needs the package not_installed_here"),
        ("model.onnx", 4, "needs the package onnxruntime"),
    ],
)
def test_what_is_wrong_is_one_last_line(provider, spec, code, text):
    if spec == "model.onnx" and importlib.util.find_spec("onnx"):
        pytest.skip("onnx is installed")
    run, _ = provider.ask(spec, {"x": X})
    assert run.returncode == code
    assert text in last_line(run)


def test_a_damaged_request_is_named(provider):
    (provider.folder / "damaged").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}")
    run = provider.run("ops.py:scale", "damaged", "response")
    assert run.returncode == 1
    assert "damaged is no whole .safetensors file" in last_line(run)


def test_several_pairs_are_served_by_one_process(provider):
    pairs = []
    for i in range(3):
        pairs += [provider.folder / f"request{i}", provider.folder / f"response{i}"]
        _safetensors.write(pairs[-2], [tensor("x", X + i)], {})
    run = provider.run("ops.py:scale", *pairs)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("loaded") == 1
    answers, _ = _safetensors.read(pairs[5])
    assert numpy.array_equal(array_of(answers[0]), 2 * (X + 2))


def test_a_description_takes_names_from_the_function_and_repeats_one_shape(provider):
    answer = provider.describe("ops.py:add", {"inputs": [{"shape": [2, 3], "dtype": "float16"}]})
    assert [(i["name"], i["shape"], i["dtype"]) for i in answer["inputs"]] == [
        ("a", [2, 3], "float16"),
        ("b", [2, 3], "float16"),
    ]
    assert answer["gradients"] is False


def test_narrow_types_are_upcast_without_packages_for_them(provider):
    values = _safetensors.Tensor("x", "bfloat16", (2,), bytes([0x80, 0x3F, 0x49, 0xC0]))
    _, answers = provider.ask("numpy.negative", {"x": values}, precision="float64")
    assert array_of(answers["output0"]).tolist() == [-1, 3.140625]


@pytest.mark.parametrize(
    "dtype, bits, value",
    [
        ("float8_e4m3fn", 0x7E, 448),
        ("float8_e4m3fn", 0x01, 2.0**-9),
        ("float8_e5m2", 0xFB, -57344),
        ("float8_e5m2", 0x7C, numpy.inf),
    ],
)
def test_float8_is_decoded_as_ocp_says(dtype, bits, value):
    decoded = _arrays.Numpy().array(_safetensors.Tensor("x", dtype, (1,), bytes([bits])), True)
    assert decoded[0] == value


def test_a_scalar_and_an_empty_tensor_pass(provider):
    _, answers = provider.ask("numpy.negative", {"x": numpy.float32(2)})
    assert answers["output0"].shape == () and array_of(answers["output0"]) == -2
    _, answers = provider.ask("numpy.negative", {"x": numpy.empty((0, 3), numpy.float32)})
    assert answers["output0"].shape == (0, 3)


def test_an_onnx_model_is_fed_by_name_else_in_order(provider):
    """Against a stand-in for ONNX Runtime with its interface: the real one is large."""
    (provider.folder / "onnxruntime.py").write_text(
        """
import numpy
__version__ = "0"
class Argument:
    def __init__(self, name, shape):
        self.name, self.shape, self.type = name, shape, "tensor(float)"
class InferenceSession:
    def __init__(self, path, providers): open(path).close()
    def get_inputs(self): return [Argument("a", ["n", 3]), Argument("b", [2, 3])]
    def get_outputs(self): return [Argument("difference", ["n", 3])]
    def run(self, outputs, feeds): return [feeds["a"] - feeds["b"]]
"""
    )
    (provider.folder / "model.onnx").write_text("")
    _, answers = provider.ask("model.onnx", {"b": X, "a": 3 * X}, precision="float64")
    assert numpy.array_equal(array_of(answers["difference"]), 2.0 * X)
    _, answers = provider.ask("model.onnx", {"x": X, "y": 3 * X})
    assert numpy.array_equal(array_of(answers["difference"]), -2 * X)
    answer = provider.describe("model.onnx", {"inputs": [{"shape": [2, 3]}]})
    assert [i["shape"] for i in answer["inputs"]] == [[2, 3], [2, 3]]
    run, _ = provider.ask("model.onnx", {"a": X, "b": X, "cotangent.difference": X}, gradients="1")
    assert run.returncode == 4


@needs_torch
def test_a_torch_module_takes_its_parameters_from_the_request(provider):
    x = numpy.random.default_rng(0).standard_normal((1, 4, 5, 5))
    w = numpy.ones((4, 1, 3, 3))
    run, answers = provider.ask(
        "torch.nn.Conv2d",
        {"image": x, "kernel": w, "cotangent.output0": x},
        python=TORCH_PYTHON,
        attributes={"padding": 1},
        gradients="1",
    )
    assert run.returncode == 0, run.stderr
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = sum(padded[:, :, i : i + 5, j : j + 5] for i in range(3) for j in range(3))
    assert numpy.allclose(array_of(answers["output0"]), expected)
    assert answers["grad.image"].shape == x.shape and answers["grad.kernel"].shape == w.shape


@needs_torch
def test_a_torch_module_describes_input_and_parameters(provider):
    answer = provider.describe(
        "torch.nn.Conv2d",
        {"inputs": [{"shape": [1, 32, 8, 8]}], "attributes": {"groups": 32, "padding": 1}},
        python=TORCH_PYTHON,
    )
    assert [(i["name"], i["shape"]) for i in answer["inputs"]] == [
        ("input", [1, 32, 8, 8]),
        ("weight", [32, 1, 3, 3]),
        ("bias", [32]),
    ]


@needs_torch
def test_a_function_written_with_torch_gets_tensors_and_autograd(provider):
    (provider.folder / "with_torch.py").write_text("import torch\ndef cube(x):\n    return torch.pow(x, 3)\n")
    run, answers = provider.ask(
        "with_torch.py:cube", {"x": X, "cotangent.output0": X}, python=TORCH_PYTHON, gradients="1"
    )
    assert run.returncode == 0, run.stderr
    assert numpy.allclose(array_of(answers["grad.x"]), 3 * X**3)


@needs_torch
def test_torch_operators_by_name(provider):
    _, answers = provider.ask("torch.ops.aten.relu", {"x": X - 2}, python=TORCH_PYTHON)
    assert numpy.array_equal(array_of(answers["output0"]), numpy.maximum(X - 2, 0))
    run, _ = provider.ask("torch.ops.aten.reluu", {"x": X}, python=TORCH_PYTHON)
    assert run.returncode == 2 and "has no reluu; near it: elu, relu" in last_line(run)
