"""The project's own source files, as the check scripts see them: tracked and new ones, never ignored ones."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP_SUFFIXES = (".cc", ".h")
CODE_SUFFIXES = (".cc", ".h", ".cu", ".cuh", ".py", ".sh", ".cmake", ".proto")


def _git(root, *arguments):
    run = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return run.stdout


def source_files(suffixes, root=ROOT):
    """Paths relative to `root`, sorted, of the files that exist now and end in one of `suffixes`."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sorted(path for path in set(listed) if path.endswith(tuple(suffixes)) and (root / path).is_file())


def changed_files(suffixes, root=ROOT):
    """Those of source_files() that differ from where this work began: the merge base with origin's main branch, else
    the commit before the last; without any such commit, all of them."""
    for candidate in ("origin/HEAD", "origin/main", "HEAD~1"):
        try:
            base = _git(root, "merge-base", "HEAD", candidate).strip()
            if base and (candidate == "HEAD~1" or base != _git(root, "rev-parse", "HEAD").strip()):
                break
        except subprocess.CalledProcessError:
            continue
    else:
        return source_files(suffixes, root)
    changed = set(_git(root, "diff", "--name-only", "-z", base).split("\0"))
    changed |= set(_git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0"))
    return [path for path in source_files(suffixes, root) if path in changed]
