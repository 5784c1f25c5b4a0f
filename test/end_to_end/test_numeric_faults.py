"""Numerical faults of single instructions, by line, kind and operands; right code that looks odd is silent. On the emulator."""
import re

import pytest

from conftest import ROOT

SOURCE = ROOT / "test/end_to_end/programs/numeric_faults.cu"
NAMES = list(dict.fromkeys(re.findall(r'Is\(name, "(\w+)"\)', SOURCE.read_text())))
KINDS = {"mean_wrong": "nan-created", "inverse_wrong": "inf-created", "exponential_wrong": "fp-overflow",
         "merge_wrong": "nan-created", "sum_of_halves_wrong": "precision-loss", "narrow_wrong": "fp-overflow",
         "squares_of_pairs_wrong": "fp-overflow", "squares_of_bfloats_wrong": "fp-overflow",
         "product_in_double_wrong": "fp-overflow"}


def line_of(name: str) -> int:
    lines = SOURCE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"//! {name}"))


@pytest.fixture(scope="session")
def program(built):
    return built(SOURCE, "-cudart", "shared")


@pytest.mark.parametrize("name", NAMES)
def test_faults_are_found_at_their_line_and_right_code_is_silent(tool, program, name):
    run = tool("run", "--check", "precision", "--", program, name)
    assert run.report is not None, run.stderr
    assert run.stdout == ""
    found = [(finding["kind"], finding["line"]) for finding in run.report["findings"]]
    wrong = name.endswith("_wrong")
    assert (KINDS[name], line_of(name)) in found if wrong else found == [], found
    severe = any(finding["severity"] == "error" for finding in run.report["findings"])
    assert severe == (wrong and KINDS[name] != "precision-loss")
    assert run.code == (86 if severe else 0)


def test_the_first_thread_and_the_count_are_told(tool, program):
    run = tool("run", "--check", "precision", "--", program, "inverse_wrong")
    finding = run.report["findings"][0]
    assert finding["thread"] == [3, 0, 0]
    assert finding["count"] == 2


def test_memory_and_races_beside_it_change_nothing(tool, program):
    for name in ("mean_wrong", "exponential_wrong", "masked_softmax"):
        run = tool("run", "--check", "memory,race,sync,init,precision", "--", program, name)
        kinds = {finding["kind"] for finding in run.report["findings"]}
        assert (KINDS[name] in kinds) if name.endswith("_wrong") else not kinds, (name, kinds)
