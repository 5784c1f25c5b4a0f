"""Stands in for RMM: memory resources with RMM's names."""
from rmm import mr  # noqa: F401
