import device


class CudaMemoryResource:
    def allocate(self, size, stream=None):
        return device.device.allocate(size)

    def deallocate(self, address, size, stream=None):
        pass


class PoolMemoryResource:
    def __init__(self, upstream):
        self.upstream_mr = upstream
        self._next = upstream.allocate(1 << 16)

    def pool_size(self):
        return 1 << 16

    def allocate(self, size, stream=None):
        address = self._next
        self._next += (size + 255) // 256 * 256
        return address

    def deallocate(self, address, size, stream=None):
        pass


class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self.allocate, self.deallocate = allocate_func, deallocate_func


_resources = {0: CudaMemoryResource()}


def set_per_device_resource(index, resource):
    _resources[index] = resource


def get_per_device_resource(index):
    return _resources[index]


def set_current_device_resource(resource):
    _resources[0] = resource


def get_current_device_resource():
    return _resources[0]


def allocate(size):
    """What C++ users of the current resource do."""
    return _resources[0].allocate(size)
