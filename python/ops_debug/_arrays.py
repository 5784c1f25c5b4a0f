"""Tensors of a request as arrays of the framework that an operator is written in, and back."""

import numpy

from ops_debug._safetensors import BYTES, Tensor, numpy_dtype


class Cannot(Exception):
    """What this provider cannot do, in one line that says what would help (kProviderCannot)."""


def _decoded(tensor):
    """float64 values of the types that NumPy lacks: OCP's 8-bit formats and bfloat16."""
    if tensor.dtype == "bfloat16":
        bits = numpy.frombuffer(tensor.data, "<u2").astype("<u4") << 16
        return bits.view("<f4").astype(numpy.float64)
    exponent_bits, mantissa_bits = {"float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}[tensor.dtype]
    bits = numpy.arange(256)
    exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
    fraction = (bits & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    bias = (1 << exponent_bits - 1) - 1
    table = numpy.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if tensor.dtype == "float8_e5m2":
        special = exponent == 31
        table[special] = numpy.where(fraction[special] == 0, numpy.inf, numpy.nan)
    else:
        table[bits & 127 == 127] = numpy.nan
    table = numpy.where(bits >= 128, -table, table)
    return table[numpy.frombuffer(tensor.data, "u1")]


class Numpy:
    """`float64`: floating elements are upcast."""

    name = "NumPy"

    def array(self, tensor, float64):
        dtype = numpy_dtype(tensor.dtype)
        if tensor.dtype in BYTES and float64:
            return _decoded(tensor).reshape(tensor.shape)
        if dtype is None:
            raise Cannot(
                "NumPy has no %s: install ml_dtypes, or pass --dtype float32 or float16" % tensor.dtype
            )
        array = numpy.frombuffer(tensor.data, dtype).reshape(tensor.shape).copy()
        if float64 and tensor.is_floating():
            return array.astype(numpy.complex128 if array.dtype.kind == "c" else numpy.float64)
        return array

    def owns(self, value):
        return isinstance(value, (numpy.ndarray, numpy.generic, bool, int, float, complex))

    def tensor(self, name, array):
        array = numpy.asarray(array)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        return Tensor(name, array.dtype.name, array.shape, array.tobytes())

    def seed(self, number):
        numpy.random.seed(number % 2**32)


class Cupy(Numpy):
    name = "CuPy"

    def __init__(self):
        import cupy

        self.cupy = cupy

    def array(self, tensor, float64):
        return self.cupy.asarray(super().array(tensor, float64))

    def owns(self, value):
        return isinstance(value, self.cupy.ndarray) or super().owns(value)

    def tensor(self, name, array):
        return super().tensor(name, self.cupy.asnumpy(array))


class Jax(Numpy):
    name = "JAX"

    def __init__(self):
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax = jax

    def array(self, tensor, float64):
        return self.jax.numpy.asarray(super().array(tensor, float64))

    def owns(self, value):
        return isinstance(value, self.jax.Array) or super().owns(value)

    def tensor(self, name, array):
        return super().tensor(name, numpy.asarray(array))


class Torch:
    name = "PyTorch"

    def __init__(self, device="cpu"):
        import torch

        self.torch = torch
        # "auto": a GPU if this PyTorch sees one.
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device

    def array(self, tensor, float64):
        torch = self.torch
        dtype = getattr(torch, tensor.dtype, None)
        if dtype is None:
            raise Cannot("PyTorch %s has no %s: pass another --dtype" % (torch.__version__, tensor.dtype))
        if tensor.data:
            array = torch.frombuffer(bytearray(tensor.data), dtype=dtype).reshape(tensor.shape)
        else:
            array = torch.empty(tensor.shape, dtype=dtype)
        if float64 and tensor.is_floating():
            array = array.to(torch.complex128 if dtype.is_complex else torch.float64)
        return array.to(self.device)

    def owns(self, value):
        return isinstance(value, (self.torch.Tensor, bool, int, float, complex))

    def tensor(self, name, array):
        torch = self.torch
        array = torch.as_tensor(array).detach().cpu().contiguous()
        dtype = str(array.dtype).replace("torch.", "")
        shape = tuple(array.shape)
        if array.numel() == 0:
            return Tensor(name, dtype, shape, b"")
        return Tensor(name, dtype, shape, array.reshape(-1).view(torch.uint8).numpy().tobytes())

    def seed(self, number):
        self.torch.manual_seed(number)
