"""CUDA arrays, texture objects and surface objects, made by the driver API through ctypes.

An `Image` says what the memory holds and a `Sampling` how a texture reads it. Both are plain data,
so their texts belong to a case's digest. What is made for a case goes to `driver.clean_up`.
"""

import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np

FORMATS = {"u8": 1, "u16": 2, "u32": 3, "s8": 8, "s16": 9, "s32": 10, "f16": 16, "f32": 32}
LAYERED, SURFACE, CUBE, GATHER = 1, 2, 4, 8
READ_AS_INTEGER, NORMALIZED = 1, 2
MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
HOST, DEVICE, ARRAY = 1, 2, 3  # CU_MEMORYTYPE_...


class _ArrayDescriptor(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int),
                ("channels", c_uint), ("flags", c_uint)]


class _Side(ctypes.Structure):
    _fields_ = [("x_bytes", c_size_t), ("y", c_size_t), ("z", c_size_t), ("lod", c_size_t),
                ("type", c_int), ("host", c_void_p), ("device", c_uint64), ("array", c_void_p),
                ("reserved", c_void_p), ("pitch", c_size_t), ("height", c_size_t)]


class _Copy(ctypes.Structure):
    _fields_ = [("source", _Side), ("destination", _Side), ("width_bytes", c_size_t),
                ("height", c_size_t), ("depth", c_size_t)]


class _Linear(ctypes.Structure):
    _fields_ = [("address", c_uint64), ("format", c_int), ("channels", c_uint), ("size", c_size_t)]


class _Pitch(ctypes.Structure):
    _fields_ = [("address", c_uint64), ("format", c_int), ("channels", c_uint), ("width", c_size_t),
                ("height", c_size_t), ("pitch", c_size_t)]


class _Memory(ctypes.Union):
    _fields_ = [("handle", c_void_p), ("linear", _Linear), ("pitch", _Pitch),
                ("reserved", c_int * 32)]


class _Resource(ctypes.Structure):
    _fields_ = [("type", c_int), ("memory", _Memory), ("flags", c_uint)]


class _Texture(ctypes.Structure):
    _fields_ = [("modes", c_int * 3), ("filter", c_int), ("flags", c_uint), ("anisotropy", c_uint),
                ("level_filter", c_int), ("level_bias", c_float), ("level_min", c_float),
                ("level_max", c_float), ("border", c_float * 4), ("reserved", c_int * 12)]


@dataclass(frozen=True)
class Image:
    """0 for a dimension that is not there. `kind`: "array", "mipmap", "linear" or "pitch"."""

    format: str
    channels: int = 1
    width: int = 8
    height: int = 0
    depth: int = 0  # or layers
    layered: bool = False
    cube: bool = False
    gather: bool = False
    kind: str = "array"
    levels: int = 1

    @property
    def texel_bytes(self):
        return self.channels * int(self.format[1:]) // 8

    def shape(self, level=0):
        """Texels of a level: width, rows, slices (at least 1 each)."""
        shrink = (max(self.width >> level, 1), max(self.height >> level, 1))
        return (*shrink, max(self.depth if self.layered or self.cube else self.depth >> level, 1))

    def level_bytes(self, level=0):
        width, height, depth = self.shape(level)
        return width * height * depth * self.texel_bytes

    def total_bytes(self):
        return sum(self.level_bytes(level) for level in range(self.levels))


@dataclass(frozen=True)
class Sampling:
    mode: str = "clamp"
    linear: bool = False
    normalized: bool = False
    as_integer: bool = True
    border: tuple = (0.0, 0.0, 0.0, 0.0)
    linear_levels: bool = False
    level_bias: float = 0.0
    level_min: float = 0.0
    level_max: float = 0.0


def _copy_level(driver, image, level, array, host, to_array):
    width, height, depth = image.shape(level)
    copy = _Copy()
    in_memory, in_array = ((copy.source, copy.destination) if to_array else
                           (copy.destination, copy.source))
    in_memory.type, in_memory.host = HOST, host.ctypes.data
    in_memory.pitch, in_memory.height = width * image.texel_bytes, height
    in_array.type, in_array.array = ARRAY, array
    copy.width_bytes, copy.height, copy.depth = width * image.texel_bytes, height, depth
    driver.call("cuMemcpy3D_v2", byref(copy))


def make_array(driver, image, data, surface=False):
    """The array, or mipmapped array, with the bytes `data`: level after level, rows without gaps."""
    flags = ((LAYERED if image.layered else 0) | (CUBE if image.cube else 0) |
             (GATHER if image.gather else 0) | (SURFACE if surface else 0))
    descriptor = _ArrayDescriptor(image.width, image.height, image.depth, FORMATS[image.format],
                                  image.channels, flags)
    handle = c_void_p()
    if image.kind == "mipmap":
        driver.call("cuMipmappedArrayCreate", byref(handle), byref(descriptor), c_uint(image.levels))
        driver.clean_up.append(lambda: driver.call("cuMipmappedArrayDestroy", handle))
    else:
        driver.call("cuArray3DCreate_v2", byref(handle), byref(descriptor))
        driver.clean_up.append(lambda: driver.call("cuArrayDestroy", handle))
    at = 0
    for level in range(image.levels):
        array = handle
        if image.kind == "mipmap":
            array = c_void_p()
            driver.call("cuMipmappedArrayGetLevel", byref(array), handle, c_uint(level))
        part = np.ascontiguousarray(data[at:at + image.level_bytes(level)])
        _copy_level(driver, image, level, array, part, to_array=True)
        at += image.level_bytes(level)
    return handle


def read_array(driver, image, array):
    data = np.zeros(image.level_bytes(), np.uint8)
    _copy_level(driver, image, 0, array, data, to_array=False)
    return data


def _resource(driver, image, data):
    resource = _Resource()
    if image.kind in ("array", "mipmap"):
        resource.type = 0 if image.kind == "array" else 1
        resource.memory.handle = make_array(driver, image, data)
        return resource
    pitch = image.width * image.texel_bytes
    if image.kind == "pitch":
        pitch = (pitch + 511) // 512 * 512
        rows = np.zeros((image.height, pitch), np.uint8)
        rows[:, :image.width * image.texel_bytes] = data.reshape(image.height, -1)
        data = rows.reshape(-1)
    address = driver.upload(np.ascontiguousarray(data))
    driver.clean_up.append(lambda: driver.free(address))
    if image.kind == "linear":
        resource.type = 2
        resource.memory.linear = _Linear(address, FORMATS[image.format], image.channels, len(data))
    else:
        resource.type = 3
        resource.memory.pitch = _Pitch(address, FORMATS[image.format], image.channels, image.width,
                                       image.height, pitch)
    return resource


def make_texture(driver, image, sampling, data):
    resource = _resource(driver, image, data)
    texture = _Texture()
    texture.modes[:] = [MODES[sampling.mode]] * 3
    texture.filter = int(sampling.linear)
    texture.flags = ((READ_AS_INTEGER if sampling.as_integer else 0) |
                     (NORMALIZED if sampling.normalized else 0))
    texture.level_filter = int(sampling.linear_levels)
    texture.level_bias = sampling.level_bias
    texture.level_min, texture.level_max = sampling.level_min, sampling.level_max
    texture.border[:] = sampling.border
    handle = c_uint64()
    driver.call("cuTexObjectCreate", byref(handle), byref(resource), byref(texture), None)
    driver.clean_up.append(lambda: driver.call("cuTexObjectDestroy", handle))
    return handle.value


def make_surface(driver, image, data):
    """(handle, array)"""
    array = make_array(driver, image, data, surface=True)
    resource = _Resource()
    resource.memory.handle = array
    handle = c_uint64()
    driver.call("cuSurfObjectCreate", byref(handle), byref(resource))
    driver.clean_up.append(lambda: driver.call("cuSurfObjectDestroy", handle))
    return handle.value, array
