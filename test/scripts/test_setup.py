"""scripts/setup.sh on machines that lack something, played by stand-ins for apt-get, dpkg-query and pip."""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class Machine:
    """A copy of setup.sh in a folder of its own, with commands of our own in front of PATH."""

    def __init__(self, folder):
        self.root = folder / "project"
        self.commands = folder / "commands"
        self.calls = folder / "calls"
        self.commands.mkdir()
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(SCRIPTS / "setup.sh", self.root / "scripts")
        self.command("sudo", 'exec "$@"')
        self.command("nvcc", "exit 1")
        self.command("apt-get", f'echo "apt-get $*" >>{self.calls}')
        self.all_packages_installed_but()

    def command(self, name, text):
        path = self.commands / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def all_packages_installed_but(self, *missing):
        names = "|".join(missing) or "none"
        self.command(
            "dpkg-query",
            f'for p in "${{@:3}}"; do case $p in {names}) ;; *) echo "installed $p" ;; esac; done',
        )

    def toolkit(self, name, version):
        home = self.root.parent / name
        (home / "bin").mkdir(parents=True)
        (home / "include").mkdir()
        (home / "bin" / "nvcc").write_text("#!/bin/sh\n")
        (home / "bin" / "nvcc").chmod(0o755)
        (home / "include" / "cuda.h").write_text(f"#define CUDA_VERSION {version}\n")
        return home

    def setup(self, *arguments, **variables):
        environment = {"PATH": f"{self.commands}:/usr/bin:/bin", "HOME": str(self.root), **variables}
        return subprocess.run(
            ["bash", str(self.root / "scripts" / "setup.sh"), *arguments],
            env={name: str(value) for name, value in environment.items()},
            capture_output=True,
            text=True,
        )

    def called(self):
        return self.calls.read_text() if self.calls.exists() else ""


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_nothing_missing_is_silent(machine):
    run = machine.setup("--tests", CUDA_HOME=machine.toolkit("cuda", 13000))
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert machine.called() == ""


def test_only_missing_packages_are_installed(machine):
    machine.all_packages_installed_but("ninja-build", "ccache")
    run = machine.setup(CUDA_HOME=machine.toolkit("cuda", 13000))
    assert run.returncode == 0
    assert run.stdout == ""
    assert run.stderr == "ops-debug set-up: installing ninja-build ccache\n"
    assert machine.called().rstrip().endswith("install ninja-build ccache")


def test_a_failed_installation_is_tried_again_after_an_update(machine):
    machine.all_packages_installed_but("ccache")
    machine.command(
        "apt-get",
        f'echo "$*" >>{machine.calls}; [[ $* == *update* ]] || grep -q update {machine.calls} || exit 100',
    )
    assert machine.setup(CUDA_HOME=machine.toolkit("cuda", 13000)).returncode == 0
    assert [line.split()[-1] for line in machine.called().splitlines()] == ["ccache", "update", "ccache"]


def test_packages_that_cannot_be_installed_are_named(machine):
    machine.all_packages_installed_but("ccache")
    machine.command("apt-get", "echo 'E: no such luck' >&2; [[ $* == *update* ]]")
    run = machine.setup(CUDA_HOME=machine.toolkit("cuda", 13000))
    assert run.returncode == 3
    assert "E: no such luck" in run.stderr
    assert "Try by hand: apt-get install ccache" in run.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root needs no sudo")
def test_without_root_and_sudo_the_command_is_shown(machine):
    (machine.commands / "sudo").unlink()
    machine.all_packages_installed_but("ccache")
    if shutil.which("sudo"):
        pytest.skip("this machine has sudo")
    run = machine.setup(CUDA_HOME=machine.toolkit("cuda", 13000))
    assert run.returncode == 3
    assert "As root: apt-get install ccache" in run.stderr


def fake_pip(machine):
    """A Python whose pip lays out what the toolkit's wheels lay out."""
    machine.command(
        "fake-python",
        f'[[ $* == *--version ]] && exit 0; echo "pip $*" >>{machine.calls}\n'
        'while [[ $1 != --target ]]; do shift; done; root=$2/nvidia/cu13\n'
        'mkdir -p $root/bin $root/lib $root/include; echo "#define CUDA_VERSION 13000" >$root/include/cuda.h\n'
        "touch $root/bin/nvcc $root/lib/libcudart.so.13 $root/include/sanitizer_patching.h; chmod +x $root/bin/nvcc",
    )
    return {"OPS_DEBUG_PYTHON": machine.commands / "fake-python"}


def test_an_older_toolkit_is_passed_over_and_one_is_fetched(machine):
    if pathlib.Path("/usr/local/cuda").exists():
        variables = {"OPS_DEBUG_TOOLKIT": "pypi"}
    else:
        variables = {"CUDA_HOME": machine.toolkit("cuda", 12040)}
    run = machine.setup(**variables, **fake_pip(machine))
    assert run.returncode == 0, run.stderr
    assert "fetching CUDA 13.0 from PyPI" in run.stderr
    assert "nvidia-cuda-nvcc==13.0" in machine.called()
    toolkit = machine.root / "build" / "toolkit"
    assert (toolkit / "lib64" / "libcudart.so").resolve().name == "libcudart.so.13"


def test_a_fetched_toolkit_is_not_fetched_again(machine):
    variables = {"OPS_DEBUG_TOOLKIT": "pypi", **fake_pip(machine)}
    machine.setup(**variables)
    calls = machine.called()
    run = machine.setup(**variables)
    assert (run.returncode, run.stderr) == (0, "")
    assert machine.called() == calls


def test_a_failed_download_says_what_to_do(machine):
    machine.command("fake-python", "[[ $* == *--version ]] && exit 0; echo 'ERROR: offline' >&2; exit 1")
    run = machine.setup(OPS_DEBUG_TOOLKIT="pypi", OPS_DEBUG_PYTHON=machine.commands / "fake-python")
    assert run.returncode == 3
    assert "ERROR: offline" in run.stderr
    assert "set CUDA_HOME" in run.stderr


def test_unknown_option(machine):
    run = machine.setup("--everything")
    assert run.returncode == 2
    assert "known: --tests, --fuzz, --frameworks, --browser" in run.stderr
