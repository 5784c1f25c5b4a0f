"""A micro-kernel of the matrix: a few lines of CUDA whose verdict follows from how they are put together.

A line that ends in `//!` is one of the accesses (or barriers) that a report of a wrong kernel must name; one that ends in
`//?` may be named besides (the flag of a broken flag pattern races like the data it guards).
"""
import dataclasses
import pathlib

REQUIRED, ALLOWED = "//!", "//?"

# What a conflict is called, by where the two threads are and where the bytes are.
CONFLICT = {"lanes": {"shared": "missing-warp-sync", "global": "missing-warp-sync"},
            "warps": {"shared": "race-shared", "global": "race-global"},
            "blocks": {"shared": "race-shared", "global": "race-global"}}


@dataclasses.dataclass
class Micro:
    name: str
    body: list[str]  # between the braces of the kernel; a line may hold several of text
    wrong: bool
    kinds: list[str] = dataclasses.field(default_factory=list)  # of a wrong kernel: any of them
    grid: int = 1
    block: int = 32
    cluster: int = 1
    shared_bytes: int = 0
    cooperative: bool = False
    benign: bool = False  # right; a note is welcome
    alone: bool = False  # its fault ends the context: a process of its own
    # Without marks (a fault of host order, a read of memory that the host left unwritten) any line of the kernel will do.
    data: str = "zeros"  # what `data` holds before the launch: zeros, nothing

    def lines(self) -> list[str]:
        return [line for text in self.body for line in text.split("\n") if line.strip()]


@dataclasses.dataclass
class Expectation:
    """What the generator writes to matrix.json for each kernel."""
    name: str
    program: str
    wrong: bool
    kinds: list[str]
    required: list[int]
    allowed: list[int]
    first_line: int
    last_line: int
    benign: bool
    alone: bool

    def verdict_word(self) -> str:
        """How the program calls all kernels of this verdict."""
        return "wrong" if self.wrong else "right"



def write_if_changed(path: pathlib.Path, text: str) -> None:
    """An unchanged source keeps its time, so that its program need not be compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
