"""Runs cases on a device and says what came out, or why nothing did."""

import struct

import numpy as np

from case import key_of, module_text, modules
from driver import CudaError


def run_case(driver, function, case):
    pointers = [driver.upload(np.ascontiguousarray(a)) for a in case.inputs]
    output = driver.upload(case.output)
    try:
        if case.parameters is not None:
            arguments = case.parameters(driver, pointers, output)
        else:
            arguments = [struct.pack("<Q", p) for p in [*pointers, output]]
        driver.launch(function, case.grid, case.block, arguments, case.shared_bytes, case.cluster)
        while driver.after_launch:
            driver.after_launch.pop()()
        result = np.empty_like(case.output)
        driver.download(result, output)
        return result
    finally:
        driver.after_launch.clear()
        try:
            while driver.clean_up:
                driver.clean_up.pop()()
            for pointer in [*pointers, output]:
                driver.free(pointer)
        except CudaError:
            driver.clean_up.clear()  # the context is broken; the caller replaces it


def run_cases(driver, cases):
    """Yields (case, output array or None, reason)."""
    for text, members in modules(cases):
        yield from _run_module(driver, text, members)


def _run_module(driver, text, members):
    try:
        module = driver.load(text)
    except CudaError as error:
        if len(members) == 1:
            yield members[0], None, str(error).strip()
            return
        # One bad kernel spoils a module: halve until it is alone.
        half = len(members) // 2
        for part in (members[:half], members[half:]):
            yield from _run_module(driver, module_text(key_of(part[0]), part), part)
        return
    for index, case in enumerate(members):
        try:
            yield case, run_case(driver, driver.function(module, case.symbol), case), ""
        except CudaError as error:
            yield case, None, str(error).strip()
            driver.reset()
            rest = members[index + 1:]
            if rest:
                yield from _run_module(driver, module_text(key_of(rest[0]), rest), rest)
            return
    driver.unload(module)
