"""Reads and writes .safetensors with NumPy alone: a provider must start in any Python that has the operator's packages,
and the format is a length, a JSON header and the bytes.

Two extensions are ops-debug's own: the type C128, and metadata "dtype.NAME" = "tf32" for float32 that was rounded so.
"""

import json
import os
import struct

import numpy

# The file's code -> NumPy's and PyTorch's name. NumPy has no type for the last three; ml_dtypes lends it some.
CODES = {
    "BOOL": "bool",
    "I8": "int8",
    "U8": "uint8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "C128": "complex128",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
NAMES = {name: code for code, name in CODES.items()}
BYTES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


class Tensor:
    """`dtype` is a value of CODES; `data` its elements, row-major, little-endian."""

    def __init__(self, name, dtype, shape, data):
        self.name = name
        self.dtype = dtype
        self.shape = tuple(shape)
        self.data = data

    def is_floating(self):
        return self.dtype.startswith(("float", "bfloat", "complex"))


def numpy_dtype(name):
    """None: NumPy cannot hold it here."""
    if name not in BYTES:
        return numpy.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return None
    return numpy.dtype(getattr(ml_dtypes, name))


def element_bytes(name):
    return BYTES.get(name) or numpy.dtype(name).itemsize


def read(path):
    """([Tensor], metadata) in the order of the file. ValueError: what is wrong with it."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        (length,) = struct.unpack_from("<Q", content)
        if 8 + length > len(content):
            raise ValueError("the header has %d bytes, the file %d" % (length, len(content)))
        header = json.loads(content[8 : 8 + length].decode("utf-8"))
        metadata = header.pop("__metadata__", {})
        tensors = []
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            dtype = CODES[entry["dtype"]]
            data = content[8 + length + begin : 8 + length + end]
            count = 1
            for size in entry["shape"]:
                count *= size
            if len(data) != count * element_bytes(dtype):
                raise ValueError("%s has %d bytes for shape %s of %s" % (name, len(data), entry["shape"], dtype))
            tensors.append(Tensor(name, dtype, entry["shape"], data))
    except (struct.error, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("%s is no whole .safetensors file: %s" % (path, error)) from None
    return tensors, metadata


def write(path, tensors, metadata):
    header = {"__metadata__": {key: str(value) for key, value in metadata.items()}}
    offset = 0
    for tensor in tensors:
        header[tensor.name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(tensor.data)],
        }
        offset += len(tensor.data)
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    unfinished = "%s.%d" % (path, os.getpid())
    with open(unfinished, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for tensor in tensors:
            file.write(tensor.data)
    os.replace(unfinished, path)
