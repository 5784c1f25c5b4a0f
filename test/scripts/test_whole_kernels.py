"""What counts as the record of a whole-kernel program and what does not."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/whole_kernels"))

import run  # noqa: E402

RECORD = ["sum: exact n=1 00000000000000aa", "rows: float n=4 tolerance=0.01 sum=4 l2=2 samples 1 1 1 1"]


def lines(exact="00000000000000aa", samples="1 1 1 1", total="4", l2="2", tolerance="0.01"):
    return [f"sum: exact n=1 {exact}", f"rows: float n=4 tolerance={tolerance} sum={total} l2={l2} samples {samples}"]


@pytest.mark.parametrize("got", [RECORD, lines(samples="1.009 0.991 1 1", total="4.01", l2="2.001")])
def test_same_bits_and_values_within_the_tolerance_are_accepted(got):
    assert list(run.differences(got, RECORD)) == []


@pytest.mark.parametrize("got, complaint", [
    (lines(exact="00000000000000ab"), "recorded sum: exact"),
    (lines(samples="1.02 1 1 1"), "sample 0 is 1.02, recorded 1"),
    (lines(samples="nan 1 1 1"), "sample 0 is nan"),
    (lines(total="4.2"), "the sum is 4.2, recorded 4"),
    (lines(l2="2.1"), "the norm is 2.1, recorded 2"),
    (lines(tolerance="1"), "another size or tolerance"),
    (RECORD[:1], "1 lines, recorded 2"),
])
def test_everything_else_is_named(got, complaint):
    found = list(run.differences(got, RECORD))
    assert len(found) == 1 and complaint in found[0]


def test_the_record_covers_every_program():
    golden = run.json.loads(run.GOLDEN.read_text())
    assert sorted(golden["programs"]) == run.programs.names()
