"""overhead.cu is right: a finding is a false alarm. Smaller sizes than on a GPU, same code."""
import pytest

SMALLER = {"size_t(1) << 28": "size_t(1) << 18", "gathered = 1 << 26, side = 16384": "gathered = 1 << 16, side = 512",
           "dim3(64, 128), dim3(32, 16)>>>(x, y, z, 2048)": "dim3(4, 8), dim3(32, 16)>>>(x, y, z, 128)",
           "dim3(64, 64), dim3(32, 32)>>>(x, y, z, 2048)": "dim3(4, 4), dim3(32, 32)>>>(x, y, z, 128)",
           "<<<16384, 256>>>(x, y, 4096)": "<<<64, 256>>>(x, y, 4096)"}


@pytest.fixture(scope="session")
def program(built, shared_kernels, tmp_path_factory):
    text = (shared_kernels / "overhead.cu").read_text()
    for large, small in SMALLER.items():
        assert text.count(large) == 1, large
        text = text.replace(large, small)
    source = tmp_path_factory.mktemp("overhead") / "overhead_small.cu"
    source.write_text(text)
    return built(source, "-cudart", "shared")


def test_right_kernels_are_silent_and_all_checked(tool, program):
    run = tool("run", "--check", "memory", "--", program, 1)
    assert run.report is not None, run.stderr
    assert run.report["findings"] == []
    assert run.code == 0
    assert len(run.stdout.splitlines()) == 8
