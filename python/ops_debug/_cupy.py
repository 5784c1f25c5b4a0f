"""CuPy's memory pool, by an official cupy.cuda.MemoryHook. CuPy keeps hooks per thread, so every thread gets it. The
hook must see all of a pool's blocks: where a thread could use the pool unseen, nothing is reported at all."""
import threading
import _thread

from ops_debug import _blocks

FRAMEWORK, POOL = b"CuPy", b"CuPy memory pool"


def _make_hook(cupy, handed_out, given_back):
    class Hook(cupy.cuda.MemoryHook):
        name = "ops_debug"

        def malloc_postprocess(self, **block):
            if block["mem_ptr"]:
                handed_out(block["mem_ptr"], block["size"], block["mem_size"], FRAMEWORK, POOL)

        def free_preprocess(self, **block):
            given_back(block["mem_ptr"])

    return Hook()


def install(cupy):
    reports = _blocks.connect()
    if reports is None or threading.active_count() > 1:
        return
    hook = _make_hook(cupy, *reports)

    def enter():
        cupy.cuda.memory_hook.get_memory_hooks().setdefault(hook.name, hook)

    real_bootstrap = threading.Thread._bootstrap_inner
    real_start = _thread.start_new_thread

    def bootstrap(thread):
        enter()
        real_bootstrap(thread)

    def start_new_thread(function, *arguments):
        def run(*args, **kwargs):
            enter()
            return function(*args, **kwargs)

        return real_start(run, *arguments)

    enter()
    threading.Thread._bootstrap_inner = bootstrap
    _thread.start_new_thread = _thread.start_new = start_new_thread
