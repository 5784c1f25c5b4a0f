"""Right and wrong uses of blocks out of the stand-ins' pools: program.py FRAMEWORK CASE"""
import sys
import threading


def cupy_case(case):
    import cupy
    from device import device

    pool = cupy.cuda.memory.MemoryPool()

    def make(count):
        return pool.malloc(4 * count)

    before, block, after = make(50), make(100), make(300)
    if case == "right":
        for count in (100, 90, 120, 100, 3):
            block.free()
            block = make(count)
            device.fill(block.ptr, count)
            device.fill(after.ptr, 300)
    elif case == "overflow":
        device.fill(block.ptr, 101)
    elif case == "freed":
        address = block.ptr
        block.free()
        device.fill(address, 100)
    elif case == "thread":
        def work():
            device.enter()
            mine = make(70)
            device.fill(mine.ptr, 71)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    del before


def rmm_case(case):
    import rmm
    from device import device

    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(pool)
    print(rmm.mr.get_current_device_resource() is pool, rmm.mr.get_per_device_resource(0).pool_size())
    rmm.mr.allocate(100)
    address = rmm.mr.allocate(400)
    rmm.mr.allocate(100)
    device.fill(address, 101 if case == "overflow" else 100)


{"cupy": cupy_case, "rmm": rmm_case}[sys.argv[1]](sys.argv[2])
print("done")
