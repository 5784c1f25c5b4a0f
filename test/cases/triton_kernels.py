"""Launches Triton's kernels of the PTX corpus through the driver API: `python3 triton_kernels.py FOLDER [NAME...]`.

The folder holds triton_*.ptx: matrix products in three types and tile sizes, attention, softmax, layer norm, scan, histogram.
Prints one line per kernel. Run under `ops-debug run` it is a program whose kernels are right.
"""
import ctypes
import pathlib
import re
import struct
import sys

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
SHARED_BYTES = 224 * 1024
BUFFER_BYTES = 1 << 20


def driver_call(driver, name, *arguments):
    status = getattr(driver, name)(*arguments)
    if status != 0:
        sys.exit(f"{name}: error {status}")


def plan(name: str) -> tuple[tuple[int, int], list, list[int]]:
    """Grid; parameters (b: a buffer, else a number); bytes per element of each buffer."""
    if "matmul" in name:
        m, n, k = map(int, re.search(r"_(\d+)x(\d+)x(\d+)", name).groups())
        element = 4 if "_f32_" in name else 2
        # Two tiles each way and three along k, the last one partly masked where the kernel masks.
        return (2, 2), ["b", "b", "b", 2 * m, 2 * n, 3 * k], [element] * 3
    return {
        "triton_attention": ((2, 2), ["b", "b", "b", "b", 128, 0.125], [2] * 4),
        "triton_softmax": ((3, 1), ["b", "b", 100], [4] * 2),
        "triton_layernorm": ((3, 1), ["b", "b", "b", "b", 100, 1e-5], [4] * 4),
        "triton_scan": ((1, 1), ["b", "b", 100], [4] * 2),
        "triton_histogram": ((2, 1), ["b", "b", 1000], [4] * 2),
    }[name]


def main() -> int:
    folder, chosen = pathlib.Path(sys.argv[1]), sys.argv[2:]
    driver = ctypes.CDLL("libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    driver_call(driver, "cuInit", 0)
    driver_call(driver, "cuDeviceGet", ctypes.byref(device), 0)
    driver_call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver_call(driver, "cuCtxSetCurrent", context)
    for path in sorted(folder.glob("triton_*.ptx")):
        if chosen and path.stem not in chosen:
            continue
        text = path.read_bytes()
        entry = re.search(rb"\.entry (\w+)\(", text).group(1)
        threads = int(re.search(rb"\.reqntid (\d+)", text).group(1))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        driver_call(driver, "cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text + b"\0"))
        driver_call(driver, "cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(entry))
        driver_call(driver, "cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, SHARED_BYTES)
        grid, wanted, elements = plan(path.stem)
        one = {2: struct.pack("<H", 0x3C00), 4: struct.pack("<f", 1.0)}
        parameters, buffers = [], []
        for value in [*wanted, 0, 0]:  # Triton adds two pointers for scratch memory
            if value == "b":
                buffer = ctypes.c_uint64()
                driver_call(driver, "cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(BUFFER_BYTES))
                fill = ctypes.create_string_buffer(one[elements[len(buffers)]] * (BUFFER_BYTES // elements[len(buffers)]), BUFFER_BYTES)
                if path.stem == "triton_histogram":
                    fill = ctypes.create_string_buffer(BUFFER_BYTES)
                driver_call(driver, "cuMemcpyHtoD_v2", buffer, fill, ctypes.c_size_t(BUFFER_BYTES))
                buffers.append(buffer)
                parameters.append(buffer)
            else:
                parameters.append(ctypes.c_float(value) if isinstance(value, float) else ctypes.c_uint64(value) if len(parameters) >= len(wanted)
                                  else ctypes.c_int(value))
        pointers = (ctypes.c_void_p * len(parameters))(*[ctypes.cast(ctypes.pointer(p), ctypes.c_void_p) for p in parameters])
        driver_call(driver, "cuLaunchKernel", function, *grid, 1, threads, 1, 1, SHARED_BYTES, None, pointers, None)
        driver_call(driver, "cuCtxSynchronize")
        result = (ctypes.c_uint32 * 4)()
        driver_call(driver, "cuMemcpyDtoH_v2", result, buffers[1 if len(wanted) == 3 else len(buffers) - 1], ctypes.c_size_t(16))
        print(path.stem, *[f"{value:08x}" for value in result])
        for buffer in buffers:
            driver_call(driver, "cuMemFree_v2", buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
