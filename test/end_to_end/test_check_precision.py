"""check-precision as a user runs it: a layer norm whose sum leaves the range of half, its right twin, the table of conversions."""
import csv
import json

import pytest

import conftest

FAULTY = conftest.ROOT / "examples/layer_norm.cu"
RIGHT = conftest.ROOT / "examples/layer_norm_fixed.cu"


@pytest.fixture(autouse=True)
def needs_nvcc(nvcc):
    """The runner compiles the kernel files."""


def line_of(source, text):
    return next(number for number, line in enumerate(source.read_text().splitlines(), 1) if text in line)


def test_the_overflow_is_named_with_its_line_and_operands(tool):
    run = tool("check-precision", "--kernel", FAULTY)
    assert run.code == 86, run.stderr
    assert [finding["kind"] for finding in run.report["findings"]] == ["fp-overflow"]
    finding = run.report["findings"][0]
    assert finding["line"] == line_of(FAULTY, "value = __hadd(value")
    assert finding["message"] == "add.f16: 36704 + 38208 gives +inf: the largest half is 65504"
    assert finding["cause"] == "accumulator"
    assert (finding["block"], finding["thread"]) == ([1, 0, 0], [0, 0, 0])
    assert "accumulate in float32" in finding["advice"]
    assert run.report["coverage"]["checks"] == ["precision"]


def test_the_right_twin_is_silent(tool):
    run = tool("check-precision", "--kernel", RIGHT)
    assert (run.code, run.report["findings"]) == (0, [])
    assert run.report["coverage"]["checked_launches"] == 1
    assert "conversions" not in run.report


def test_conversions_are_counted_with_their_loss(tool):
    run = tool("check-precision", "--kernel", RIGHT, "--trace-fp16-to-fp32")
    assert (run.code, run.report["findings"]) == (0, [])
    stores = [row for row in run.report["conversions"] if (row["from"], row["to"]) == ("f32", "f16")]
    assert [row["line"] for row in stores] == [line_of(RIGHT, "out[col] = __float2half")]
    assert stores[0]["executions"] == 8 * 32
    assert 0 < stores[0]["worst_relative_loss"] <= 2**-11
    widened = [row for row in run.report["conversions"] if row["widens"]]
    assert widened and all(row["to"] == "f32" for row in widened)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.csv"])
def test_the_whole_trace_goes_to_a_file(tool, tmp_path, name):
    file = tmp_path / name
    run = tool("check-precision", "--kernel", RIGHT, "--precision-trace", file)
    text = file.read_text()
    rows = list(csv.DictReader(text.splitlines())) if name.endswith(".csv") else [json.loads(line) for line in text.splitlines()]
    assert [int(row["ptx_line"]) for row in rows] == [row["ptx_line"] for row in run.report["conversions"]]
    assert [row["instruction"] for row in rows] == [row["instruction"] for row in run.report["conversions"]]


def test_a_recorded_run_gives_the_same_trace(tool, tmp_path):
    tool("check-precision", "--kernel", RIGHT, "--precision-trace", tmp_path / "live.jsonl", "--log", tmp_path / "run.odlog")
    tool("report", tmp_path / "run.odlog", "--precision-trace", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "live.jsonl").read_text() != ""
