import device
from cupy.cuda import memory_hook

_SEGMENT = 1 << 16


class Block:
    def __init__(self, pool, ptr, size):
        self.pool, self.ptr, self.size = pool, ptr, size

    def free(self):
        if self.ptr:
            self.pool.free(self)
            self.ptr = 0

    def __del__(self):
        self.free()


class MemoryPool:
    """Blocks of 512 bytes, the lowest free one first."""

    def __init__(self):
        self._base = device.device.allocate(_SEGMENT)
        self._used = [False] * (_SEGMENT // 512)

    def malloc(self, size):
        count = (size + 511) // 512
        hooks = memory_hook.get_memory_hooks()
        for hook in hooks.values():
            hook.malloc_preprocess(device_id=0, size=size, mem_size=count * 512)
        start = next(i for i in range(len(self._used)) if not any(self._used[i:i + count]))
        self._used[start:start + count] = [True] * count
        block = Block(self, self._base + 512 * start, count * 512)
        for hook in hooks.values():
            hook.malloc_postprocess(device_id=0, size=size, mem_size=count * 512, mem_ptr=block.ptr, pmem_id=id(block))
        return block

    def free(self, block):
        hooks = memory_hook.get_memory_hooks()
        for hook in hooks.values():
            hook.free_preprocess(device_id=0, mem_size=block.size, mem_ptr=block.ptr, pmem_id=id(block))
        start = (block.ptr - self._base) // 512
        self._used[start:start + block.size // 512] = [False] * (block.size // 512)
