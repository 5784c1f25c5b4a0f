"""The driver API by ctypes: just enough for the stand-ins of frameworks in this folder."""
import ctypes

driver = ctypes.PyDLL("libcuda.so.1")

FILL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra END;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r5;
END:
  ret;
}
"""


def check(result):
    if result != 0:
        raise RuntimeError("driver error %d" % result)


class Device:
    def __init__(self):
        check(driver.cuInit(0))
        self.context = ctypes.c_void_p()
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        self.enter()
        module, self.fill_function = ctypes.c_void_p(), ctypes.c_void_p()
        check(driver.cuModuleLoadData(ctypes.byref(module), FILL))
        check(driver.cuModuleGetFunction(ctypes.byref(self.fill_function), module, b"fill"))

    def enter(self):
        check(driver.cuCtxSetCurrent(self.context))

    def allocate(self, size):
        address = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        return address.value

    def fill(self, address, count):
        """count 32-bit elements."""
        values = (ctypes.c_uint64(address), ctypes.c_uint32(count))
        parameters = (ctypes.c_void_p * 2)(*[ctypes.addressof(value) for value in values])
        check(driver.cuLaunchKernel(self.fill_function, (count + 63) // 64, 1, 1, 64, 1, 1, 0, None, parameters, None))
        check(driver.cuCtxSynchronize())


device = Device()
