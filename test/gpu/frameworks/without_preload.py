"""Starts another program with an environment in which LD_PRELOAD is cleared, as some launchers do.

    python without_preload.py PROGRAM ARGUMENTS...
"""
import os
import sys

environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
os.execvpe(sys.argv[1], sys.argv[1:], environment)
