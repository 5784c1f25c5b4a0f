"""planted.cu under --check all: each run finds its own fault and nothing else. overhead.cu is silent."""
import conftest
import planted_all
import pytest

# The same code as in the file, smaller.
SMALLER = {"size_t(1) << 28": "size_t(1) << 14", "gathered = 1 << 26, side = 16384": "gathered = 1 << 12, side = 128",
           "dim3(64, 128), dim3(32, 16)>>>(x, y, z, 2048)": "dim3(2, 4), dim3(32, 16)>>>(x, y, z, 64)",
           "dim3(64, 64), dim3(32, 32)>>>(x, y, z, 2048)": "dim3(2, 2), dim3(32, 32)>>>(x, y, z, 64)",
           "<<<16384, 256>>>(x, y, 4096)": "<<<8, 256>>>(x, y, 1024)"}


@pytest.mark.parametrize("engine", ["auto", "ptx"])
@pytest.mark.parametrize("fault", range(16))
def test_each_run_finds_its_own_fault_and_nothing_else(check, nvcc, programs, shared_kernels, fault, engine):
    source = shared_kernels / "planted.cu"
    program = conftest.compile_program(nvcc, source, programs / "planted")
    code, _, stderr, report = check("all", program, fault, engine=engine)
    assert report is not None, stderr
    assert planted_all.all_problems(report, source, fault) == []
    assert report.get("unproven", []) == []
    assert code == (0 if fault in planted_all.SILENT else 86)


@pytest.mark.parametrize("engine", ["auto", "ptx"])
def test_right_kernels_are_silent(check, nvcc, programs, shared_kernels, engine):
    text = (shared_kernels / "overhead.cu").read_text()
    for large, small in SMALLER.items():
        assert text.count(large) == 1, large
        text = text.replace(large, small)
    source = programs / "overhead_small.cu"
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    program = conftest.compile_program(nvcc, source, programs / "overhead_small")
    code, stdout, stderr, report = check("all", program, 1, engine=engine)
    assert report is not None, stderr
    assert (report["findings"], report.get("unproven", []), code) == ([], [], 0)
    assert len(stdout.splitlines()) == 8
