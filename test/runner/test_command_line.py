"""What the runner says to wrong commands, and how it runs ready programs. Nothing here needs a device."""

import subprocess

import conftest
import pytest


def test_help_shows_an_example_and_the_rules(runner):
    run = runner("--help")
    assert run.returncode == 0
    assert "ops-debug-runner --kernel examples/matmul_kernel.cu --input-shape 1024x1024" in run.stdout
    assert "// ops-debug: block=256" in run.stdout


def test_nothing_to_run(runner):
    run = runner()
    assert run.returncode == 2
    assert "nothing to run" in run.stderr


def test_unknown_option(runner):
    run = runner("--kernel", "k.cu", "--inputshape", "1024")
    assert run.returncode == 2
    assert "inputshape" in run.stderr
    assert "--help" in run.stderr


def test_no_such_file(runner):
    for name in ("missing.cu", "missing.ptx", "missing"):
        run = runner("--kernel", name)
        assert run.returncode == 2
        assert run.stderr.startswith(f"ops-debug-runner: error: no such file: {name}\n  hint: ")


def test_bad_shape(runner):
    run = runner("--kernel", "k.cu", "--input-shape", "12by12")
    assert run.returncode == 2
    assert "--input-shape '12by12' is no shape" in run.stderr


def test_bad_argument(runner):
    run = runner("--kernel", "k.cu", "--arg", "n")
    assert run.returncode == 2
    assert "--arg n: expected NAME=VALUE" in run.stderr


def test_block_given_twice(runner):
    run = runner("--kernel", "k.cu", "--block", "16x16", "--block-size", "256")
    assert run.returncode == 2
    assert "--block and --block-size" in run.stderr


def test_missing_nvcc_names_the_variable(runner):
    run = runner("--kernel", "examples/matmul_kernel.cu", CUDA_HOME="/no/such/toolkit")
    assert run.returncode == 3
    assert "no nvcc: CUDA_HOME is /no/such/toolkit" in run.stderr
    assert "correct or unset CUDA_HOME" in run.stderr


def test_missing_driver_points_to_the_emulator(runner, tmp_path):
    # An unloadable libcuda.so.1 in front, so that the test means the same on a machine with a GPU.
    (tmp_path / "libcuda.so.1").write_text("not a library")
    run = runner("--kernel", "examples/matmul_kernel.cu", LD_LIBRARY_PATH=tmp_path)
    assert run.returncode == 3
    assert "no CUDA driver" in run.stderr
    assert "--device emulator" in run.stderr


def test_malformed_launch_comment_has_its_place(runner, source):
    path = source("\n// ops-debug: block 256\n__global__ void k(int n) {}\n")
    run = runner("--kernel", path)
    assert run.returncode != 0
    assert f"{path}:2: 'block' in the launch comment is not key=value" in run.stderr


def test_ready_program_takes_the_runners_place(runner):
    run = runner("--kernel", "/bin/sh", "--", "-c", "echo out; exit 9")
    assert run.returncode == 9
    assert run.stdout == "out\n"
    assert run.stderr == ""


def test_file_that_is_no_program(runner):
    run = runner("--kernel", "CMakePresets.json")
    assert run.returncode == 2
    assert "neither a CUDA source (.cu), nor PTX (.ptx), nor a program" in run.stderr


def test_runs_where_only_the_c_library_is_installed():
    listed = subprocess.run(
        ["ldd", str(conftest.BUILD / "ops-debug-runner")], capture_output=True, text=True, check=True
    ).stdout
    libraries = {line.split()[0].split("/")[-1] for line in listed.splitlines()}
    if any("asan" in name for name in libraries):
        pytest.skip("a sanitizer build needs its run-time libraries")
    assert libraries <= {
        "linux-vdso.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0",
    }  # fmt: skip


def test_provider_takes_pairs_of_files(runner):
    run = runner("--provider", "k.cu", "request")
    assert run.returncode == 2
    assert "pairs REQUEST RESPONSE" in run.stderr


def test_backward_belongs_to_provider(runner):
    run = runner("--kernel", "k.cu", "--backward", "k2")
    assert run.returncode == 2
    assert "--backward belongs to --provider FILE" in run.stderr
