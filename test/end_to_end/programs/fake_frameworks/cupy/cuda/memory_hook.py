import threading

_local = threading.local()


def get_memory_hooks():
    if not hasattr(_local, "hooks"):
        _local.hooks = {}
    return _local.hooks


class MemoryHook:
    name = "MemoryHook"

    def malloc_preprocess(self, **block):
        pass

    def malloc_postprocess(self, **block):
        pass

    def free_preprocess(self, **block):
        pass

    def free_postprocess(self, **block):
        pass
