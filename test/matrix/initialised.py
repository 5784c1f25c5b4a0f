"""Reads of bytes that nobody has written: where the value matters, and where it does not."""
from micro import Micro
from patterns import pair_kernel

KIND = "uninitialised-read"


def generate() -> list[Micro]:
    kernels = []

    def add(name, body, wrong, block=32, **fields):
        kernels.append(pair_kernel(f"init_{name}", body, wrong, KIND, block=block, **fields))

    uses = {
        "stored": "out[threadIdx.x] = x[at]; //!",
        "branch": "if (x[at] == 12345) out[threadIdx.x] = 1; //!",
        "address": "out[threadIdx.x] = flags[x[at] % 64]; //!",
        "computed": "out[threadIdx.x] = x[at] * 3 + threadIdx.x; //!",
    }
    for memory in ("static", "dynamic", "global", "local"):
        fields = {"shared_bytes": 1024} if memory == "dynamic" else {"data": "nothing"} if memory == "global" else {}
        declare = {"static": ["__shared__ __align__(16) unsigned x[64];", "ESCAPE(x);"], "dynamic": ["unsigned* const x = dynamic_memory;"],
                   "global": ["unsigned* const x = data;"], "local": ["unsigned x[64];", "ESCAPE(x);"]}[memory]
        mine = "for (unsigned i = 0; i < {n}; i++) x[i] = i;" if memory == "local" else "for (unsigned i = threadIdx.x; i < {n}; i += 32) x[i] = i;"
        for use, text in uses.items():
            for written, wrong in ((64, False), (32, True), (0, True)):
                if written == 0 and use not in ("stored", "branch"):
                    continue
                body = [*declare, "#pragma unroll 1" if written else "", mine.format(n=written) if written else "", "KEEP;", "__syncthreads();",
                        "const unsigned at = 63 - threadIdx.x;", text, "KEEP;"]
                add(f"{memory}_{use}_{written}_of_64_written", body, wrong, **fields)
        # Bytes: three of four are written.
        byte_writes = ("for (unsigned i = {start}; i < 64; i += {step}) for (unsigned b = 0; b < {bytes}; b++) ((unsigned char*)x)[4 * i + b] = b == 0 ? 7 : 0;")
        start, step = ("0", "1") if memory == "local" else ("threadIdx.x", "32")
        for count, mask, wrong in ((4, "0xffffffffu", False), (3, "0xffffffffu", True), (3, "0x00ffffffu", False)):
            add(f"{memory}_{count}_bytes_mask_{mask[2:8]}", [
                *declare, "#pragma unroll 1", byte_writes.format(start=start, step=step, bytes=count), "KEEP;", "__syncthreads();",
                "const unsigned at = 63 - threadIdx.x;", f"if ((x[at] & {mask}) == 7) out[threadIdx.x] = 1; //!", "KEEP;"], wrong, **fields)
        # Loaded, but chosen only when somebody has written it.
        add(f"{memory}_loaded_but_not_selected", [
            *declare, "if (threadIdx.x == 0) for (unsigned i = 0; i < 16; i++) x[i] = i;" if memory != "local" else "for (unsigned i = 0; i < 16; i++) x[i] = i;",
            "__syncthreads();", "const unsigned value = x[threadIdx.x];", "KEEP;", "const unsigned chosen = threadIdx.x < 16 ? value : 5;",
            "out[threadIdx.x] = chosen;"], False, **fields)
        add(f"{memory}_loaded_and_dropped", [*declare, "asm volatile(\"{ .reg .u32 dropped; ld.u32 dropped, [%0]; }\" ::\"l\"(x + threadIdx.x) : \"memory\");",
                                             "out[threadIdx.x] = 1;"], False, **fields)
    for unit, text in (("uint4", "const uint4 v = *(const uint4*)(data + 4 * threadIdx.x); //!"), ):
        for lanes, wrong in ((4, False), (3, True)):
            add(f"global_vector_{lanes}_of_4_words", [
                "#pragma unroll 1", f"for (unsigned i = 0; i < {lanes}; i++) data[4 * threadIdx.x + i] = i;", "KEEP;", text,
                "out[threadIdx.x] = v.x + v.y + v.z + v.w; //?"], wrong, data="nothing")
    add("global_atomic_add_unwritten", ["atomicAdd(&data[threadIdx.x], 1u); //!"], True, data="nothing")
    add("global_atomic_add_written", ["data[threadIdx.x] = 0;", "atomicAdd(&data[threadIdx.x], 1u);", "out[threadIdx.x] = data[threadIdx.x];"], False, data="nothing")
    add("global_atomic_exchange_unread", ["atomicExch(&data[threadIdx.x], 1u);", "out[threadIdx.x] = data[threadIdx.x];"], False, data="nothing")
    add("static_copy_async_writes", ["__shared__ __align__(16) unsigned x[64];", "ESCAPE(x);", "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4);", "COPY_WAIT_ALL;",
                                     "out[threadIdx.x] = x[threadIdx.x];"], False)
    add("static_copy_async_half", ["__shared__ __align__(16) unsigned x[64];", "ESCAPE(x);", "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4);", "COPY_WAIT_ALL;",
                                   "out[threadIdx.x] = x[32 + threadIdx.x]; //!"], True)
    for words, wrong in ((64, False), (32, True)):
        add(f"static_bulk_writes_{words}_words", [
            "__shared__ __align__(128) unsigned x[64];", "ESCAPE(x);", "__shared__ __align__(8) uint64_t barrier;",
            "if (threadIdx.x == 0) { MBARRIER_INIT(&barrier, 1); PROXY_FENCE; }", "__syncthreads();",
            f"if (threadIdx.x == 0) {{ MBARRIER_ARRIVE_EXPECT(&barrier, {4 * words}); BULK_LOAD(x, data, {4 * words}, &barrier); }}",
            "MBARRIER_WAIT(&barrier, 0);", "out[threadIdx.x] = x[63 - threadIdx.x]; //!"], wrong)
    add("global_bulk_store_writes", [
        "__shared__ __align__(128) unsigned x[64];", "ESCAPE(x);", "x[threadIdx.x] = threadIdx.x; x[32 + threadIdx.x] = 1;", "PROXY_FENCE;", "__syncthreads();",
        "if (threadIdx.x == 0) { BULK_STORE(data, x, 256); BULK_COMMIT; BULK_WAIT(0); }", "__syncthreads();", "out[threadIdx.x] = data[63 - threadIdx.x];"], False,
        data="nothing")
    return kernels
