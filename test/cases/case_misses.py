"""What the checkers do not decide yet, by name and with the reason. Whatever is listed and is decided after all makes the
test fail, so the table stays true.
"""

# What the instrumented kernel does not follow. On the CPU device the exact checks, which are the default there, find all of it.
NOT_ON_THE_DEVICE = {
    ("T12_count", "wrong"): "counts of named barriers are not judged on the device",
    ("K21", "wrong"): "on the device a programmatic dependent launch counts as a plain one",
    ("K26", "wrong"): "what an integer atomic does to a float is not followed on the device",
    ("K48", "wrong"): "a deadlock: the kernel itself cannot tell that nobody comes any more",
    ("K49", "wrong"): "a deadlock: the kernel itself cannot tell that nobody comes any more",
    ("K15", "wrong"): "on the device a cp.async counts as done when it is issued: missing waits are not found",
    ("K17_volatile", "wrong"): "volatile accesses count as strong on the device",
    ("K06_refill_by_host", "wrong"): "what the host writes itself is seen on the CPU device only",
    ("K07", "wrong"): "a copy to the host that is pending when its source is freed in stream order is not followed on the device",
    ("K40", "wrong"): "who wrote pinned memory last is known on the CPU device only, so no synchronisation is called redundant",
    ("T14_counter_pair", "wrong"): "accesses to another block's shared memory have no cells on the device",
    ("K42", "wrong"): "local memory has no written state on the device",
    ("K45", "wrong"): "values that pass through shuffles are not followed on the device",
}

# mode ("emulator-exact", "emulator-ptx", "gpu-ptx") -> {(case, "wrong" or "right"): reason}
TABLES: dict[str, dict[tuple[str, str], str]] = {
    "emulator-exact": {},
    "emulator-ptx": NOT_ON_THE_DEVICE,
    # Deadlocks are not run on a GPU at all.
    "gpu-ptx": {key: reason for key, reason in NOT_ON_THE_DEVICE.items() if not reason.startswith("a deadlock")},
}
