"""Code that a program compiles while it runs and loads as a cubin: NVRTC, nvJitLink, a ptxas child, a framework's cache.

The emulator cannot run machine code, so a program that gets through has got the PTX of its cubin from the store; and the
planted write past the end is found in it."""
import pathlib
import shutil
import subprocess

import pytest

from conftest import BUILD, find_nvcc

PROGRAM = BUILD / "test/programs/end_to_end_compile_at_run_time"
LINKED = BUILD / "test/programs/end_to_end_compile_linked"
SOURCE = """extern "C" __global__ void scale(float* data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) data[i] = data[i] * 2.0f + 1.0f;
}
"""


def toolkit() -> pathlib.Path:
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("no CUDA toolkit on this machine")
    top = subprocess.run([nvcc, "--dryrun", "-ptx", "-x", "cu", "/dev/null"], capture_output=True, text=True).stderr
    for line in top.splitlines():
        if line.startswith("#$ TOP="):
            return pathlib.Path(line[len("#$ TOP="):]).resolve()
    return pathlib.Path(nvcc).resolve().parents[1]


def library(name: str) -> pathlib.Path:
    for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
        for path in sorted((toolkit() / folder).glob(f"{name}.so.*")):
            return path
    pytest.skip(f"the toolkit has no {name}")


@pytest.fixture
def places(tmp_path):
    """Folders of this test alone: a home without a framework's cache, and a store."""
    for name in ("home", "store", "work"):
        (tmp_path / name).mkdir()
    return tmp_path


def run(tool, places, *command, store="store", **environment):
    return tool("run", "--ptx-store", places / store, "--", *command,
                environment={"HOME": str(places / "home"), "TRITON_CACHE_DIR": "", "TORCHINDUCTOR_CACHE_DIR": "/none",
                             **environment})


def entries(places):
    return sorted((places / "store").glob("*.ptx"))


def assert_checked(result, launches=1):
    assert "sum 4096" in result.stdout, result.stderr
    assert result.code == 86, result.stderr
    assert {finding["kind"] for finding in result.report["findings"]} == {"oob-global"}
    assert all(finding["kernel"] == "scale" and finding["line"] == 3 for finding in result.report["findings"])
    coverage = result.report["coverage"]
    assert (coverage["launches"], coverage["checked_launches"]) == (launches, launches)


def assert_cubin_refused(result):
    """Without PTX the cubin goes to the emulator as it is."""
    assert "load error" in result.stderr + result.stdout
    assert result.report["findings"] == []


def remarks(result) -> str:
    return str(result.report["remarks"])


@pytest.fixture(scope="session")
def scale_ptx(nvcc, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale")
    (folder / "scale.cu").write_text(SOURCE)
    subprocess.run([nvcc, "-arch=compute_90", "-lineinfo", "-ptx", "-o", folder / "scale.ptx", folder / "scale.cu"],
                   check=True, timeout=120)
    return folder / "scale.ptx"


@pytest.fixture(scope="session")
def scale_cubin(scale_ptx):
    cubin = scale_ptx.with_suffix(".cubin")
    subprocess.run([toolkit() / "bin/ptxas", "-arch=sm_90", scale_ptx, "-o", cubin], check=True, timeout=120)
    return cubin


def test_nvrtc_by_dlopen(tool, places):
    result = run(tool, places, PROGRAM, "nvrtc", library("libnvrtc"))
    assert_checked(result)
    assert "PTX from NVRTC" in remarks(result)
    assert "cudart" not in result.stderr  # NVRTC looks for private tables of the driver, too; nobody need know


def test_two_copies_of_nvrtc_in_one_process(tool, places):
    assert_checked(run(tool, places, PROGRAM, "nvrtc", library("libnvrtc"), library("libnvrtc.alt")), launches=2)


@pytest.mark.skipif(not LINKED.exists(), reason="the toolkit has no link-time libnvrtc.so")
def test_a_program_linked_with_nvrtc(tool, places):
    assert_checked(run(tool, places, LINKED, LD_LIBRARY_PATH=str(library("libnvrtc").parent)))


def test_nvjitlink_of_one_ptx(tool, places):
    result = run(tool, places, PROGRAM, "nvjitlink", library("libnvrtc"), library("libnvJitLink"))
    assert_checked_without_lines(result)
    assert "PTX from nvJitLink" in remarks(result)


def test_nvjitlink_of_lto_code(tool, places):
    assert_checked_without_lines(run(tool, places, PROGRAM, "lto", library("libnvrtc"), library("libnvJitLink")))


def assert_checked_without_lines(result):
    assert "sum 4096" in result.stdout, result.stderr
    assert {finding["kind"] for finding in result.report["findings"]} == {"oob-global"}
    assert result.report["coverage"]["checked_launches"] == 1


def test_a_ptxas_child(tool, places, scale_ptx):
    result = run(tool, places, PROGRAM, "ptxas", toolkit() / "bin/ptxas", scale_ptx, places / "work/scale.cubin",
                 "-arch=sm_90", "--fmad=false")
    assert_checked(result)
    assert "PTX from ptxas" in remarks(result)
    assert len(entries(places)) == 1
    # The assembler is no part of the session.
    assert len(result.report["coverage"]["processes"]) == 1


def test_a_ptxas_child_with_an_options_file(tool, places, scale_ptx):
    options = places / "work/options"
    options.write_text(f'-arch=sm_90 --maxrregcount 32 "-o" {places / "work/scale.cubin"}\n')
    result = run(tool, places, PROGRAM, "ptxas", toolkit() / "bin/ptxas", scale_ptx, places / "work/scale.cubin",
                 "--options-file", options)
    assert_checked(result)


def test_a_ptxas_child_that_fails_stores_nothing(tool, places, scale_ptx):
    broken = places / "work/broken.ptx"
    broken.write_text(scale_ptx.read_text().replace("ld.global", "ld.nowhere"))
    result = run(tool, places, PROGRAM, "ptxas", toolkit() / "bin/ptxas", broken, places / "work/scale.cubin", "-arch=sm_90")
    assert "sum" not in result.stdout
    assert entries(places) == []


def test_a_cubin_that_an_earlier_run_compiled(tool, places, scale_ptx):
    cubin = places / "work/scale.cubin"
    run(tool, places, PROGRAM, "ptxas", toolkit() / "bin/ptxas", scale_ptx, cubin, "-arch=sm_90")
    assert_checked(run(tool, places, PROGRAM, "file", cubin))
    assert_checked(run(tool, places, PROGRAM, "data", cubin))


def test_an_unknown_cubin_is_left_to_the_device(tool, places, scale_cubin):
    assert_cubin_refused(run(tool, places, PROGRAM, "data", scale_cubin))


def test_a_damaged_store_is_as_good_as_none(tool, places, scale_ptx):
    cubin = places / "work/scale.cubin"
    run(tool, places, PROGRAM, "ptxas", toolkit() / "bin/ptxas", scale_ptx, cubin, "-arch=sm_90")
    entry, = entries(places)
    entry.write_bytes(entry.read_bytes()[:100] + b"garbage")
    assert_cubin_refused(run(tool, places, PROGRAM, "data", cubin))
    assert entries(places) == []


def test_a_store_that_cannot_be_written_is_reported_once(tool, places):
    (places / "file").write_text("")
    result = run(tool, places, PROGRAM, "nvrtc", library("libnvrtc"), library("libnvrtc.alt"), store="file/ptx")
    assert_checked(result, launches=2)  # from memory
    assert remarks(result).count("the store of PTX is not kept") == 1


RDC_MAIN = """#include <cstdio>
__device__ float twice(float value);
__global__ void scale(float* data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) data[i] = twice(data[i]);
}
int main() {
  float* data;
  cudaMalloc(&data, 64 * sizeof(float));
  cudaMemset(data, 0, 64 * sizeof(float));
  scale<<<1, 128>>>(data, 64);
  std::printf("%s\\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
"""
RDC_DEVICE = "__device__ float twice(float value) { return 2.0f * value; }\n"


def test_relocatable_device_code_of_two_objects(tool, nvcc, places):
    (places / "work/main.cu").write_text(RDC_MAIN)
    (places / "work/device.cu").write_text(RDC_DEVICE)
    program = places / "work/rdc"
    subprocess.run([nvcc, "-rdc=true", "-lineinfo", "-cudart", "shared", "-gencode", "arch=compute_90,code=compute_90",
                    "-gencode", "arch=compute_90,code=sm_90", "-o", program, places / "work/main.cu", places / "work/device.cu"],
                   check=True, timeout=200)
    result = run(tool, places, program)
    assert "no error" in result.stdout, result.stderr
    assert {(finding["kind"], finding["line"]) for finding in result.report["findings"]} == {("oob-global", 5)}
    assert result.report["coverage"]["checked_launches"] == 1
    assert "PTX linked from the 2 objects" in remarks(result)


def make_triton_cache(folder: pathlib.Path, ptx: pathlib.Path, cubin: pathlib.Path):
    folder.mkdir(parents=True)
    shutil.copy(ptx, folder / "scale.ptx")
    shutil.copy(cubin, folder / "scale.cubin")
    (folder / "scale.json").write_text('{"name": "scale", "num_warps": 4, "enable_fp_fusion": true}')


def test_tritons_cache(tool, places, scale_ptx, scale_cubin):
    make_triton_cache(places / "triton/KEY", scale_ptx, scale_cubin)
    result = run(tool, places, PROGRAM, "data", scale_cubin, TRITON_CACHE_DIR=str(places / "triton"))
    assert_checked(result)
    assert "PTX from Triton's cache" in remarks(result)


def test_inductors_cache(tool, places, scale_ptx, scale_cubin):
    make_triton_cache(places / "inductor/triton/0/KEY", scale_ptx, scale_cubin)
    assert_checked(run(tool, places, PROGRAM, "data", scale_cubin, TORCHINDUCTOR_CACHE_DIR=str(places / "inductor")))


def test_a_cubin_file_in_a_cache_elsewhere(tool, places, scale_ptx, scale_cubin):
    """Inductor's static launcher gives the file's name to the driver."""
    make_triton_cache(places / "elsewhere/KEY", scale_ptx, scale_cubin)
    assert_checked(run(tool, places, PROGRAM, "file", places / "elsewhere/KEY/scale.cubin"))


def test_without_checks_nothing_is_remembered(tool, places):
    result = tool("run", "--check", "none", "--ptx-store", places / "store", "--", PROGRAM, "nvrtc", library("libnvrtc"))
    assert_cubin_refused(result)
    assert entries(places) == []
