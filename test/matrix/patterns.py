"""Two accesses of the same bytes with one way of synchronisation between them.

Every thread makes access A to its own element and access B to its partner's (or the reverse), so the verdict depends only
on whether the synchronisation orders a thread with its partner:
  lanes   blocks of one warp; the partner is lane 31 - i, or i ^ 1 ("pairs": the same half of the warp)
  warps   blocks of two warps; the partner is thread 63 - i, always in the other warp
  blocks  two blocks of one warp; the partner is the same lane of the other block
"""
import micro
from micro import CONFLICT, Micro

# name -> (A, B): {me} and {other} are elements of x. All of A and B of different threads conflict.
CORE = {
    "write_read": ("x[me] = me + 7;", "out[id] = x[other];"),
    "read_write": ("const unsigned seen = x[other];", "x[me] = seen + 1;"),
    "write_write": ("x[me] = me;", "x[other] = me + 100;"),
    "atomic_read": ("atomicAdd(&x[me], 3u);", "out[id] = x[other];"),
    "write_atomic": ("x[me] = me;", "atomicMax(&x[other], 1000u);"),
}
MORE = {
    "vector_read": ("if (me % 4 == 0) *(uint4*)&x[me] = make_uint4(me, me, me, me);",
                    "out[id] = x[other % 4 == 0 ? other + 3 : other - 1];"),
    "write_vector": ("x[me] = me;", "if (other % 4 == 0) { const uint4 v = *(const uint4*)&x[other]; out[id] = v.x ^ v.y ^ v.z ^ v.w; }"),
    "byte_word": ("((unsigned char*)x)[4 * me + 3] = me;", "out[id] = x[other];"),
    "half_byte": ("((unsigned short*)x)[2 * me] = me + 256;", "out[id] = ((unsigned char*)x)[4 * other + 1];"),
    "generic": ("GENERIC(x)[me] = me + 7;", "out[id] = GENERIC(x)[other];"),
    "volatile_write_read": ("x[me] = me + 7;", "out[id] = ((volatile unsigned*)x)[other];"),
}
# Right whatever stands between them.
HARMLESS = {
    "own_element": ("x[me] = me + 7;", "out[id] = x[me];"),
    "read_read": ("const unsigned seen = x[other];", "out[id] = seen + x[me];"),
    "atomic_atomic": ("atomicAdd(&x[me], 3u);", "atomicAdd(&x[other], 4u);"),
    "atomic_volatile": ("atomicAdd(&x[me], 3u);", "out[id] = ((volatile unsigned*)x)[other];"),
    "neighbour_bytes": ("((unsigned char*)x)[me] = me;", "out[id] = ((unsigned char*)x)[me];"),
    "neighbour_halves": ("((unsigned short*)x)[me] = me;", "out[id] = ((unsigned short*)x)[me];"),
    "neighbour_vectors": ("*(uint2*)&x[2 * me] = make_uint2(me, id);", "out[id] = x[2 * me + 1];"),
    "atomic_counter": ("atomicAdd(&x[0], 1u);", "if (me == 0) atomicExch(&x[0], 7u);"),
}

# Ways to synchronise, by what they order: name -> (text, {parties that it orders}).
FULL = "0xffffffffu"
SYNCS = {
    "none": ("", ()),
    "syncwarp": ("__syncwarp();", ("lanes", "pairs")),
    "syncwarp_halves": ("if (threadIdx.x % 32 < 16) __syncwarp(0x0000ffffu); else __syncwarp(0xffff0000u);", ("pairs",)),
    "shfl": ("out[2048 + id] = __shfl_xor_sync(0xffffffffu, me, 1);", ()),
    "ballot": ("out[2048 + id] = __ballot_sync(0xffffffffu, me & 1);", ()),
    "vote_all": ("out[2048 + id] = __all_sync(0xffffffffu, me < 5000);", ()),
    "match": ("out[2048 + id] = __match_any_sync(0xffffffffu, me & 3);", ()),
    "redux": ("out[2048 + id] = __reduce_add_sync(0xffffffffu, me);", ()),
    "activemask": ("out[2048 + id] = __activemask();", ()),
    "fence_block": ("__threadfence_block();", ()),
    "fence": ("__threadfence();", ()),
    "nanosleep": ("__nanosleep(100);", ()),
    "syncthreads": ("__syncthreads();", ("lanes", "pairs", "warps")),
    "syncthreads_or": ("out[2048 + id] = __syncthreads_or(me == 3);", ("lanes", "pairs", "warps")),
    "syncthreads_count": ("out[2048 + id] = __syncthreads_count(me == 3);", ("lanes", "pairs", "warps")),
    "barrier_sync": ("PTX(\"barrier.sync 0;\");", ("lanes", "pairs", "warps")),
    "named_all": ("BARRIER(\"sync\", 3, blockDim.x);", ("lanes", "pairs", "warps")),
    "named_aligned": ("PTX(\"bar.sync 2;\");", ("lanes", "pairs", "warps")),
    "named_per_warp": ("BARRIER(\"sync\", 1 + threadIdx.x / 32, 32);", ("lanes", "pairs")),
    "two_barriers": ("__syncwarp();\n__syncthreads();", ("lanes", "pairs", "warps")),
    "barrier_in_loop": ("for (unsigned i = 0; i < 3; i++) __syncthreads();", ("lanes", "pairs", "warps")),
    "atomic_elsewhere": ("atomicAdd(&flags[1], 1u);", ()),
    "fence_and_atomic": ("__threadfence();\natomicAdd(&flags[1], 1u);\n__threadfence();", ()),
}
FENCES_IN_LANES = ("shfl", "ballot", "vote_all", "match", "redux", "activemask")

GEOMETRY = {  # party -> grid, block, me, other
    "lanes": (1, 32, "threadIdx.x", "31 - threadIdx.x"),
    "pairs": (1, 32, "threadIdx.x", "threadIdx.x ^ 1"),
    "warps": (1, 64, "threadIdx.x", "63 - threadIdx.x"),
    "blocks": (2, 32, "blockIdx.x * 32 + threadIdx.x", "(1 - blockIdx.x) * 32 + threadIdx.x"),
}


def memory_lines(memory: str, party: str) -> list[str]:
    """Declares x; shared memory is zeroed and everybody has seen that."""
    if memory == "global":
        return ["unsigned* const x = data;"]
    declaration = ["__shared__ __align__(16) unsigned x[256];"] if memory == "static" else ["unsigned* const x = dynamic_memory;"]
    return [*declaration, "ESCAPE(x);", "for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) x[i] = 0;", "__syncthreads();"]


def access_kernel(memory: str, party: str, pattern: str, accesses, sync: str, text: str, wrong: bool) -> Micro:
    grid, block, me, other = GEOMETRY[party]
    a, b = accesses
    place = "global" if memory == "global" else "shared"
    side = " //!" if wrong else ""
    body = [*memory_lines(memory, party),
            f"const unsigned id = blockIdx.x * blockDim.x + threadIdx.x, me = {me}, other = {other};",
            f"{a}{side}", "KEEP;", text, f"{b}{side}", "KEEP;"]
    # An array that is read before others write it needs its reader's value kept alive.
    if "seen" in a and "seen" not in b:
        body.append("out[id] = seen;")
    kinds = [CONFLICT["lanes" if party in ("lanes", "pairs") else party][place]]
    name = f"access_{memory}_{party}_{pattern}_{sync}_{'wrong' if wrong else 'right'}"
    return Micro(name, body, wrong, kinds, grid, block, shared_bytes=1024 if memory == "dynamic" else 0)


def generate() -> list[Micro]:
    micros = []

    def add(memory, party, pattern, accesses, sync):
        text, ordered = SYNCS[sync]
        wrong = party not in ordered
        micros.append(access_kernel(memory, party, pattern, accesses, sync, text, wrong))

    in_warp = ["none", "syncwarp", "syncwarp_halves", "shfl", "ballot", "fence_block", "syncthreads", "named_all"]
    across = ["none", "syncwarp", "fence_block", "nanosleep", "syncthreads", "syncthreads_or", "named_all", "named_per_warp",
              "barrier_in_loop"]
    between = ["none", "syncthreads", "fence", "fence_and_atomic"]
    for pattern, accesses in CORE.items():
        for sync in in_warp:
            add("static", "lanes", pattern, accesses, sync)
        for sync in across:
            add("static", "warps", pattern, accesses, sync)
        for sync in ("none", "syncwarp", "shfl"):
            add("global", "lanes", pattern, accesses, sync)
        for sync in ("none", "syncwarp", "syncthreads", "fence"):
            add("global", "warps", pattern, accesses, sync)
        for sync in between:
            add("global", "blocks", pattern, accesses, sync)
    for pattern in ("write_read", "read_write", "write_write"):
        for sync in ("none", "syncwarp_halves", "ballot"):
            add("static", "pairs", pattern, CORE[pattern], sync)
        for sync in ("none", "syncwarp"):
            add("dynamic", "lanes", pattern, CORE[pattern], sync)
        for sync in ("none", "syncthreads", "named_aligned"):
            add("dynamic", "warps", pattern, CORE[pattern], sync)
    for sync in ("vote_all", "match", "redux", "activemask", "fence", "syncthreads_count", "barrier_sync", "two_barriers",
                 "named_per_warp", "atomic_elsewhere"):
        add("static", "lanes", "write_read", CORE["write_read"], sync)
    for sync in ("syncthreads_count", "barrier_sync", "named_aligned", "two_barriers", "fence", "shfl", "atomic_elsewhere",
                 "fence_and_atomic"):
        add("static", "warps", "write_read", CORE["write_read"], sync)
    for pattern, accesses in MORE.items():
        for memory in ("static", "global"):
            for sync in ("none", "syncthreads"):
                add(memory, "warps", pattern, accesses, sync)
        add("static", "lanes", pattern, accesses, "none")
        add("static", "lanes", pattern, accesses, "syncwarp")
    for pattern, accesses in HARMLESS.items():
        for memory, party in (("static", "lanes"), ("static", "warps"), ("global", "warps"), ("global", "blocks")):
            micros.append(access_kernel(memory, party, pattern, accesses, "none", "", False))
    # The same value by everybody: nothing that a report may call an error.
    for memory, party in (("static", "lanes"), ("static", "warps"), ("global", "warps"), ("global", "blocks")):
        kernel = access_kernel(memory, party, "same_value", ("x[me] = 5;", "x[other] = 5;"), "none", "", False)
        kernel.benign = True
        micros.append(kernel)
    return micros + arrive_and_sync() + split_barriers() + loops() + trees() + unprotected_updates() + scopes()


def pair_kernel(name: str, body: list[str], wrong: bool, kind: str, block: int = 64, grid: int = 1, **fields) -> Micro:
    micro_name = f"{name}_{'wrong' if wrong else 'right'}"
    if not wrong:
        body = [line.replace(micro.REQUIRED, "").replace(micro.ALLOWED, "") for line in body]
    return Micro(micro_name, body, wrong, [kind], grid, block, **fields)


SHARED_ZEROED = ["__shared__ __align__(16) unsigned x[256];", "ESCAPE(x);",
                 "for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) x[i] = 0;", "__syncthreads();"]


def arrive_and_sync() -> list[Micro]:
    """One warp arrives at a named barrier and goes on, the other one waits: ordered in one direction only."""
    micros = []
    for memory in ("static", "dynamic", "global"):
        for pattern, first, second in (("write_read", "x[threadIdx.x % 32] = threadIdx.x + 1;", "out[threadIdx.x] = x[31 - threadIdx.x % 32];"),
                                       ("read_write", "out[threadIdx.x] = x[31 - threadIdx.x % 32];", "x[threadIdx.x % 32] = threadIdx.x;"),
                                       ("write_write", "x[threadIdx.x % 32] = threadIdx.x + 1;", "x[31 - threadIdx.x % 32] = threadIdx.x;")):
            for way, text in (
                    ("first_arrives", ("BARRIER(\"arrive\", 1, 64);", "BARRIER(\"sync\", 1, 64);")),
                    ("second_arrives", ("BARRIER(\"sync\", 1, 64);", "BARRIER(\"arrive\", 1, 64);")),
                    ("both_sync", ("BARRIER(\"sync\", 1, 64);", "BARRIER(\"sync\", 1, 64);")),
                    ("too_early", ("", "BARRIER(\"sync\", 1, 64);"))):
                if memory == "dynamic" and way in ("both_sync", "too_early"):
                    continue
                before = "BARRIER(\"arrive\", 1, 64);\n" if way == "too_early" else ""
                wrong = way in ("second_arrives", "too_early")
                body = [*memory_lines(memory, "warps"), "if (threadIdx.x < 32) {", f"{before}{first} //!", "KEEP;", text[0], "} else {",
                        text[1], f"{second} //!", "KEEP;", "}"]
                micros.append(pair_kernel(f"named_{memory}_{pattern}_{way}", body, wrong,
                                          "race-global" if memory == "global" else "race-shared",
                                          shared_bytes=1024 if memory == "dynamic" else 0))
    return micros


def split_barriers() -> list[Micro]:
    """The barrier is there, but some other part of the program separates the accesses from it."""
    make = []
    for place, wrong in (("between", False), ("before", True), ("behind", True)):
        def at(where, place=place):
            return "__syncthreads();" if where == place else ""
        make.append(pair_kernel(f"place_static_warps_{place}", [
            *SHARED_ZEROED, at("before"), "x[threadIdx.x] = threadIdx.x; //!", "KEEP;", at("between"),
            "out[threadIdx.x] = x[63 - threadIdx.x]; //!", "KEEP;", at("behind")], wrong, "race-shared"))
    # A partial barrier: three of four warps pass it.
    for reader, wrong in ((64, False), (96, True)):
        make.append(pair_kernel(f"named_static_partial_reader{reader}", [
            *SHARED_ZEROED, "if (threadIdx.x < 32) x[threadIdx.x] = threadIdx.x; //!", "KEEP;",
            "if (threadIdx.x < 96) BARRIER(\"sync\", 1, 96);",
            f"if (threadIdx.x >= {reader} && threadIdx.x < {reader + 32}) out[threadIdx.x] = x[threadIdx.x % 32]; //!", "KEEP;"],
            wrong, "race-shared", block=128))
    # Two barriers of two ids do not order each other's threads.
    for ids, wrong in (((1, 1), False), ((1, 2), True)):
        make.append(pair_kernel(f"named_static_ids_{ids[0]}_{ids[1]}", [
            *SHARED_ZEROED, "x[threadIdx.x] = threadIdx.x; //!", "KEEP;",
            f"BARRIER(\"sync\", threadIdx.x < 64 ? {ids[0]} : {ids[1]}, {128 if ids[0] == ids[1] else 64});",
            "out[threadIdx.x] = x[127 - threadIdx.x]; //!", "KEEP;"], wrong, "race-shared", block=128))
    # A ring of three roles, each waits for the one before it only.
    for order, wrong in ((True, False), (False, True)):
        second = "BARRIER(\"sync\", 1, 64);" if order else ""
        first = "BARRIER(\"arrive\", 1, 64);" if order else ""
        make.append(pair_kernel(f"named_static_chain_{'complete' if order else 'broken'}", [
            *SHARED_ZEROED, "if (threadIdx.x < 32) { x[threadIdx.x] = threadIdx.x; //!", f"KEEP; {first} }}",
            f"else if (threadIdx.x < 64) {{ {second} BARRIER(\"arrive\", 2, 64); }}",
            "else { BARRIER(\"sync\", 2, 64);", "out[threadIdx.x] = x[threadIdx.x % 32]; //!", "KEEP; }"], wrong, "race-shared",
            block=96))
    return make


def loops() -> list[Micro]:
    """One buffer or two in turn, with one barrier per round or two."""
    micros = []
    for memory in ("static", "global"):
        kind = "race-global" if memory == "global" else "race-shared"
        for buffers in (1, 2, 3):
            for barriers in ("none", "one", "two"):
                if buffers == 3 and barriers != "one":
                    continue
                wrong = barriers == "none" or (barriers == "one" and buffers == 1)
                middle = "" if barriers == "none" else "__syncthreads();"
                end = "__syncthreads();" if barriers == "two" else ""
                micros.append(pair_kernel(f"loop_{memory}_{buffers}_buffers_{barriers}", [
                    *memory_lines(memory, "warps"), "unsigned sum = 0;", "#pragma unroll 1", "for (unsigned i = 0; i < 6; i++) {",
                    f"unsigned* const now = x + i % {buffers} * 64;", "now[threadIdx.x] = sum + i; //!", "KEEP;", middle,
                    "sum += now[63 - threadIdx.x]; //!", "KEEP;", end, "}", "out[threadIdx.x] = sum;"], wrong, kind))
        # A partial result per warp, combined by all: the next round overwrites it (public report K13).
        for barriers, wrong in ((1, True), (2, False)):
            micros.append(pair_kernel(f"loop_{memory}_partials_{barriers}_barriers", [
                *memory_lines(memory, "warps"), "unsigned sum = threadIdx.x;", "#pragma unroll 1", "for (unsigned i = 0; i < 4; i++) {",
                "if (threadIdx.x % 32 == 0) x[threadIdx.x / 32] = sum; //!", "KEEP;", "__syncthreads();",
                "sum += x[0] + //!", "x[1]; //?", "KEEP;", "__syncthreads();" if barriers == 2 else "", "}", "out[threadIdx.x] = sum;"], wrong, kind))
            micros[-1].kinds.append("missing-warp-sync")  # lane 0 and its own warp
    # Producer and consumer warps that hand two buffers over: named barriers say "full" (1 + i) and "empty" (7 + i).
    for empty, wrong in ((True, False), (False, True)):
        micros.append(pair_kernel(f"loop_static_producer_consumer_{'both_ways' if empty else 'one_way'}", [
            *SHARED_ZEROED, "if (threadIdx.x < 32) {", "#pragma unroll 1", "for (unsigned i = 0; i < 6; i++) {",
            "if (i >= 2) BARRIER(\"sync\", 7 + i - 2, 64);" if empty else "",
            "x[i % 2 * 32 + threadIdx.x] = i; //!", "KEEP;", "BARRIER(\"arrive\", 1 + i, 64);", "}",
            "} else {", "unsigned sum = 0;", "#pragma unroll 1", "for (unsigned i = 0; i < 6; i++) {", "BARRIER(\"sync\", 1 + i, 64);",
            "sum += x[i % 2 * 32 + 63 - threadIdx.x]; //!", "KEEP;", "if (i < 4) BARRIER(\"arrive\", 7 + i, 64);" if empty else "", "}",
            "out[threadIdx.x] = sum;", "}"], wrong, "race-shared"))
    return micros


def trees() -> list[Micro]:
    """A sum over 128 threads in shared memory that halves the active part with each step."""
    micros = []

    def tree(name: str, block_step: str, warp_part: list[str], wrong: bool, kind: str) -> None:
        micros.append(pair_kernel(f"tree_static_{name}", [
            *SHARED_ZEROED, "x[threadIdx.x] = threadIdx.x * 3 + 1;", "__syncthreads();", "#pragma unroll 1",
            "for (unsigned step = 64; step >= 32; step /= 2) {",
            f"if (threadIdx.x < step) x[threadIdx.x] += x[threadIdx.x + step]; {'//!' if kind == 'race-shared' else ''}", "KEEP;", block_step, "}",
            "if (threadIdx.x < 32) {", *warp_part, "if (threadIdx.x == 0) out[blockIdx.x] = value;", "}"], wrong, kind, block=128))

    shuffles = ["unsigned value = x[threadIdx.x];",
                "for (int lane = 16; lane > 0; lane /= 2) value += __shfl_down_sync(0xffffffffu, value, lane);"]
    tree("shuffles", "__syncthreads();", shuffles, False, "race-shared")
    tree("no_block_barrier", "", shuffles, True, "race-shared")
    tree("warp_barrier_for_block", "__syncwarp();", shuffles, True, "race-shared")

    def steps(between: str, behind: str) -> list[str]:
        return ["#pragma unroll 1", "for (unsigned step = 16; step > 0; step /= 2) {", "const unsigned sum = x[threadIdx.x] + x[threadIdx.x + step]; //!", "KEEP;", between, "x[threadIdx.x] = sum; //!", "KEEP;", behind, "}",
                "const unsigned value = x[0]; //?"]
    tree("warp_steps_synced", "__syncthreads();", steps("__syncwarp();", "__syncwarp();"), False, "missing-warp-sync")
    tree("warp_steps_one_sync", "__syncthreads();", steps("", "__syncwarp();"), True, "missing-warp-sync")
    tree("warp_steps_unsynced", "__syncthreads();", steps("", ""), True, "missing-warp-sync")
    tree("warp_steps_shuffle_between", "__syncthreads();",
         steps("if (__shfl_sync(0xffffffffu, sum, 0) == 1) out[1] = 1;", "if (__any_sync(0xffffffffu, sum == 1)) out[2] = 1;"), True,
         "missing-warp-sync")
    return micros


def unprotected_updates() -> list[Micro]:
    """Read-modify-write of one word by all threads."""
    micros = []
    updates = {"plain": ("x[0] = x[0] + 1;", True), "atomic": ("atomicAdd(&x[0], 1u);", False),
               "guarded": ("if (threadIdx.x == 0 && blockIdx.x == 0) x[0] = x[0] + 1;", False),
               "own_word": ("x[blockIdx.x * blockDim.x + threadIdx.x] += 1;", False),
               "cas_loop": ("unsigned old = ((volatile unsigned*)x)[0], assumed;\ndo { assumed = old; old = atomicCAS(&x[0], assumed, assumed + 2); } "
                            "while (old != assumed);", False)}
    for memory, party in (("static", "lanes"), ("static", "warps"), ("dynamic", "warps"), ("global", "lanes"), ("global", "warps"),
                          ("global", "blocks")):
        grid, block, _, _ = GEOMETRY[party]
        kind = CONFLICT[party]["global" if memory == "global" else "shared"]
        if party == "blocks":
            block = 1
        for name, (text, wrong) in updates.items():
            kernel = pair_kernel(f"update_{memory}_{party}_{name}", [*memory_lines(memory, party), f"{text} //!", "KEEP;"], wrong, kind,
                                 block=block, grid=grid, shared_bytes=1024 if memory == "dynamic" else 0)
            kernel.kinds += ["atomics-misuse", "missing-warp-sync"]
            micros.append(kernel)
    # In turns, one thread after another.
    for sync, wrong in (("__syncthreads();", False), ("__syncwarp();", True), ("", True)):
        name = {"__syncthreads();": "block_barrier", "__syncwarp();": "warp_barrier", "": "nothing"}[sync]
        kernel = pair_kernel(f"update_static_turns_{name}", [
            *SHARED_ZEROED, "#pragma unroll 1", "for (unsigned turn = 0; turn < 64; turn += 32) {",
            "if (threadIdx.x == turn) x[0] = x[0] + 1; //!", "KEEP;", sync, "}"], wrong, "race-shared")
        kernel.kinds.append("atomics-misuse")
        micros.append(kernel)
    return micros


def scopes() -> list[Micro]:
    """Two atomics on one word, each with a scope of its own."""
    micros = []
    inside = {"cta": ("warps",), "cluster": ("warps",), "gpu": ("warps", "blocks"), "sys": ("warps", "blocks")}
    for party in ("warps", "blocks"):
        grid, block, _, _ = GEOMETRY[party]
        who = "threadIdx.x < 32" if party == "warps" else "blockIdx.x == 0"
        for first, second in (("cta", "cta"), ("cta", "gpu"), ("gpu", "gpu"), ("gpu", "sys"), ("sys", "cta")):
            wrong = not (party in inside[first] and party in inside[second])
            kernel = pair_kernel(f"scope_global_{party}_{first}_{second}", [
                f"if ({who})", f"RED(\"relaxed.{first}.global.add.u32\", &data[3], 1); //!", "else",
                f"RED(\"relaxed.{second}.global.add.u32\", &data[3], 1); //!"], wrong, CONFLICT[party]["global"], block=block, grid=grid)
            kernel.kinds.append("atomics-misuse")
            micros.append(kernel)
    return micros
