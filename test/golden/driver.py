"""The CUDA driver API as the golden tests need it, by ctypes.

One module for both devices: the driver of a GPU (libcuda.so.1 of the system) and the CPU device
(build/emulator/libcuda.so.1) have the same entry points, so what is recorded on one runs unchanged
on the other.
"""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

JIT_INFO_LOG_BUFFER, JIT_INFO_LOG_BYTES, JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BYTES = 3, 4, 5, 6
MAX_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
NON_PORTABLE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
LAUNCH_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class CudaError(RuntimeError):
    """A driver call that failed: `name` is CUDA_ERROR_..., `log` the PTX compiler's message."""

    def __init__(self, call, name, log=""):
        super().__init__(f"{call}: {name}" + (f"\n{log}" if log else ""))
        self.name = name
        self.log = log


class _Attribute(ctypes.Structure):
    _fields_ = [("id", c_uint), ("pad", c_uint), ("value", c_uint * 16)]


class _LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", POINTER(_Attribute)),
        ("attribute_count", c_uint),
    ]


class Driver:
    """One device and its primary context. `library` None: the system's driver."""

    def __init__(self, library=None):
        self.path = library or os.environ.get("OPS_DEBUG_GOLDEN_DRIVER") or "libcuda.so.1"
        self.cuda = ctypes.CDLL(self.path)
        self.call("cuInit", c_uint(0))
        self.device = c_int()
        self.call("cuDeviceGet", byref(self.device), c_int(0))
        self.context = c_void_p()
        self.after_launch = []  # what a case still does before its output is read
        self.clean_up = []  # what ends the case: its arrays, textures and surfaces
        self.open()

    def call(self, name, *arguments, log=None):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            text = c_char_p()
            self.cuda.cuGetErrorName(c_int(code), byref(text))
            error = text.value.decode() if text.value else f"error {code}"
            raise CudaError(name, error, log.value.decode(errors="replace") if log else "")

    def open(self):
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def reset(self):
        """After a fault: a context that failed stays failed, so it is replaced."""
        try:
            self.call("cuDevicePrimaryCtxReset_v2", self.device)
        except CudaError:
            self.call("cuDevicePrimaryCtxRelease_v2", self.device)
        self.open()

    def description(self):
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, c_int(256), self.device)
        version = c_int()
        self.call("cuDriverGetVersion", byref(version))
        major, minor = c_int(), c_int()
        self.call("cuDeviceGetAttribute", byref(major), c_int(75), self.device)
        self.call("cuDeviceGetAttribute", byref(minor), c_int(76), self.device)
        return {
            "device": name.value.decode(),
            "compute_capability": f"{major.value}.{minor.value}",
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "driver": _kernel_driver_version(),
        }

    # ---- modules
    def load(self, ptx):
        module = c_void_p()
        log = ctypes.create_string_buffer(16384)
        options = (c_int * 2)(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.cast(log, c_void_p), c_void_p(len(log)))
        image = ctypes.create_string_buffer(ptx.encode())
        self.call("cuModuleLoadDataEx", byref(module), image, c_uint(2), options, values, log=log)
        return module

    def unload(self, module):
        self.call("cuModuleUnload", module)

    def function(self, module, name):
        function = c_void_p()
        self.call("cuModuleGetFunction", byref(function), module, name.encode())
        return function

    # ---- memory
    def allocate(self, size_bytes):
        pointer = c_uint64()
        self.call("cuMemAlloc_v2", byref(pointer), c_size_t(max(size_bytes, 1)))
        return pointer.value

    def free(self, pointer):
        self.call("cuMemFree_v2", c_uint64(pointer))

    def upload(self, array):
        pointer = self.allocate(array.nbytes)
        if array.nbytes:
            self.store(pointer, array)
        return pointer

    def store(self, pointer, array):
        self.call("cuMemcpyHtoD_v2", c_uint64(pointer), c_void_p(array.ctypes.data),
                  c_size_t(array.nbytes))

    def download(self, array, pointer):
        self.call("cuMemcpyDtoH_v2", c_void_p(array.ctypes.data), c_uint64(pointer),
                  c_size_t(array.nbytes))

    # ---- launches
    def launch(self, function, grid, block, arguments, shared_bytes=0, cluster=None):
        """`arguments`: bytes of each kernel parameter, in order."""
        storage = [ctypes.create_string_buffer(a, len(a)) for a in arguments]
        # Parameters that are tensor maps want 64-byte alignment on the host as well.
        pointers = (c_void_p * max(len(storage), 1))(*[_aligned(s, k) for s, k in
                                                       zip(storage, arguments)])
        if shared_bytes > 48 * 1024:
            self.call("cuFuncSetAttribute", function, c_int(MAX_DYNAMIC_SHARED_BYTES),
                      c_int(shared_bytes))
        config = _LaunchConfig()
        config.grid[:] = grid
        config.block[:] = block
        config.shared_bytes = shared_bytes
        attribute = _Attribute()
        if cluster:
            if cluster[0] * cluster[1] * cluster[2] > 8:
                self.call("cuFuncSetAttribute", function, c_int(NON_PORTABLE_CLUSTERS), c_int(1))
            attribute.id = LAUNCH_CLUSTER_DIMENSION
            attribute.value[0:3] = cluster
            config.attributes = ctypes.pointer(attribute)
            config.attribute_count = 1
        self.call("cuLaunchKernelEx", byref(config), function, pointers, None)
        self.call("cuCtxSynchronize")


_kept = {}


def _aligned(storage, data):
    address = ctypes.addressof(storage)
    if len(data) != 128 or address % 64 == 0:
        return address
    larger = ctypes.create_string_buffer(len(data) + 64)
    start = (ctypes.addressof(larger) + 63) // 64 * 64
    ctypes.memmove(start, data, len(data))
    _kept["tensor map"] = larger
    return start


def _kernel_driver_version():
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            words = file.readline().split()
        return next((w for w in words if w[:1].isdigit() and w.count(".") >= 1), "unknown")
    except OSError:
        return "none"
