"""Whole right programs (cub's device algorithms with decoupled look-back, cooperative groups, grid barriers, pipelines of asynchronous
copies, tiled matrix products on tensor cores): checked for everything, silent, and printing what they print without the tool.
"""
import pathlib
import sys
import tarfile

import conftest
import pytest

PROGRAMS = conftest.BUILD / "test/whole_kernels/programs"
NAMES = sorted(path.stem for path in (conftest.ROOT / "test/whole_kernels").glob("*.cu"))
# Ends its context with a device-side assert on purpose.
BESIDES = {"device_services": ("failed-call",)}


def assert_silent(check, checks, name, engine):
    program = PROGRAMS / name
    if not program.exists():
        pytest.skip(f"{program} is not built: ninja whole_kernels")
    _, native, _, _ = check("none", program)
    code, stdout, stderr, report = check(checks, program, engine=engine)
    assert report is not None, stderr
    assert [finding for finding in report["findings"] if finding.get("severity") != "note" and finding["kind"] not in BESIDES.get(name, ())] == []
    assert stdout == native
    assert code == 0
    assert report["lost_events"] == 0
    return report


@pytest.mark.parametrize("name", NAMES)
def test_right_program_is_silent_under_exact_checks(check, name):
    report = assert_silent(check, "race,sync,init", name, "auto")
    assert report.get("unproven", []) == []


@pytest.mark.parametrize("name", NAMES)
def test_right_program_is_silent_under_checks_of_the_kernel_itself(check, name):
    assert_silent(check, "race,sync,init", name, "ptx")


# low_precision adds and multiplies all numbers that half and bfloat16 have, so it leaves their range.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "low_precision"])
def test_right_program_is_silent_about_its_numbers(check, name):
    assert_silent(check, "precision", name, "auto")


@pytest.fixture(scope="session")
def triton_kernels(programs):
    archive = conftest.SHARED / "ptx-corpus.tar.xz"
    if not archive.exists():
        pytest.skip(f"{archive} is not there")
    folder = programs / "triton"
    if not folder.exists():
        with tarfile.open(archive) as corpus:
            for member in corpus.getmembers():
                if pathlib.Path(member.name).name.startswith("triton_"):
                    folder.mkdir(exist_ok=True)
                    (folder / pathlib.Path(member.name).name).write_bytes(corpus.extractfile(member).read())
    return folder


@pytest.mark.parametrize("engine", ["auto", "ptx"])
def test_triton_kernels_are_silent(check, triton_kernels, engine):
    """Matrix products, attention, softmax, layer norm, scan and histogram as Triton compiled them."""
    command = [sys.executable, conftest.ROOT / "test/cases/triton_kernels.py", triton_kernels]
    code, stdout, stderr, report = check("all", *command, engine=engine)
    assert report is not None, stderr
    assert [finding for finding in report["findings"] if finding.get("severity") != "note"] == []
    assert report.get("unproven", []) == [] or engine == "ptx"
    assert code == 0
    assert len(stdout.splitlines()) == 14
