"""`ops-debug validate` as a user runs it: the examples, the gradient cases, what it says of bad input."""
import json
import os
import shutil
import subprocess
import sys

import conftest
import numpy as np
import pytest

EXAMPLES = conftest.ROOT / "examples"
OPERATORS = conftest.ROOT / "test/validate"
SMALL = ("--input-shape", "1x32x20x20", "--rtol", "1e-5")


@pytest.fixture
def validate(tmp_path):
    """validate(OP, flags..., folder=...) -> CompletedProcess, on the emulator."""

    def run(*arguments, folder=tmp_path, python=sys.executable, command="validate"):
        environment = {**os.environ, "OPS_DEBUG_PYTHON": str(python), "XDG_STATE_HOME": str(tmp_path / "state")}
        device = ("--device", "emulator") if command == "validate" else ()
        return subprocess.run([str(conftest.BUILD / "ops-debug"), command, *device, *map(str, arguments)], cwd=folder,
                              env=environment, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def operators(tmp_path):
    """A folder with ops.py, to which tests add."""
    shutil.copy(OPERATORS / "references.py", tmp_path / "ops.py")
    return tmp_path


def first_line(run):
    assert run.stdout, run.stderr
    return run.stdout.splitlines()[0]


# The example.

def test_the_planted_convolution_breaks_at_input_channel_16(validate, nvcc):
    run = validate("conv2d_depthwise", "--reference", "builtin:conv2d", *SMALL, folder=EXAMPLES)
    assert run.returncode == 86, run.stderr
    assert first_line(run) == "conv2d_depthwise FAILS against builtin:conv2d"
    assert "breaks at input channel 16" in run.stdout
    assert "channels 16-31 are computed wrong and 0-15 right" in run.stdout


def test_the_right_convolution_passes(validate, nvcc):
    run = validate("conv2d_depthwise_fixed", "--reference", "builtin:conv2d", *SMALL, folder=EXAMPLES)
    assert run.returncode == 0, run.stdout + run.stderr
    assert first_line(run) == "conv2d_depthwise_fixed passes against builtin:conv2d"


def test_the_same_with_pytorch_as_the_reference(validate, nvcc):
    python = os.environ.get("OPS_DEBUG_TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0:
        pytest.skip("no PyTorch in this Python")
    run = validate("conv2d_depthwise", "--reference", "torch.nn.Conv2d", *SMALL, folder=EXAMPLES, python=python)
    assert run.returncode == 86, run.stderr
    assert "breaks at input channel 16" in run.stdout


# Gradients: K11, K67, K68.

GRADIENTS = [
    ("padded_linear", "8x8", ["rows 5-7 of grad.x", "every element of grad.weight", "never written", "reduction"]),
    ("nearest", "2x8x8", ["sum preserved", "mass at (0, 3, 3) instead of (0, 0, 0)", "index map, not scale"]),
    ("sample_points", "4x8x8", ["element of channel c-1 gets gradient of channel c", "is not checked"]),
]


@pytest.mark.parametrize("name,shape,hint", GRADIENTS, ids=[case[0] for case in GRADIENTS])
def test_a_wrong_gradient_is_found_with_its_cause(validate, nvcc, name, shape, hint):
    run = validate(f"{name}.cu:{name}", "--reference", f"references.py:{name}", "--input-shape", shape, "--grad",
                   folder=OPERATORS)
    assert run.returncode == 86, run.stdout + run.stderr
    head = run.stdout.split("\n\n")[0]
    for words in hint:
        assert words in head


@pytest.mark.parametrize("name,shape", [case[:2] for case in GRADIENTS], ids=[case[0] for case in GRADIENTS])
def test_its_right_twin_passes(validate, nvcc, name, shape):
    run = validate(f"{name}.cu:{name}_fixed", "--reference", f"references.py:{name}", "--input-shape", shape, "--grad",
                   folder=OPERATORS)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "(agree)" in run.stdout


def test_gradients_that_the_operator_does_not_have_are_not_judged(validate, nvcc):
    run = validate("conv2d_depthwise_fixed", "--reference", "builtin:conv2d", *SMALL, "--grad", folder=EXAMPLES)
    assert run.returncode == 4
    assert "has no gradients: name the kernels" in run.stdout


def test_a_scaled_gradient_is_called_scale(validate, operators):
    with open(operators / "ops.py", "a") as file:
        file.write("\n\ndef scale_backward(grad, x, factor=2.0):\n    return grad * factor / 2\n")
    run = validate("ops.py:scale", "--reference", "ops.py:scale", "--input-shape", "4x4", "--grad", folder=operators)
    assert run.returncode == 86, run.stdout + run.stderr
    assert "grad.x is 0.5 times the truth everywhere: scale, not index map" in run.stdout


# Sweeps.

def test_a_sweep_has_a_row_per_case_and_shows_the_first_that_fails(validate, operators):
    run = validate("ops.py:scale_wrong", "--reference", "ops.py:scale", "--input-shape", "4x3", "--sweep",
                   folder=operators)
    assert run.returncode == 86
    rows = {line.split("  ")[1].strip(): line for line in run.stdout.split("\ncases\n")[1].splitlines() if "x:" in line}
    assert " pass " in rows["random"] and " pass " in rows["zeros"] and " pass " in rows["nan"]
    assert " pass " in rows["dim 1 = 1"] and " FAIL " in rows["dim 1 = 15"]
    assert "dim 1 = 15 inputs x:4x15" in run.stdout


# Names.

def test_an_unknown_name_lists_what_there_is(validate, operators):
    run = validate("conv3d_deep", "--reference", "builtin:conv2d", "--input-shape", "4", folder=operators)
    assert run.returncode == 2
    assert 'unknown operator "conv3d_deep"' in run.stderr and "ops.py" in run.stderr


def test_an_ambiguous_name_lists_the_files(validate, operators):
    for file in ("scale.py", "scale.cu"):
        (operators / file).write_text("")
    run = validate("scale", "--reference", "ops.py:scale", "--input-shape", "4", folder=operators)
    assert run.returncode == 2
    assert '"scale" is ambiguous: scale.cu, scale.py' in run.stderr


def test_an_unknown_builtin_lists_them(validate, operators):
    run = validate("ops.py:scale", "--reference", "builtin:nosuch", "--input-shape", "4", folder=operators)
    assert run.returncode == 2
    assert "there is no builtin:nosuch; there are matmul" in run.stderr


def test_the_yaml_file_says_what_the_command_line_does_not(validate, operators):
    (operators / "ops-debug.yaml").write_text(
        "operators:\n"
        "  padded:\n"
        "    provider: ops.py:padded_linear\n"
        "    reference: ops.py:padded_linear\n"
        "    attributes: {used: x.dim0 - 2}\n"
        "    inputs:\n"
        "      x: {}\n"
        "      weight: {shape: 'x.dim1 * 2, x.dim1', contents: ones}\n")
    run = validate("padded", "--input-shape", "6x4", folder=operators)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "x:6x4 weight:8x4" in run.stdout


def test_the_yaml_file_names_a_kernel_and_its_backward_kernel(validate, operators, nvcc):
    (operators / "kernels").mkdir()
    shutil.copy(OPERATORS / "nearest.cu", operators / "kernels")
    (operators / "ops-debug.yaml").write_text(
        "operators:\n"
        "  down: {provider: kernels/nearest.cu, entry: nearest, backward: [nearest_fixed_backward],\n"
        "         reference: 'ops.py:nearest'}\n")
    run = validate("down", "--input-shape", "2x8x8", "--grad", folder=operators)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("text,words", [
    ("operators:\n  a:\n    provder: b\n", 'ops-debug.yaml:3: unknown key "provder"'),
    ("operators:\n  a:\n    rtol: much\n", 'ops-debug.yaml:3: "rtol" must be a number'),
    ("operators:\n  a: {reference: b}\n", 'ops-debug.yaml:2: operator "a" has no provider'),
    ("operators: [\n", "ops-debug.yaml:2: "),
    ("operators:\n  a: {provider: ops.py:scale, inputs: {x: {}, y: {shape: 'x.dim7'}}}\n",
     'ops-debug.yaml:2: input "y": expression "x.dim7"'),
], ids=["key", "number", "no-provider", "syntax", "expression"])
def test_a_wrong_yaml_file_is_told_with_its_line(validate, operators, text, words):
    (operators / "ops-debug.yaml").write_text(text)
    run = validate("a", "--reference", "builtin:exp", "--input-shape", "4x4", folder=operators)
    assert run.returncode == 2
    assert words in run.stderr


# Inputs.

def test_a_missing_shape_is_asked_for(validate, operators):
    run = validate("ops.py:scale", "--reference", "ops.py:scale", folder=operators)
    assert run.returncode == 2 and "give --input-shape" in run.stderr


def test_an_unknown_input_lists_the_inputs(validate, nvcc):
    run = validate("conv2d_depthwise", "--reference", "builtin:conv2d", *SMALL, "--input", "weigh=ones", folder=EXAMPLES)
    assert run.returncode == 2
    assert "--input weigh: no such input; conv2d_depthwise takes 2 inputs: input, weight" in run.stderr


def splitmix(seed, stream, element):
    mask = (1 << 64) - 1

    def mixed(x):
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    return (mixed((mixed(mixed(seed) ^ stream) + element) & mask) >> 11) * 2.0**-53


def test_random_inputs_are_the_same_everywhere(validate, operators):
    expected = [2 * (2 * splitmix(7, 0, i) - 1) for i in range(12)]
    np.save(operators / "expected.npy", np.array(expected, np.float32).reshape(3, 4))
    run = validate("ops.py:scale", "--reference", "expected.npy", "--input-shape", "3x4", "--seed", "7",
                   folder=operators)
    assert run.returncode == 0, run.stdout + run.stderr


def test_inputs_come_from_files(validate, operators):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(operators / "in.npz", a=x, b=x + 1)
    np.save(operators / "twice.npy", 2 * x + 2)
    run = validate("ops.py:scale", "--reference", "twice.npy", "--input", "x=in.npz:b", folder=operators)
    assert run.returncode == 0, run.stdout + run.stderr
    run = validate("ops.py:scale", "--reference", "twice.npy", "--input", "x=in.npz", folder=operators)
    assert run.returncode == 2 and "it holds no tensor \"x\" but a, b" in run.stderr


# Failing providers.

def test_a_provider_that_fails_is_quoted(validate, operators):
    (operators / "bad.py").write_text("def f(x):\n    raise ValueError('the moon is full')\n")
    run = validate("bad.py:f", "--reference", "ops.py:scale", "--input-shape", "4", folder=operators)
    assert run.returncode == 3
    assert "the moon is full" in run.stdout + run.stderr


def test_outputs_of_another_shape_fail(validate, operators):
    (operators / "bad.py").write_text("def f(x):\n    return x[:2]\n")
    run = validate("bad.py:f", "--reference", "ops.py:scale", "--input-shape", "4x4", folder=operators)
    assert run.returncode == 86
    assert "shape" in run.stdout


# Reports.

def test_json_names_break_and_verdict(validate, operators):
    (operators / "bad.py").write_text("def f(x):\n    x = x.copy()\n    x[:, 5:] *= 3\n    return x * 2\n")
    run = validate("bad.py:f", "--reference", "ops.py:scale", "--input-shape", "2x8x3", "--format", "json",
                   folder=operators)
    report = json.loads(run.stdout)
    assert (run.returncode, report["verdict"], report["break"]["channel"]) == (86, "FAIL", 5)
    assert report["cases"][0]["outputs"][0]["passes"] is False


def test_the_html_report_is_one_file(validate, operators):
    run = validate("ops.py:scale_wrong", "--reference", "ops.py:scale", "--input-shape", "4x40", "--format", "html",
                   "--output", "report.html", "--heatmap", folder=operators)
    assert run.returncode == 86
    assert "ops.py:scale_wrong against ops.py:scale" in (operators / "report.html").read_text()


def test_a_trusted_implementation_gives_a_ratio(validate, operators):
    (operators / "low.py").write_text(
        "import numpy as np\n\n\ndef good(x):\n    return (x.astype(np.float16) * 2).astype(x.dtype)\n")
    run = validate("low.py:good", "--reference", "ops.py:scale", "--trusted", "low.py:good", "--input-shape", "40",
                   "--rtol", "1e-2", "--format", "json", folder=operators)
    assert json.loads(run.stdout)["cases"][0]["outputs"][0]["verdict"]["dual_ratio"] == pytest.approx(1)


def test_diff_without_files_compares_the_last_validation(validate, operators):
    validate("ops.py:scale_wrong", "--reference", "ops.py:scale", "--input-shape", "4x40", folder=operators)
    run = validate(command="diff")
    assert run.returncode == 86, run.stderr
    assert "ops.py:scale_wrong against ops.py:scale" in run.stdout
