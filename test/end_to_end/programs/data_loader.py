"""A training script in small, without a framework: it computes on the device through ctypes while worker processes
prepare data. data_loader.py METHOD [uses]: METHOD is fork, spawn or forkserver; with `uses` the workers compute, too."""
import ctypes
import multiprocessing
import sys

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.ge.s32 %p1, %r2, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r2, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r2;
done:
  ret;
}
"""


def check(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"CUDA error {code}")


def compute(written: int) -> int:
    """Fills 100 elements, and more if told so; returns their sum."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function, out = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    check(driver.cuInit(0))
    check(driver.cuDeviceGet(ctypes.byref(device), 0))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(driver.cuCtxSetCurrent(context))
    check(driver.cuModuleLoadData(ctypes.byref(module), PTX))
    check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"fill"))
    check(driver.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(400)))
    n = ctypes.c_int(written)
    parameters = (ctypes.c_void_p * 2)(ctypes.cast(ctypes.byref(out), ctypes.c_void_p),
                                       ctypes.cast(ctypes.byref(n), ctypes.c_void_p))
    check(driver.cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, None, parameters, None))
    check(driver.cuCtxSynchronize())
    result = (ctypes.c_int * 100)()
    check(driver.cuMemcpyDtoH_v2(result, out, ctypes.c_size_t(400)))
    return sum(result)


def prepare(batch: int) -> int:
    return batch * batch


def main() -> None:
    method, uses = sys.argv[1], "uses" in sys.argv[2:]
    context = multiprocessing.get_context(method)
    print("before", compute(100))
    with context.Pool(4) as workers:  # leaving the block ends them by SIGTERM
        print("batches", sum(workers.map(prepare, range(100))))
        if uses:
            print("workers", sorted(workers.map(compute, [101] * 2, chunksize=1)))
            workers.close()
            workers.join()
    print("after", compute(100))


if __name__ == "__main__":
    main()
