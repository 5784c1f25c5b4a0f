"""Kernel files run on the CPU device: compiled, launched, and their outputs right."""

import array
import ast
import math

import pytest

NO_KERNEL = "__device__ int helper() { return 1; }\n"
SCALE = """
__global__ void scale(const float* x, float* y, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
"""
TYPECODES = {"<f4": "f", "<f8": "d", "<i4": "i", "<u4": "I", "<i8": "q", "|u1": "B"}


def load_npy(path):
    """(shape, values) of a .npy file, without NumPy."""
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    header_bytes = int.from_bytes(data[8:10], "little")
    assert (10 + header_bytes) % 64 == 0
    header = ast.literal_eval(data[10 : 10 + header_bytes].decode())
    values = array.array(TYPECODES[header["descr"]])
    values.frombytes(data[10 + header_bytes :])
    assert math.prod(header["shape"]) == len(values)
    return header["shape"], values


def test_kernel_file_needs_only_a_shape(emulated, source, tmp_path):
    run = emulated(
        "--kernel", source(SCALE), "--input-shape", 1000, "--arg", "x=iota", "--arg", "factor=0.5",
        "--save-outputs", tmp_path / "out",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "scale(x: 1000 f32, y: 1000 f32, factor=0.5, n=1000) grid 4x1x1 block 256x1x1" in run.stderr
    shape, values = load_npy(tmp_path / "out" / "y.npy")
    assert shape == (1000,)
    assert list(values) == [0.5 * i for i in range(1000)]


def test_matmul_example_computes_a_product(emulated, tmp_path):
    run = emulated(
        "--kernel", "examples/matmul_kernel_fixed.cu", "--input-shape", "70x50", "--input-shape", "50x90",
        "--arg", "A=ones", "--arg", "B=iota", "--save-outputs", tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "grid 2x2x1 block 256x1x1" in run.stderr
    shape, values = load_npy(tmp_path / "C.npy")
    assert shape == (70, 90)
    # Row sums of ones times B: the column sums of 0, 1, 2, ... in 50 rows of 90.
    assert list(values) == [sum(90 * k + col for k in range(50)) for _ in range(70) for col in range(90)]


def test_softmax_example_has_rows_that_sum_to_one(emulated, tmp_path):
    run = emulated("--kernel", "examples/softmax_kernel.cu", "--input-shape", "5x300", "--save-outputs", tmp_path)
    assert run.returncode == 0, run.stderr
    shape, values = load_npy(tmp_path / "output.npy")
    assert shape == (5, 300)
    for row in range(5):
        assert sum(values[row * 300 : row * 300 + 300]) == pytest.approx(1, abs=1e-5)
    assert max(values) < 2 * math.e**2 / 300


def test_histogram_example_counts_every_value(emulated, tmp_path):
    run = emulated("--kernel", "examples/histogram_kernel_fixed.cu", "--input-shape", 20000, "--save-outputs", tmp_path)
    assert run.returncode == 0, run.stderr
    shape, values = load_npy(tmp_path / "histogram.npy")
    assert shape == (64,)
    assert sum(values) == 20000
    assert min(values) > 0


def test_seed_changes_random_contents_and_nothing_else_does(emulated, source, tmp_path):
    kernel = source(SCALE)
    outputs = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = emulated("--kernel", kernel, "--input-shape", 64, "--seed", seed, "--save-outputs", tmp_path / name)
        assert run.returncode == 0, run.stderr
        outputs.append(load_npy(tmp_path / name / "y.npy")[1])
    assert outputs[0] == outputs[1] != outputs[2]


def test_debug_build_runs_with_force_inlined_functions(emulated, source, tmp_path):
    kernel = source(
        "__forceinline__ __device__ float twice(float v) { return 2 * v; }\n"
        + SCALE.replace("factor * x[i]", "twice(x[i])")
    )
    run = emulated(
        "--kernel", kernel, "--input-shape", 64, "--arg", "x=ones", "--debug-build", "--save-outputs", tmp_path
    )
    assert run.returncode == 0, run.stderr
    assert set(load_npy(tmp_path / "y.npy")[1]) == {2.0}


def test_ptx_file_runs(emulated, tmp_path):
    (tmp_path / "fill.ptx").write_text(
        """
.version 7.8
.target sm_80
.address_size 64
.visible .entry _Z4fillPii(.param .u64 p0, .param .u32 p1)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p0];
  ld.param.u32 %r1, [p1];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p, %r5, %r1;
  @%p bra done;
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.s32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r5;
done:
  ret;
}
"""
    )
    run = emulated(
        "--kernel", tmp_path / "fill.ptx", "--input-shape", 300, "--arg", "arg1=300",
        "--grid", 2, "--save-outputs", tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert list(load_npy(tmp_path / "arg0.npy")[1]) == list(range(300))[:300]


def test_ptx_with_a_syntax_error_has_its_place(emulated, tmp_path):
    path = tmp_path / "broken.ptx"
    path.write_text(".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k( {\n")
    run = emulated("--kernel", path)
    assert run.returncode == 3
    assert f"{path}: the PTX is not understood: 4:" in run.stderr


def test_source_with_main_is_built_and_gets_the_arguments(emulated, source):
    program = source(
        SCALE
        + """
#include <cstdio>
#include <cstdlib>
int main(int argc, char** argv) {
  float *x, *y, host[2] = {1, 2};
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  scale<<<1, 32>>>(x, y, atof(argv[1]), 2);
  cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost);
  printf("%g %g %d\\n", host[0], host[1], argc);
  return 5;
}
"""
    )
    run = emulated("--kernel", program, "--", "3")
    assert run.stdout == "3 6 2\n", run.stderr
    assert run.returncode == 5


def test_source_that_does_not_compile_shows_nvccs_errors(emulated, source):
    path = source("__global__ void k(int* p) { p[0] = undeclared; }\n")
    run = emulated("--kernel", path, "--input-shape", 4)
    assert run.returncode == 3
    assert f"{path} does not compile; nvcc says:" in run.stderr
    assert 'identifier "undeclared" is undefined' in run.stderr


def test_no_kernel_in_the_file(emulated, source):
    run = emulated("--kernel", source(NO_KERNEL))
    assert run.returncode == 2
    assert "has no kernel" in run.stderr


def test_several_kernels_are_listed(emulated, source):
    path = source(SCALE + SCALE.replace("scale", "other"))
    run = emulated("--kernel", path, "--input-shape", 64)
    assert run.returncode == 2
    assert "scale(float const*, float*, float, int)" in run.stderr
    assert "other(float const*, float*, float, int)" in run.stderr
    assert emulated("--kernel", path, "--input-shape", 64, "--entry", "other").returncode == 0


def test_unsure_rules_show_what_to_pass(emulated, source):
    path = source("__global__ void k(const float* in, float* out, int n) { out[threadIdx.y * n] = in[blockIdx.x]; }")
    run = emulated("--kernel", path, "--input-shape", "16x32")
    assert run.returncode == 2
    assert "--arg n=512 (elements of in) or --arg n=16" in run.stderr
    assert "--block 16x16" in run.stderr
    assert "pass --grid" in run.stderr


def test_illegal_access_is_reported_by_name(emulated, source):
    path = source("__global__ void k(int* p, long far) { p[far] = 1; }")
    run = emulated("--kernel", path, "--input-shape", 4, "--arg", "far=100000000000")
    assert run.returncode == 1
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in run.stderr


def test_no_temporary_files_are_left(emulated, source, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert emulated("--kernel", source(SCALE), "--input-shape", 64, TMPDIR=scratch).returncode == 0
    assert list(scratch.iterdir()) == []
