"""What ops-debug adds to a Python program that runs under it: adapters that tell it which blocks the memory pools of
CuPy and RMM hand out. They install themselves when the framework is imported; there is nothing to call."""
