"""Recorded results on disk: data/<family>.xz.

LZMA over a JSON header (provenance; per case its digest and the length of its output), a newline,
and the outputs one after the other. The same results give the same bytes.
"""

import json
import lzma
import pathlib

import numpy as np

DATA = pathlib.Path(__file__).resolve().parent / "data"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 24}]


def _planes(array):
    """Byte planes: all low bytes, then the next ones. Compresses better than whole words."""
    width = array.dtype.itemsize
    return np.frombuffer(array.tobytes(), np.uint8).reshape(-1, width).T.tobytes()


def _from_planes(data, dtype):
    width = np.dtype(dtype).itemsize
    return np.frombuffer(data, np.uint8).reshape(width, -1).T.tobytes()


def pack(provenance, results):
    """`results`: list of (case, output array)."""
    rows, blobs = [], []
    for case, output in results:
        rows.append([case.name, case.digest(), output.nbytes])
        blobs.append(_planes(output))
    header = json.dumps({"provenance": provenance, "cases": rows}, separators=(",", ":"))
    return lzma.compress(header.encode() + b"\n" + b"".join(blobs), format=lzma.FORMAT_XZ,
                         check=lzma.CHECK_CRC32, filters=FILTERS)


class Recorded:
    """Results of one family by case name."""

    def __init__(self, data):
        text = lzma.decompress(data)
        end = text.index(b"\n")
        header = json.loads(text[:end])
        self.provenance = header["provenance"]
        self._rows = {}
        offset = end + 1
        for name, digest, size in header["cases"]:
            self._rows[name] = (digest, text[offset:offset + size])
            offset += size

    @classmethod
    def of_family(cls, family, folder=DATA):
        """None if the family was never recorded."""
        path = pathlib.Path(folder) / f"{family}.xz"
        return cls(path.read_bytes()) if path.exists() else None

    def names(self):
        return set(self._rows)

    def digest(self, case):
        return self._rows[case.name][0] if case.name in self._rows else None

    def output(self, case):
        return np.frombuffer(_from_planes(self._rows[case.name][1], case.output.dtype),
                             case.output.dtype)
