"""One line that two runs of a program can be compared by: a hash over the bytes of arrays, and their sums to read."""
import hashlib

import numpy


def print_digest(name: str, *arrays) -> None:
    hashed = hashlib.sha256()
    sums = []
    for array in arrays:
        array = array.detach().float().cpu().numpy() if hasattr(array, "detach") else array
        array = numpy.ascontiguousarray(array.get() if hasattr(array, "get") else array)
        hashed.update(str(array.shape).encode() + array.tobytes())
        sums.append(f"{array.astype(numpy.float64).sum():.9g}")
    print(f"digest {name} {hashed.hexdigest()[:16]} sums {' '.join(sums)}", flush=True)
