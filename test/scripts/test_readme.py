"""README.md names files and functions; they must exist."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TRAVEL = README[README.index("## How one fault travels"):README.index("## Architecture")]


def candidates(name):
    """A stop may be named by its file name alone, after its folder was named."""
    return [path for path in ROOT.glob(f"*/**/{name}") if "build" not in path.relative_to(ROOT).parts[0]]


def test_files_that_the_readme_names_exist():
    names = set(re.findall(r"`([a-z_/]+\.(?:cc|cu|h|py|sh|proto|md))`", README)) - {"planted.cu"}
    assert len(names) > 20
    assert [name for name in sorted(names) if not (ROOT / name).exists() and not candidates(name)] == []


def test_functions_on_the_way_of_a_fault_stand_in_their_files():
    stops = re.findall(r"`([a-z_/]+\.(?:cc|cu))`(?:\*\*)?,\s+`(\w+)`", TRAVEL)
    stops += re.findall(r"\*\*`([a-z_/]+\.(?:cc|cu))`, `(\w+)`", TRAVEL)
    assert len(stops) >= 8
    missing = []
    for name, function in stops:
        files = [ROOT / name] if (ROOT / name).exists() else candidates(name)
        if not any(re.search(rf"\b{function}\b", file.read_text()) for file in files):
            missing.append((name, function))
    assert missing == []
