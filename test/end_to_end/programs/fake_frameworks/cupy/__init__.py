"""Stands in for CuPy: its pool and its memory hooks, with CuPy's names and rules."""
from cupy import cuda  # noqa: F401
