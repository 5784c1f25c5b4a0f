"""What the check scripts accept and refuse."""

import pathlib
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import check_includes  # noqa: E402
import check_lint  # noqa: E402
import check_sizes  # noqa: E402
import project_files  # noqa: E402


@pytest.mark.parametrize(
    "path, include",
    [
        ("ptx/parser.cc", '#include "ptx/ir.h"'),
        ("ptx/parser.cc", "#include <vector>"),
        ("shadow/passes/a.cc", '#include "ptx/ir.h"'),
        ("shadow/passes/a.cc", '#include "shadow/abi/device_abi.h"'),
        ("interposer/a.cc", '#include "shadow/host/book.h"'),
        ("analysis/a.cc", '#include "shadow/abi/device_abi.h"'),
        ("analysis/a.cc", '#include "absl/status/statusor.h"'),
        ("test/ptx/a.cc", '#include "analysis/reader.h"'),
    ],
)
def test_allowed_include(path, include):
    assert list(check_includes.problems_of(path, include)) == []


@pytest.mark.parametrize(
    "path, include, message",
    [
        ("ptx/a.cc", '#include "shadow/abi/device_abi.h"', "ptx/ may not include shadow/abi/device_abi.h"),
        ("proto/a.cc", '#include "ptx/ir.h"', "nothing of ours"),
        ("analysis/a.cc", '#include "shadow/passes/instrument.h"', "it may include: proto, ptx, shadow/abi"),
        ("shadow/abi/a.h", '#include "shadow/passes/instrument.h"', "shadow/abi/ may not include"),
        ("launcher/a.cc", '  #  include "ptx/ir.h"', "launcher/ may not include ptx/ir.h"),
        ("interposer/a.cc", "#include <google/protobuf/message.h>", "inside the target process"),
        ("emulator/driver/a.cc", '#include "absl/status/status.h"', "inside the target process"),
        ("interposer/a.cc", '#include "proto/events.pb.h"', "inside the target process"),
    ],
)
def test_refused_include(path, include, message):
    problems = list(check_includes.problems_of(path, "#include <string>\n" + include))
    assert len(problems) == 1
    assert message in problems[0]
    assert problems[0].startswith(f"{path}:2: ")


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / ".gitignore").write_text("ignored.cc\n")
    (tmp_path / "old.cc").write_text("int old;\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (tmp_path / "second.cc").write_text("int second;\n")
    git("add", ".")
    git("commit", "-q", "-m", "second")
    return tmp_path


def test_source_files_are_tracked_or_new_but_not_ignored_or_deleted(repository):
    (repository / "new.cc").write_text("")
    (repository / "ignored.cc").write_text("")
    (repository / "old.cc").unlink()
    assert project_files.source_files((".cc",), repository) == ["new.cc", "second.cc"]


def test_changed_files_are_those_since_the_commit_before_the_last(repository):
    (repository / "new.cc").write_text("")
    assert project_files.changed_files((".cc",), repository) == ["new.cc", "second.cc"]


def test_long_file_is_named_with_its_length(repository):
    (repository / "long.cc").write_text("int x;\n" * 801)
    (repository / "right.cc").write_text("int x;\n" * 800)
    assert list(check_sizes.too_long(repository)) == ["long.cc: 801 lines; split it by idea (limit 800)"]


def test_lint_findings_are_named_and_clangs_own_limits_are_none():
    output = (
        "/p/a.cc:12:15: error: using decl 'A' is unused [misc-unused-using-decls,-warnings-as-errors]\n"
        "using shadow::A;\n"
        "/p/b.cc:67:26: error: variable does not have a constant initializer [clang-diagnostic-error]\n"
    )
    assert check_lint.findings_of(output) == {"misc-unused-using-decls"}
    assert check_lint.findings_of(output.splitlines()[2]) == set()
