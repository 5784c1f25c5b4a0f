"""Tensor maps by cuTensorMapEncode*, as bytes of a kernel parameter."""

import ctypes
from ctypes import c_int, c_uint32, c_uint64, c_void_p

TYPES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8,
         "bf16": 9, "f32.ftz": 10, "tf32": 11, "tf32.ftz": 12}
BYTES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f64": 8,
         "bf16": 2, "f32.ftz": 4, "tf32": 4, "tf32.ftz": 4}


def _aligned_map():
    storage = ctypes.create_string_buffer(256)
    return storage, (ctypes.addressof(storage) + 127) // 128 * 128


def _array(kind, values):
    return (kind * max(len(values), 1))(*values)


def dense_strides(kind, sizes):
    """Bytes between neighbours of dimensions 1 and up, rows padded to 16 bytes."""
    strides, step = [], (sizes[0] * BYTES[kind] + 15) // 16 * 16
    for size in sizes[1:]:
        strides.append(step)
        step *= size
    return strides


def tiled(driver, address, kind, sizes, box, *, strides=None, steps=None, interleave=0, swizzle=0,
          fill=0):
    storage, place = _aligned_map()
    rank = len(sizes)
    driver.call("cuTensorMapEncodeTiled", c_void_p(place), c_int(TYPES[kind]), c_uint32(rank),
                c_void_p(address), _array(c_uint64, sizes),
                _array(c_uint64, strides or dense_strides(kind, sizes)), _array(c_uint32, box),
                _array(c_uint32, steps or [1] * rank), c_int(interleave), c_int(swizzle), c_int(0),
                c_int(fill))
    return ctypes.string_at(place, 128) if storage else b""


def im2col(driver, address, kind, sizes, lower, upper, channels, pixels, *, strides=None, steps=None,
           interleave=0, swizzle=0, fill=0):
    storage, place = _aligned_map()
    rank = len(sizes)
    driver.call("cuTensorMapEncodeIm2col", c_void_p(place), c_int(TYPES[kind]), c_uint32(rank),
                c_void_p(address), _array(c_uint64, sizes),
                _array(c_uint64, strides or dense_strides(kind, sizes)), _array(c_int, lower),
                _array(c_int, upper), c_uint32(channels), c_uint32(pixels),
                _array(c_uint32, steps or [1] * rank), c_int(interleave), c_int(swizzle), c_int(0),
                c_int(fill))
    return ctypes.string_at(place, 128) if storage else b""
