"""Which writes make memory written: by the host, by kernels, byte for byte. Both ways to check, on the emulator."""
import re

import pytest

from conftest import ROOT

SOURCE = ROOT / "test/end_to_end/programs/unwritten_memory.cu"
NAMES = re.findall(r'Is\(name, "(\w+)"\)', SOURCE.read_text())
NAMES = list(dict.fromkeys(NAMES))


@pytest.fixture(scope="session")
def program(built):
    return built(SOURCE, "-cudart", "shared")


@pytest.mark.parametrize("engine", ["auto", "ptx"])
@pytest.mark.parametrize("name", NAMES)
def test_unwritten_elements_are_found_and_nothing_else(tool, program, name, engine):
    run = tool("run", "--check", "init", "--engine", engine, "--", program, name)
    assert run.report is not None, run.stderr
    assert run.stdout == ""
    kinds = [finding["kind"] for finding in run.report["findings"]]
    assert kinds == (["uninitialised-read"] if name.endswith("_wrong") else [])
    assert run.code == (86 if name.endswith("_wrong") else 0)


def test_the_finding_names_allocation_and_use(tool, program):
    for engine in ("auto", "ptx"):
        run = tool("run", "--check", "init", "--engine", engine, "--", program, "copied_half_wrong")
        finding = run.report["findings"][0]
        lines = SOURCE.read_text().splitlines()
        assert "to[i] = from[i]" in lines[finding["line"] - 1]
        assert finding["allocation"]["size_bytes"] == 1024
        assert finding["access_bytes"] == 4
        assert "stored" in finding["message"] + str(finding)


def test_memory_checks_beside_it_change_nothing(tool, program):
    for name in ("copied_half_wrong", "odd_bytes", "taken_again_wrong", "stream_ordered", "copy_over_written_wrong"):
        for engine in ("auto", "ptx"):
            run = tool("run", "--check", "memory,init", "--engine", engine, "--", program, name)
            kinds = [finding["kind"] for finding in run.report["findings"]]
            assert kinds == (["uninitialised-read"] if name.endswith("_wrong") else []), (name, engine)
