"""What the checkers do not decide yet, by name and with the reason. Whatever is listed and is decided after all makes the
test fail, so the table stays true.
"""

# What neither the instrumented kernel nor the replay of its launch on the CPU device finds.
NOT_ON_THE_DEVICE = {
    ("K26", "wrong"): "that memory holds floats shows only in what other kernels do with it",
}

# What the device leaves open, and says so.
UNPROVEN_ON_THE_DEVICE = {
    ("T13", "right"): "two launches that wait for each other: each is run again alone",
    ("T13_counter_pair", "right"): "two launches that wait for each other: each is run again alone",
}

# mode ("emulator-exact", "emulator-ptx", "gpu-ptx") -> {(case, "wrong" or "right"): reason}
TABLES: dict[str, dict[tuple[str, str], str]] = {
    "emulator-exact": {},
    "emulator-ptx": NOT_ON_THE_DEVICE,
    "gpu-ptx": NOT_ON_THE_DEVICE,
}
