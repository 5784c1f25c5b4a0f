"""What the checkers do not decide yet, by name and with the reason: nothing. Whatever is listed here and is decided after all
makes the test fail, so the table stays true.
"""

# mode ("emulator-exact", "emulator-ptx", "gpu-ptx") -> {regular expression for the whole name: reason}
TABLES: dict[str, dict[str, str]] = {"emulator-exact": {}, "emulator-ptx": {}, "gpu-ptx": {}}


def table(mode: str) -> dict[str, str]:
    return TABLES[mode]
