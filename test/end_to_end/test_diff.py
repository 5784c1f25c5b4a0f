"""ops-debug diff: files of tensors as NumPy writes them, verdicts, errors and exit codes as a user sees them."""
import json
import os
import struct
import subprocess

import numpy
import pytest

from conftest import BUILD

SAME, DIFFERS, USAGE, FAILURE = 0, 86, 2, 3


class Diff:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *arguments, state=None):
        environment = {**os.environ, "XDG_STATE_HOME": str(state or self.folder / "no-state")}
        return subprocess.run([str(BUILD / "ops-debug"), "diff", *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, env=environment)

    def report(self, *arguments):
        result = self(*arguments, "--format", "json")
        assert result.stderr == ""
        return result.returncode, json.loads(result.stdout)

    def save(self, name, **arrays):
        path = self.folder / name
        if name.endswith(".npy"):
            (array,) = arrays.values()
            numpy.save(path, array)
        else:
            numpy.savez(path, **arrays)
        return path


@pytest.fixture
def diff(tmp_path):
    return Diff(tmp_path)


@pytest.fixture(scope="module")
def layers():
    random = numpy.random.default_rng(1)
    return {name: random.standard_normal((8, 16), dtype=numpy.float32) for name in ("conv1", "conv2", "fc")}


def test_identical_sets_are_the_same(diff, layers):
    a, b = diff.save("a.npz", **layers), diff.save("b.npz", **layers)
    result = diff(a, b)
    assert result.returncode == SAME, result.stderr
    assert "conv1" in result.stdout


def test_the_first_layer_that_fails_is_the_first_divergence(diff, layers):
    wrong = {**layers, "conv1": layers["conv1"] * numpy.float32(1 + 1e-7), "conv2": layers["conv2"] + 1, "fc": layers["fc"] - 2}
    code, report = diff.report(diff.save("a.npz", **wrong), diff.save("b.npz", **layers))
    assert code == DIFFERS
    assert report["passes"] is False
    assert report["pairs"][report["first_divergence"]]["tag"] == "conv2"
    assert any("conv1" in remark for remark in report["remarks"])


def test_a_compressed_npz_equals_the_plain_one(diff, layers):
    a = diff.folder / "a.npz"
    numpy.savez_compressed(a, **layers)
    assert diff(a, diff.save("b.npz", **layers)).returncode == SAME


def test_two_npy_files_are_compared_whatever_their_names(diff, layers):
    a, b = diff.save("mine.npy", x=layers["fc"]), diff.save("theirs.npy", x=numpy.asfortranarray(layers["fc"]))
    assert diff(a, b).returncode == SAME


def test_folders_are_compared_file_by_file(diff, layers):
    for side in "ab":
        (diff.folder / side).mkdir()
        for name, array in layers.items():
            numpy.save(diff.folder / side / f"{name}.npy", array)
    numpy.save(diff.folder / "b" / "fc.npy", layers["fc"] + 1)
    code, report = diff.report(diff.folder / "a", diff.folder / "b")
    assert code == DIFFERS
    assert [pair["tag"] for pair in report["pairs"]] == ["conv1", "conv2", "fc"]
    assert report["first_divergence"] == 2


def test_a_tolerance_decides(diff, layers):
    a = diff.save("a.npy", x=layers["fc"] * numpy.float32(1.001))
    b = diff.save("b.npy", x=layers["fc"])
    assert diff(a, b).returncode == DIFFERS
    assert diff(a, b, "--rtol", "2e-3").returncode == SAME
    assert diff(a, b, "--rtol", "0", "--atol", "1").returncode == SAME


def test_other_shapes_are_a_verdict(diff):
    a, b = diff.save("a.npy", x=numpy.zeros((2, 3))), diff.save("b.npy", x=numpy.zeros((3, 2)))
    result = diff(a, b)
    assert result.returncode == DIFFERS
    assert "[2, 3]" in result.stdout and "[3, 2]" in result.stdout


def test_types_that_cannot_be_compared_are_a_verdict(diff):
    a, b = diff.save("a.npy", x=numpy.zeros(4, numpy.complex64)), diff.save("b.npy", x=numpy.zeros(4, numpy.float32))
    result = diff(a, b)
    assert result.returncode == DIFFERS
    assert "complex64" in result.stdout and "float32" in result.stdout


def test_types_of_one_class_are_compared(diff):
    values = numpy.arange(16) / 16
    a, b = diff.save("a.npy", x=values.astype(numpy.float16)), diff.save("b.npy", x=values.astype(numpy.float64))
    assert diff(a, b).returncode == SAME


@pytest.mark.parametrize("missing_in, side", [("a", "candidate"), ("b", "reference")])
def test_a_missing_tensor_is_named(diff, layers, missing_in, side):
    fewer = {name: array for name, array in layers.items() if name != "conv2"}
    a, b = (diff.save(f"{name}.npz", **(fewer if name == missing_in else layers)) for name in "ab")
    result = diff(a, b)
    assert result.returncode == DIFFERS
    assert "conv2" in result.stdout and f"missing in the {side}" in result.stdout


def test_nan_everywhere_on_both_sides_is_said_and_no_difference(diff):
    a, b = (diff.save(f"{name}.npy", x=numpy.full(9, numpy.nan, numpy.float32)) for name in "ab")
    result = diff(a, b)
    assert result.returncode == SAME
    assert "NaN" in result.stdout and "not called right" in result.stdout


def test_nan_on_one_side_differs(diff):
    a, b = diff.save("a.npy", x=numpy.full(9, numpy.nan, numpy.float32)), diff.save("b.npy", x=numpy.zeros(9, numpy.float32))
    result = diff(a, b)
    assert result.returncode == DIFFERS
    assert "NaN" in result.stdout


def test_tensors_without_elements_are_said_and_no_difference(diff):
    a, b = (diff.save(f"{name}.npy", x=numpy.zeros((0, 3), numpy.float32)) for name in "ab")
    result = diff(a, b)
    assert result.returncode == SAME
    assert "nothing could be compared" in result.stdout


@pytest.mark.parametrize("shape", [(), (1, 2, 1, 3, 1, 2, 1, 2)])
def test_tensors_of_any_rank_are_compared(diff, shape):
    values = numpy.ones(shape, numpy.float32)
    a, b, c = (diff.save(f"{name}.npy", x=values * factor) for name, factor in (("a", 1), ("b", 1), ("c", 2)))
    assert diff(a, b).returncode == SAME
    assert diff(a, c).returncode == DIFFERS


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "float64", "complex64", "complex128", ">f4"])
def test_numpys_types_are_compared(diff, dtype):
    values = (numpy.arange(24) % 2).astype(dtype).reshape(4, 6)
    other = values.copy()
    other[3, 5] = not other[3, 5]
    a, b, c = diff.save("a.npy", x=values), diff.save("b.npy", x=values), diff.save("c.npy", x=other)
    assert diff(a, b).returncode == SAME
    assert diff(a, c).returncode == DIFFERS


def safetensors(path, **tensors):
    header, content = {}, b""
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(content), len(content) + array.nbytes]}
        content += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def test_bfloat16_in_safetensors_is_compared_with_float32(diff):
    values = numpy.arange(64, dtype=numpy.float32)  # exact in bfloat16
    a = safetensors(diff.folder / "a.safetensors", x=("BF16", (values.view(numpy.uint32) >> 16).astype(numpy.uint16)))
    b = safetensors(diff.folder / "b.safetensors", x=("F32", values))
    assert diff(a, b).returncode == SAME


def test_a_map_names_partners(diff, layers):
    a = diff.save("a.npz", **{f"module.{name}": array for name, array in layers.items()})
    b = diff.save("b.npz", **layers)
    without = diff(a, b)
    assert without.returncode == DIFFERS
    rule = r"module\.(.*): \1"
    assert rule in without.stdout
    names = diff.folder / "names.map"
    names.write_text(rule + "\n")
    assert diff(a, b, "--map", names).returncode == SAME


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
def test_a_truncated_file_is_an_error_that_names_it(diff, layers, suffix):
    whole = diff.folder / f"b.{suffix}"
    if suffix == "safetensors":
        safetensors(whole, x=("F32", layers["fc"]))
    else:
        diff.save(whole.name, x=layers["fc"])
    cut = diff.folder / f"a.{suffix}"
    cut.write_bytes(whole.read_bytes()[:-100])
    result = diff(cut, whole)
    assert result.returncode == FAILURE
    assert str(cut) in result.stderr and "truncated" in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_not_there_is_an_error(diff):
    result = diff("/no/such.npy", "/no/other.npy")
    assert result.returncode == FAILURE
    assert "/no/such.npy" in result.stderr and "No such file" in result.stderr


def test_a_log_holds_no_tensors(diff):
    log = diff.folder / "run.odlog"
    log.write_bytes(b"x")
    result = diff(log, log)
    assert result.returncode == FAILURE
    assert "no tensors" in result.stderr


@pytest.mark.parametrize("arguments, words", [
    (["only-one.npy"], "one file is named"),
    (["a", "b", "--rtol", "x"], "--rtol takes a number"),
    (["a", "b", "--rtol=-1"], "--rtol takes a number"),
    (["a", "b", "--atol", "nan"], "--atol takes a number"),
    (["a", "b", "--format", "xml"], "text, json or html"),
    (["a", "b", "--format", "html"], "--output"),
    (["a", "b", "--worst", "-3"], "--worst takes a count"),
    (["a", "b", "--mpa", "x"], "did you mean --map?"),
    (["a", "b", "--map", "/no/such.map"], "/no/such.map"),
])
def test_wrong_usage_is_explained(diff, arguments, words):
    result = diff(*arguments)
    assert result.returncode == USAGE
    assert words in result.stderr


def test_the_exit_code_can_be_chosen(diff):
    a, b = diff.save("a.npy", x=numpy.zeros(3)), diff.save("b.npy", x=numpy.ones(3))
    assert diff(a, b, "--error-exitcode", "7").returncode == 7
    assert diff(a, b, "--error-exitcode", "0").returncode == 0


def test_an_input_is_never_overwritten(diff):
    a, b = diff.save("a.npy", x=numpy.zeros(3)), diff.save("b.npy", x=numpy.ones(3))
    before = b.read_bytes()
    result = diff(a, b, "--output", b)
    assert result.returncode == USAGE
    assert b.read_bytes() == before


def test_html_is_one_file_without_addresses(diff, layers):
    a, b = diff.save("a.npz", **layers), diff.save("b.npz", **{**layers, "fc": layers["fc"] + 1})
    page = diff.folder / "diff.html"
    result = diff(a, b, "--format", "html", "--output", page, "--heatmap")
    assert result.returncode == DIFFERS
    assert "conv2" in page.read_text() and 'src="http' not in page.read_text()


def test_without_files_the_last_kept_pair_is_compared(diff, layers):
    state = diff.folder / "state"
    (state / "ops-debug").mkdir(parents=True)
    a, b = diff.save("a.npy", x=layers["fc"]), diff.save("b.npy", x=layers["fc"] + 1)
    (state / "ops-debug/last.json").write_text(json.dumps(
        {"kind": "validate", "candidate": str(a), "reference": str(b), "title": "mine against theirs"}))
    result = diff(state=state)
    assert result.returncode == DIFFERS
    assert "mine against theirs" in result.stdout


def test_without_files_two_captured_runs_are_compared_if_they_were_later(diff, layers):
    state = diff.folder / "state/ops-debug"
    state.mkdir(parents=True)
    (state / "last.json").write_text("{}")
    folders = [diff.folder / name for name in ("new", "old")]
    for folder in folders:
        folder.mkdir()
        numpy.save(folder / "out.npy", layers["fc"] + (folder.name == "new"))
    captures = state / "last-captures"
    captures.write_text("".join(f"{folder}\n" for folder in folders))
    os.utime(state / "last.json", (1, 1))
    result = diff(state=state.parent)
    assert result.returncode == DIFFERS
    assert f"{folders[0]} against the run before, {folders[1]}" in result.stdout
    captures.write_text(f"{folders[0]}\n\n")
    alone = diff(state=state.parent)
    assert alone.returncode == USAGE
    assert "only one run was captured" in alone.stderr


def test_without_files_and_without_a_last_pair_it_says_what_to_do(diff):
    result = diff()
    assert result.returncode == USAGE
    assert "ops-debug validate" in result.stderr
