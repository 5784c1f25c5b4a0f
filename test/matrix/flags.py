"""One thread tells another that data is ready: flags, locks, tickets, counters. PTX memory model: the data is ordered if a
release pattern of the writer is observed by an acquire pattern of the reader, both in a scope that holds the two threads.
"""
from patterns import pair_kernel
from micro import CONFLICT, Micro

SCOPES = {"warps": ("cta", "cluster", "gpu", "sys"), "blocks": ("gpu", "sys")}
ORDER = ("cta", "cluster", "gpu", "sys")

# name -> (text, scope in which it releases or acquires; None: it does not, scope in which the flag itself is accessed
# by a strong operation; None: by a plain one).
RELEASES = {
    "weak": ("*flag = 1;", None, None),
    "fence_weak": ("__threadfence();\n*flag = 1;", "gpu", None),
    "volatile": ("*(volatile unsigned*)flag = 1;", None, "sys"),
    "fence_volatile": ("__threadfence();\n*(volatile unsigned*)flag = 1;", "gpu", "sys"),
    "fence_block_volatile": ("__threadfence_block();\n*(volatile unsigned*)flag = 1;", "cta", "sys"),
    "fence_system_volatile": ("__threadfence_system();\n*(volatile unsigned*)flag = 1;", "sys", "sys"),
    "relaxed_gpu": ("ST(\"relaxed.gpu\", flag, 1);", None, "gpu"),
    "release_cta": ("ST(\"release.cta\", flag, 1);", "cta", "cta"),
    "release_gpu": ("ST(\"release.gpu\", flag, 1);", "gpu", "gpu"),
    "release_sys": ("ST(\"release.sys\", flag, 1);", "sys", "sys"),
    "fence_relaxed_gpu": ("FENCE(\"acq_rel.gpu\");\nST(\"relaxed.gpu\", flag, 1);", "gpu", "gpu"),
    "fence_sc_relaxed": ("FENCE(\"sc.gpu\");\nST(\"relaxed.gpu\", flag, 1);", "gpu", "gpu"),
    "exchange_relaxed": ("atomicExch(flag, 1u);", None, "gpu"),
    "fence_exchange": ("__threadfence();\natomicExch(flag, 1u);", "gpu", "gpu"),
    "fence_exchange_block": ("__threadfence();\natomicExch_block(flag, 1u);", "cta", "cta"),
    "exchange_release_gpu": ("(void)ATOM(\"release.gpu.exch.b32\", flag, 1);", "gpu", "gpu"),
    "red_release_gpu": ("RED(\"release.gpu.add.u32\", flag, 1);", "gpu", "gpu"),
    "red_release_cta": ("RED(\"release.cta.add.u32\", flag, 1);", "cta", "cta"),
    "fence_behind": ("atomicExch(flag, 1u);\n__threadfence();", None, "gpu"),
}
ACQUIRES = {
    "weak": ("while (LD(\"weak\", flag) == 0) KEEP;", None, None),
    "weak_fence": ("while (LD(\"weak\", flag) == 0) KEEP;\n__threadfence();", "gpu", None),
    "volatile": ("while (*(volatile unsigned*)flag == 0) {}", None, "sys"),
    "volatile_fence": ("while (*(volatile unsigned*)flag == 0) {}\n__threadfence();", "gpu", "sys"),
    "volatile_fence_block": ("while (*(volatile unsigned*)flag == 0) {}\n__threadfence_block();", "cta", "sys"),
    "relaxed_gpu": ("while (LD(\"relaxed.gpu\", flag) == 0) {}", None, "gpu"),
    "acquire_cta": ("while (LD(\"acquire.cta\", flag) == 0) {}", "cta", "cta"),
    "acquire_gpu": ("while (LD(\"acquire.gpu\", flag) == 0) {}", "gpu", "gpu"),
    "acquire_sys": ("while (LD(\"acquire.sys\", flag) == 0) {}", "sys", "sys"),
    "relaxed_fence": ("while (LD(\"relaxed.gpu\", flag) == 0) {}\nFENCE(\"acq_rel.gpu\");", "gpu", "gpu"),
    "atomic_add": ("while (atomicAdd(flag, 0u) == 0) {}", None, "gpu"),
    "atomic_add_fence": ("while (atomicAdd(flag, 0u) == 0) {}\n__threadfence();", "gpu", "gpu"),
    "cas_acquire": ("while (CAS(\"acquire.gpu\", flag, 1, 1) == 0) {}", "gpu", "gpu"),
    "fence_before": ("__threadfence();\nwhile (*(volatile unsigned*)flag == 0) {}", None, "sys"),
    "sleeping": ("while (LD(\"acquire.gpu\", flag) == 0) __nanosleep(50);", "gpu", "gpu"),
}


def marked(text: str, mark: str) -> str:
    return "\n".join(f"{line} {mark}" for line in text.split("\n"))


def flag_kernel(memory: str, party: str, release: str, acquire: str, pattern: str = "write_read") -> Micro:
    (release_text, release_scope, store_scope), (acquire_text, acquire_scope, load_scope) = RELEASES[release], ACQUIRES[acquire]
    wide = SCOPES[party]
    # A plain flag, or one whose operations do not include the other thread, races itself.
    strong = store_scope in wide and load_scope in wide
    wrong = not (strong and release_scope in wide and acquire_scope in wide)
    flag_mark = "//?" if not strong else ""
    first, second = {"write_read": ("x[0] = 42;", "out[0] = x[0];"), "read_write": ("out[0] = x[0];", "x[0] = 42;")}[pattern]
    if memory == "shared":
        places = ["__shared__ unsigned x[2], flag[1];", "ESCAPE(x);", "ESCAPE(flag);",
                  "if (threadIdx.x == 0) x[0] = flag[0] = 0;", "__syncthreads();"]
    else:
        places = ["unsigned* const x = data;", "unsigned* const flag = flags;"]
    who = "threadIdx.x == 0" if party == "warps" else "blockIdx.x == 0 && threadIdx.x == 0"
    partner = "threadIdx.x == 32" if party == "warps" else "blockIdx.x == 1 && threadIdx.x == 0"
    body = [*places, f"if ({who}) {{", f"{first} //!", "KEEP;", marked(release_text, flag_mark), f"}} else if ({partner}) {{",
            marked(acquire_text, flag_mark), f"{second} //!", "KEEP;", "}"]
    kernel = pair_kernel(f"flag_{memory}_{party}_{pattern}_{release}__{acquire}", body, wrong,
                         CONFLICT[party]["shared" if memory == "shared" else "global"], block=64 if party == "warps" else 32,
                         grid=1 if party == "warps" else 2)
    kernel.kinds.append("atomics-misuse")
    return kernel


def flag_kernels() -> list[Micro]:
    pairs = []
    for release in RELEASES:
        for acquire in ("acquire_gpu", "volatile_fence", "relaxed_gpu"):
            pairs.append(("global", "blocks", release, acquire))
        for acquire in ("acquire_cta", "volatile_fence_block"):
            pairs.append(("shared", "warps", release, acquire))
    for acquire in ACQUIRES:
        for release in ("release_gpu", "fence_volatile"):
            pairs.append(("global", "blocks", release, acquire))
        pairs.append(("global", "warps", "release_cta", acquire))
        pairs.append(("shared", "warps", "fence_exchange", acquire))
    pairs += [("global", "warps", release, "volatile_fence_block") for release in RELEASES if "cta" in release or "block" in release]
    kernels = [flag_kernel(*pair) for pair in dict.fromkeys(pairs)]
    for release, acquire in (("release_gpu", "acquire_gpu"), ("relaxed_gpu", "acquire_gpu"), ("release_cta", "acquire_gpu"),
                             ("fence_volatile", "volatile_fence"), ("fence_volatile", "volatile")):
        kernels.append(flag_kernel("global", "blocks", release, acquire, "read_write"))
    return kernels


def block_flags() -> list[Micro]:
    """All threads of a block write, one of them releases; one of another block acquires, all of them read."""
    kernels = []
    for release_name, release, releases in (("release", "ST(\"release.gpu\", flags, 1);", True),
                                            ("fence_volatile", "__threadfence();\n*(volatile unsigned*)flags = 1;", True),
                                            ("relaxed", "ST(\"relaxed.gpu\", flags, 1);", False)):
        for before in (True, False):
            for behind in (True, False):
                if not releases and not (before and behind):
                    continue
                wrong = not (releases and before and behind)
                kernels.append(pair_kernel(
                    f"block_flag_global_blocks_{release_name}_{'sync' if before else 'nosync'}_{'sync' if behind else 'nosync'}", [
                        "if (blockIdx.x == 0) {", "data[threadIdx.x] = threadIdx.x; //!", "KEEP;", "__syncthreads();" if before else "",
                        "if (threadIdx.x == 0) {", release, "}", "} else {",
                        "if (threadIdx.x == 0) {", "while (LD(\"acquire.gpu\", flags) == 0) {}", "}", "__syncthreads();" if behind else "",
                        "out[threadIdx.x] = data[63 - threadIdx.x]; //!", "KEEP;", "}"], wrong, "race-global", grid=2))
    # Each thread fences, but nothing orders the others' stores before the flag.
    kernels.append(pair_kernel("block_flag_global_blocks_own_fences_only", [
        "if (blockIdx.x == 0) {", "data[threadIdx.x] = threadIdx.x; //!", "KEEP;", "__threadfence();",
        "if (threadIdx.x == 0) *(volatile unsigned*)flags = 1;", "} else {",
        "while (*(volatile unsigned*)flags == 0) {}", "__threadfence();", "out[threadIdx.x] = data[63 - threadIdx.x]; //!", "KEEP;", "}"],
        True, "race-global", grid=2))
    # Through a third block that only passes the flag on (cumulativity).
    for way, wrong in (("acquire_release", False), ("relaxed", True)):
        middle = ("while (LD(\"acquire.gpu\", flags) == 0) {}\nST(\"release.gpu\", flags + 1, 1);" if not wrong else
                  "while (LD(\"relaxed.gpu\", flags) == 0) {}\nST(\"relaxed.gpu\", flags + 1, 1);")
        kernels.append(pair_kernel(f"chain_global_blocks_{way}", [
            "if (threadIdx.x != 0) return;", "if (blockIdx.x == 0) {", "data[0] = 42; //!", "KEEP;", "ST(\"release.gpu\", flags, 1);",
            "} else if (blockIdx.x == 1) {", middle, "} else {", "while (LD(\"acquire.gpu\", flags + 1) == 0) {}", "out[0] = data[0]; //!", "KEEP;",
            "}"], wrong, "race-global", grid=3))
    # Value and flag in one word need no order; a second word does.
    for second, wrong in ((False, False), (True, True)):
        kernels.append(pair_kernel(f"packed_global_blocks_{'and_second_word' if second else 'one_word'}", [
            "if (threadIdx.x != 0) return;", "if (blockIdx.x == 0) {", "data[0] = 42; //!" if second else "", "KEEP;",
            "ST(\"relaxed.gpu\", flags, 0x80000000u | 42);", "} else {", "unsigned word;", "do word = LD(\"relaxed.gpu\", flags); while (word == 0);",
            "out[0] = word & 0xffff;", "out[1] = data[0]; //!" if second else "", "KEEP;", "}"], wrong, "race-global", grid=2))
    for kernel in kernels:
        kernel.kinds.append("atomics-misuse")
    return kernels


# name -> (take, give back, scope; None: it orders nothing)
LOCKS = {
    "cas_fence_exch": ("while (atomicCAS(lock, 0u, 1u) != 0) {}\n__threadfence();", "__threadfence();\natomicExch(lock, 0u);", "gpu"),
    "cas_acquire_st_release": ("while (CAS(\"acquire.gpu\", lock, 0, 1) != 0) {}", "ST(\"release.gpu\", lock, 0);", "gpu"),
    "exch_acquire_exch_release": ("while (ATOM(\"acquire.gpu.exch.b32\", lock, 1) != 0) {}", "(void)ATOM(\"release.gpu.exch.b32\", lock, 0);", "gpu"),
    "cas_acq_rel": ("while (CAS(\"acq_rel.sys\", lock, 0, 1) != 0) {}", "(void)ATOM(\"acq_rel.sys.exch.b32\", lock, 0);", "sys"),
    "cas_fence_volatile": ("while (atomicCAS(lock, 0u, 1u) != 0) {}\n__threadfence();", "__threadfence();\n*(volatile unsigned*)lock = 0;", "gpu"),
    "no_fences": ("while (atomicCAS(lock, 0u, 1u) != 0) {}", "atomicExch(lock, 0u);", None),
    "no_acquire": ("while (atomicCAS(lock, 0u, 1u) != 0) {}", "__threadfence();\natomicExch(lock, 0u);", None),
    "no_release": ("while (atomicCAS(lock, 0u, 1u) != 0) {}\n__threadfence();", "atomicExch(lock, 0u);", None),
    "cta_scope": ("while (CAS(\"acquire.cta\", lock, 0, 1) != 0) {}", "(void)ATOM(\"release.cta.exch.b32\", lock, 0);", "cta"),
    "fence_block": ("while (atomicCAS(lock, 0u, 1u) != 0) {}\n__threadfence_block();", "__threadfence_block();\natomicExch(lock, 0u);", "cta"),
}


def lock_kernels() -> list[Micro]:
    """A counter that one thread of each warp increments in a critical section."""
    kernels = []

    def lock(memory, party, name, take, give, wrong, who="", flag_mark=""):
        if memory == "shared":
            places = ["__shared__ unsigned x[1], lock[2];", "ESCAPE(x);", "ESCAPE(lock);", "if (threadIdx.x == 0) x[0] = lock[0] = lock[1] = 0;",
                      "__syncthreads();"]
        else:
            places = ["unsigned* const x = data;", "unsigned* const lock = flags;"]
        kernel = pair_kernel(f"lock_{memory}_{party}_{name}", [
            *places, "if (threadIdx.x % 32 == 0) {", who, marked(take, flag_mark), "x[0] = x[0] + 1; //!", "KEEP;", marked(give, flag_mark), "}"],
            wrong, CONFLICT[party]["shared" if memory == "shared" else "global"], block=64 if party == "warps" else 32,
            grid=1 if party == "warps" else 2)
        kernel.kinds.append("atomics-misuse")
        kernels.append(kernel)

    for name, (take, give, scope) in LOCKS.items():
        for memory, party in (("global", "blocks"), ("shared", "warps"), ("global", "warps")):
            wrong = scope not in SCOPES[party]
            narrow = scope == "cta" and party == "blocks"
            lock(memory, party, name, take, give, wrong, flag_mark="//?" if narrow else "")
    take, give, _ = LOCKS["cas_fence_exch"]
    for memory, party, index in (("global", "blocks", "blockIdx.x"), ("shared", "warps", "threadIdx.x / 32"), ("global", "warps", "threadIdx.x / 32")):
        lock(memory, party, "two_locks", take.replace("lock", f"lock + {index}"), give.replace("lock", f"lock + {index}"), True)
        lock(memory, party, "one_side", f"if ({index} == 0) {{\n{take}\n}}", f"if ({index} == 0) {{\n{give}\n}}", True)
    return kernels


def tickets() -> list[Micro]:
    """Every block leaves a partial result; the one that draws the last ticket sums them up."""
    kernels = []
    ways = {
        "fences": ("__threadfence();", "atomicAdd(flags, 1u)", "__threadfence();", False),
        "acq_rel": ("", "ATOM(\"acq_rel.gpu.add.u32\", flags, 1)", "", False),
        "atomic_inc_fences": ("__threadfence();", "atomicInc(flags, gridDim.x - 1)", "__threadfence();", False),
        "no_acquire": ("__threadfence();", "atomicAdd(flags, 1u)", "", True),
        "no_release": ("", "atomicAdd(flags, 1u)", "__threadfence();", True),
        "neither": ("", "atomicAdd(flags, 1u)", "", True),
        "release_only": ("", "ATOM(\"release.gpu.add.u32\", flags, 1)", "", True),
        "acquire_only": ("", "ATOM(\"acquire.gpu.add.u32\", flags, 1)", "", True),
        "fences_of_the_block": ("__threadfence_block();", "atomicAdd(flags, 1u)", "__threadfence_block();", True),
    }
    for name, (before, draw, behind, wrong) in ways.items():
        kernels.append(pair_kernel(f"ticket_global_blocks_{name}", [
            "if (threadIdx.x != 0) return;", "data[blockIdx.x] = blockIdx.x + 1; //!", "KEEP;", before, f"const unsigned ticket = {draw};",
            "if (ticket == gridDim.x - 1) {", behind, "unsigned sum = 0;", "#pragma unroll 1",
            "for (unsigned i = 0; i < gridDim.x; i++)", "sum += ((unsigned*)data)[i]; //!", "out[0] = sum;", "}"], wrong, "race-global", grid=4))
    # Blocks of several warps: the barriers spread the order of the thread that drew.
    for name, before, behind, wrong in (("barriers", "__syncthreads();", "__syncthreads();", False),
                                        ("no_barrier_before", "", "__syncthreads();", True),
                                        ("fence_by_all", "__threadfence();\n__syncthreads();", "__syncthreads();\n__threadfence();", False)):
        own = "" if "fence" in name else "__threadfence();"
        kernels.append(pair_kernel(f"ticket_global_blocks_of_warps_{name}", [
            "__shared__ unsigned last;", "ESCAPE(&last);", "data[blockIdx.x * 64 + threadIdx.x] = threadIdx.x + 1; //!", "KEEP;", before,
            "if (threadIdx.x == 0) {", own, "last = atomicAdd(flags, 1u) == gridDim.x - 1;", own, "}", "__syncthreads();" if not behind.startswith("__syncthreads") else behind,
            "if (last) {", "unsigned sum = 0;", "#pragma unroll 1", "for (unsigned i = 0; i < gridDim.x; i++)",
            "sum += data[i * 64 + 63 - threadIdx.x]; //!", "out[threadIdx.x] = sum;", "}"], wrong, "race-global", grid=4))
    for kernel in kernels:
        kernel.kinds.append("atomics-misuse")
    return kernels


def sequences() -> list[Micro]:
    """A relaxed read-modify-write of a third thread keeps what was released before it; a store does not."""
    kernels = []
    for name, middle, wrong in (("relaxed_add", "(void)ATOM(\"relaxed.gpu.add.u32\", flags, 1);", False),
                                ("relaxed_exchange", "(void)ATOM(\"relaxed.gpu.exch.b32\", flags, 2);", False),
                                ("store", "ST(\"relaxed.gpu\", flags, 2);", True)):
        kernels.append(pair_kernel(f"sequence_global_blocks_{name}", [
            "if (threadIdx.x != 0) return;", "if (blockIdx.x == 0) {", "data[0] = 42; //!", "KEEP;", "ST(\"release.gpu\", flags, 1);", "} else if (blockIdx.x == 1) {",
            "while (LD(\"relaxed.gpu\", flags) == 0) {}", middle, "ST(\"relaxed.gpu\", flags + 1, 1);", "} else {",
            # Who acquired the first value on the way to the second would be in order after all.
            "while (LD(\"relaxed.gpu\", flags + 1) == 0) {}", "while (LD(\"acquire.gpu\", flags) != 2) {}", "out[0] = data[0]; //!", "KEEP;", "}"],
            wrong, "race-global", grid=3))
        kernels[-1].kinds.append("atomics-misuse")
    return kernels


def grid_barriers() -> list[Micro]:
    """A barrier of all blocks out of one counter."""
    kernels = []
    ways = {
        "fences": ("__threadfence();\natomicAdd(flags, 1u);\nwhile (*(volatile unsigned*)flags < gridDim.x) {}\n__threadfence();", False),
        "acq_rel": ("(void)ATOM(\"acq_rel.gpu.add.u32\", flags, 1);\nwhile (LD(\"acquire.gpu\", flags) < gridDim.x) {}", False),
        # Each addition continues the release sequences of those before it.
        "release_add": ("(void)ATOM(\"release.gpu.add.u32\", flags, 1);\nwhile (LD(\"acquire.gpu\", flags) < gridDim.x) {}", False),
        "release_red": ("RED(\"release.gpu.add.u32\", flags, 1);\nwhile (LD(\"acquire.gpu\", flags) < gridDim.x) {}", False),
        "relaxed_add": ("(void)ATOM(\"relaxed.gpu.add.u32\", flags, 1);\nwhile (LD(\"acquire.gpu\", flags) < gridDim.x) {}", True),
        "no_fences": ("atomicAdd(flags, 1u);\nwhile (*(volatile unsigned*)flags < gridDim.x) {}", True),
        "no_acquire": ("__threadfence();\natomicAdd(flags, 1u);\nwhile (*(volatile unsigned*)flags < gridDim.x) {}", True),
        "no_wait": ("__threadfence();\natomicAdd(flags, 1u);\n__threadfence();", True),
    }
    for name, (text, wrong) in ways.items():
        for threads in ("", "by_one_"):
            step = f"if (threadIdx.x == 0) {{\n{text}\n}}" if threads else f"if (threadIdx.x == 0) {{\n{text}\n}}\n"
            before, behind = ("__syncthreads();", "__syncthreads();") if threads else ("", "")
            block = 64 if threads else 1
            kernels.append(pair_kernel(f"grid_barrier_global_blocks_{threads}{name}", [
                "const unsigned id = blockIdx.x * blockDim.x + threadIdx.x;", "data[id] = id; //!", "KEEP;", before, step, behind,
                "out[id] = data[gridDim.x * blockDim.x - 1 - id]; //!", "KEEP;"], wrong, "race-global", grid=4, block=block))
            kernels[-1].kinds.append("atomics-misuse")
    return kernels


def generate() -> list[Micro]:
    return flag_kernels() + block_flags() + lock_kernels() + tickets() + sequences() + grid_barriers()
