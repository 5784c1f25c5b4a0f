"""Which source lines a finding of the JSON report names as its own: both sides of a conflict, not where memory was allocated
or a kernel launched."""
import pathlib


def lines_of(entry: dict, source: str) -> list[int]:
    """Lines in the file of that name. An operation of the host has the line of its call, by its stack's first frame there."""

    def first(frames: list[dict]) -> list[int]:
        return [frame["line"] for frame in frames if frame.get("line") and pathlib.Path(frame.get("file", "")).name == source][:1]

    sides = entry.get("accesses") or [entry]
    lines = []
    for side in sides:
        lines += first([side]) or first(side.get("stack", []) or side.get("call", {}).get("stack", []))
    return lines


def waiting_lines_of(entry: dict, source: str) -> list[int]:
    """Lines where threads of a deadlock, or of a barrier that not all reach, wait or left."""
    return [waiter["line"] for waiter in entry.get("waiters", []) if waiter.get("line") and pathlib.Path(waiter.get("file", "")).name == source]
