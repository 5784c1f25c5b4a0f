"""Copies that go on by themselves (cp.async, bulk copies), mbarriers, and clusters with their distributed shared memory."""
from micro import Micro
from patterns import pair_kernel, SHARED_ZEROED

TILES = ["__shared__ __align__(16) unsigned x[256];", "ESCAPE(x);", "for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) x[i] = 0;",
         "__syncthreads();"]


def copies() -> list[Micro]:
    """cp.async: the copy is done for its own thread after a wait, for others after a barrier behind that."""
    kernels = []
    waits = {  # name -> (text between copy and read, is the first group waited for)
        "nothing": ("", False),
        "commit": ("COPY_COMMIT;", False),
        "wait_0": ("COPY_COMMIT;\nCOPY_WAIT(0);", True),
        "wait_all": ("COPY_WAIT_ALL;", True),
        "wait_1_of_1": ("COPY_COMMIT;\nCOPY_WAIT(1);", False),
        "wait_0_without_commit": ("COPY_WAIT(0);", False),
        "wait_1_of_2": ("COPY_COMMIT;\nCOPY_ASYNC(&x[64 + threadIdx.x], &data[64 + threadIdx.x], 4);\nCOPY_COMMIT;\nCOPY_WAIT(1);", True),
        "wait_0_of_2": ("COPY_COMMIT;\nCOPY_ASYNC(&x[64 + threadIdx.x], &data[64 + threadIdx.x], 4);\nCOPY_COMMIT;\nCOPY_WAIT(0);", True),
        "wait_2_of_2": ("COPY_COMMIT;\nCOPY_ASYNC(&x[64 + threadIdx.x], &data[64 + threadIdx.x], 4);\nCOPY_COMMIT;\nCOPY_WAIT(2);", False),
    }
    for name, (text, waited) in waits.items():
        for reader in ("own", "other"):
            for barrier in ("none", "syncthreads"):
                if reader == "own" and barrier != "none" and name not in ("nothing", "wait_0"):
                    continue
                wrong = not waited or (reader == "other" and barrier == "none")
                kernel = pair_kernel(f"copy_static_warps_{name}_{reader}_{barrier}", [
                    *TILES, "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4); //!", text, "__syncthreads();" if barrier != "none" else "",
                    f"out[threadIdx.x] = x[{'threadIdx.x' if reader == 'own' else '63 - threadIdx.x'}]; //!", "KEEP;",
                    # What is outstanding at the end of the kernel is nobody's fault.
                    ], wrong, "race-shared")
                kernels.append(kernel)
    # The second of two groups is read, but only the first is waited for.
    for groups, wrong in ((0, False), (1, True)):
        kernels.append(pair_kernel(f"copy_static_warps_second_group_wait_{groups}", [
            *TILES, "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4);", "COPY_COMMIT;",
            "COPY_ASYNC(&x[64 + threadIdx.x], &data[64 + threadIdx.x], 4); //!", "COPY_COMMIT;", f"COPY_WAIT({groups});", "__syncthreads();",
            "out[threadIdx.x] = x[127 - threadIdx.x]; //!", "KEEP;"], wrong, "race-shared"))
    # Write behind a read: the copy overwrites what others still read.
    for barrier, wrong in (("__syncthreads();", False), ("__syncwarp();", True), ("", True)):
        word = {"__syncthreads();": "syncthreads", "__syncwarp();": "syncwarp", "": "none"}[barrier]
        kernels.append(pair_kernel(f"copy_static_warps_overwrites_read_{word}", [
            *TILES, "const unsigned seen = x[63 - threadIdx.x]; //!", "KEEP;", barrier, "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4); //!",
            "COPY_WAIT_ALL;", "out[threadIdx.x] = seen;"], wrong, "race-shared"))
    # The thread itself stores to the destination, or to the source, of a copy that is under way.
    for target, kind in (("x", "race-shared"), ("data", "race-global")):
        for wait, wrong in (("COPY_WAIT_ALL;", False), ("", True)):
            kernels.append(pair_kernel(f"copy_static_warps_store_to_{'destination' if target == 'x' else 'source'}_{'waited' if wait else 'at_once'}", [
                *TILES, "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4); //!", wait, f"{target}[threadIdx.x] = 5; //!", "KEEP;", "COPY_WAIT_ALL;",
                "out[threadIdx.x] = x[threadIdx.x];"], wrong, kind))
    # A pipeline of two or three stages; an epilogue in the same memory.
    for stages, groups, barrier, wrong in ((2, 1, True, False), (2, 2, True, True), (2, 1, False, True), (3, 2, True, False), (3, 3, True, True)):
        prologue = [f"for (unsigned i = 0; i < {stages - 1}; i++) {{ COPY_ASYNC(&x[i * 64 + threadIdx.x], &data[i * 64 + threadIdx.x], 4); //!",
                    "COPY_COMMIT; }"]
        kernels.append(pair_kernel(f"copy_static_warps_pipeline_{stages}_stages_wait_{groups}_{'both' if barrier else 'one'}_barrier", [
            *TILES, "unsigned sum = 0;", "#pragma unroll 1", *prologue, "#pragma unroll 1", "for (unsigned i = 0; i < 8; i++) {",
            f"const unsigned next = i + {stages - 1};",
            f"if (next < 8) COPY_ASYNC(&x[next % {stages} * 64 + threadIdx.x], &data[next * 64 + threadIdx.x], 4); //!",
            "COPY_COMMIT;", f"COPY_WAIT({groups});", "__syncthreads();", f"sum += x[i % {stages} * 64 + 63 - threadIdx.x]; //!", "KEEP;",
            "__syncthreads();" if barrier else "", "}", "out[threadIdx.x] = sum;"], wrong, "race-shared"))
    for wait, wrong in (("COPY_WAIT(0);\n__syncthreads();", False), ("__syncthreads();", True), ("COPY_WAIT(0);", True)):
        name = {"COPY_WAIT(0);\n__syncthreads();": "wait_and_barrier", "__syncthreads();": "barrier_only", "COPY_WAIT(0);": "wait_only"}[wait]
        kernels.append(pair_kernel(f"copy_static_warps_epilogue_{name}", [
            *TILES, "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4); //!", "COPY_COMMIT;", "KEEP;", wait, "x[63 - threadIdx.x] = 5; //!",
            "KEEP;", "__syncthreads();", "out[threadIdx.x] = x[threadIdx.x]; //?"], wrong, "race-shared"))
    # Completion through an mbarrier.
    for wait, wrong in ((True, False), (False, True)):
        kernels.append(pair_kernel(f"copy_static_warps_mbarrier_{'waited' if wait else 'not_waited'}", [
            "__shared__ __align__(8) uint64_t barrier;", "if (threadIdx.x == 0) MBARRIER_INIT(&barrier, 64);", *TILES,
            "COPY_ASYNC(&x[threadIdx.x], &data[threadIdx.x], 4); //!", "COPY_MBARRIER_ARRIVE(&barrier);", "MBARRIER_WAIT(&barrier, 0);" if wait else "",
            "out[threadIdx.x] = x[63 - threadIdx.x]; //!", "KEEP;"], wrong, "race-shared"))
    return kernels


def mbarriers() -> list[Micro]:
    kernels = []

    def start(count: int) -> list[str]:
        return ["__shared__ __align__(8) uint64_t barrier;", f"if (threadIdx.x == 0) MBARRIER_INIT(&barrier, {count});", *SHARED_ZEROED]

    arrive, wait = "MBARRIER_ARRIVE(&barrier);", "MBARRIER_WAIT(&barrier, 0);"
    ways = {"arrive_wait": (f"{arrive}\n{wait}", False), "arrive_only": (arrive, True), "phase_before": (f"MBARRIER_WAIT(&barrier, 1);\n{arrive}", True),
            "tested_once": (f"{arrive}\nif (MBARRIER_TRY(&barrier, 1)) out[2048 + threadIdx.x] = 1;", True)}
    for pattern, first, second in (("write_read", "x[threadIdx.x] = threadIdx.x; //!", "out[threadIdx.x] = x[63 - threadIdx.x]; //!"),
                                   ("read_write", "const unsigned seen = x[63 - threadIdx.x]; //!", "x[threadIdx.x] = seen + 1; //!"),
                                   ("write_write", "x[threadIdx.x] = threadIdx.x; //!", "x[63 - threadIdx.x] = 99; //!")):
        for name, (text, wrong) in ways.items():
            kernels.append(pair_kernel(f"mbarrier_static_warps_{pattern}_{name}", [*start(64), first, "KEEP;", text, second, "KEEP;"], wrong,
                                       "race-shared"))
    # One warp arrives, the other waits.
    for name, first, second, wrong in (("writer_arrives", arrive, wait, False), ("arrives_too_early", "", wait, True),
                                       ("reader_does_not_wait", arrive, "", True)):
        early = arrive if name == "arrives_too_early" else ""
        kernels.append(pair_kernel(f"mbarrier_static_warps_one_way_{name}", [
            *start(32), "if (threadIdx.x < 32) {", early, "x[threadIdx.x] = 3; //!", "KEEP;", first, "} else {", second,
            "out[threadIdx.x] = x[63 - threadIdx.x]; //!", "KEEP;", "}"], wrong, "race-shared"))
    # A second round: it needs arrivals and a phase of its own.
    for name, text, wrong in (("next_phase", f"{arrive}\nMBARRIER_WAIT(&barrier, 1);", False), ("stale_phase", wait, True)):
        kernels.append(pair_kernel(f"mbarrier_static_warps_second_round_{name}", [
            *start(64), arrive, wait, "x[threadIdx.x] = 3; //!", "KEEP;", text, "out[threadIdx.x] = x[63 - threadIdx.x]; //!", "KEEP;"], wrong,
            "race-shared"))
    # Producer and consumer warp with "full" and "empty" barriers over two buffers.
    for empty, wrong in ((True, False), (False, True)):
        kernels.append(pair_kernel(f"mbarrier_static_warps_full_{'and_empty' if empty else 'only'}", [
            "__shared__ __align__(8) uint64_t full[6], empty[6];",
            "if (threadIdx.x < 6) { MBARRIER_INIT(&full[threadIdx.x], 32); MBARRIER_INIT(&empty[threadIdx.x], 32); }", *SHARED_ZEROED,
            "if (threadIdx.x < 32) {", "#pragma unroll 1", "for (unsigned i = 0; i < 6; i++) {",
            "if (i >= 2) MBARRIER_WAIT(&empty[i - 2], 0);" if empty else "", "x[i % 2 * 32 + threadIdx.x] = i; //!", "KEEP;",
            "MBARRIER_ARRIVE(&full[i]);", "}", "} else {", "unsigned sum = 0;", "#pragma unroll 1", "for (unsigned i = 0; i < 6; i++) {",
            "MBARRIER_WAIT(&full[i], 0);", "sum += x[i % 2 * 32 + 63 - threadIdx.x]; //!", "KEEP;", "MBARRIER_ARRIVE(&empty[i]);", "}",
            "out[threadIdx.x] = sum;", "}"], wrong, "race-shared"))
    return kernels


def bulk() -> list[Micro]:
    kernels = []
    init = ["__shared__ __align__(8) uint64_t barrier;", "if (threadIdx.x == 0) { MBARRIER_INIT(&barrier, 1); PROXY_FENCE; }"]
    load = ["if (threadIdx.x == 0) {", "MBARRIER_ARRIVE_EXPECT(&barrier, 256);", "BULK_LOAD(x, data, 256, &barrier); //!", "}"]
    tile = ["__shared__ __align__(128) unsigned x[256];", "ESCAPE(x);"]
    for name, wait, wrong in (("all_wait", "MBARRIER_WAIT(&barrier, 0);", False), ("nobody_waits", "", True), ("barrier_only", "__syncthreads();", True),
                              ("one_waits", "if (threadIdx.x == 0) MBARRIER_WAIT(&barrier, 0);", True),
                              ("one_waits_and_barrier", "if (threadIdx.x == 0) MBARRIER_WAIT(&barrier, 0);\n__syncthreads();", False)):
        # Without a wait the bytes may still be unwritten: zeroed first, which the copy is ordered behind.
        kernels.append(pair_kernel(f"bulk_static_warps_load_{name}", [
            *tile, *init, "x[threadIdx.x] = 0;", "PROXY_FENCE;", "__syncthreads();", *load, wait, "out[threadIdx.x] = x[63 - threadIdx.x]; //!",
            "KEEP;"], wrong, "race-shared"))
    for name, between, wrong in (("barrier", "__syncthreads();", False), ("barrier_and_fence", "PROXY_FENCE;\n__syncthreads();", False), ("none", "", True)):
        kernels.append(pair_kernel(f"bulk_static_warps_load_over_read_{name}", [
            *tile, *init, "__shared__ __align__(8) uint64_t second;", "if (threadIdx.x == 0) { MBARRIER_INIT(&second, 1); PROXY_FENCE; }",
            "__syncthreads();", *[line.replace(" //!", "") for line in load], "MBARRIER_WAIT(&barrier, 0);",
            "out[threadIdx.x] = x[63 - threadIdx.x]; //!", "KEEP;", between,
            *[line.replace("data", "data + 64").replace("&barrier", "&second") for line in load], "MBARRIER_WAIT(&second, 0);",
            "out[64 + threadIdx.x] = x[threadIdx.x];" if not wrong else ""], wrong, "race-shared"))
    # Stores: the generic writes need a proxy fence before the copy reads them.
    for name, fence, barrier, wrong in (("fence_and_barrier", "PROXY_FENCE;", "__syncthreads();", False), ("no_fence", "", "__syncthreads();", True),
                                        ("no_barrier", "PROXY_FENCE;", "", True), ("neither", "", "", True)):
        kernels.append(pair_kernel(f"bulk_static_warps_store_{name}", [
            *tile, "x[threadIdx.x] = threadIdx.x; //!", "KEEP;", fence, barrier, "if (threadIdx.x == 0) {", "BULK_STORE(data, x, 256); //!",
            "BULK_COMMIT;", "BULK_WAIT(0);", "}"], wrong, "race-shared"))
    for name, wait, wrong in (("wait_read", "BULK_WAIT_READ(0);", False), ("wait", "BULK_WAIT(0);", False), ("nothing", "", True)):
        kernels.append(pair_kernel(f"bulk_static_warps_store_then_overwrite_{name}", [
            *tile, "x[threadIdx.x] = threadIdx.x;", "PROXY_FENCE;", "__syncthreads();", "if (threadIdx.x == 0) {", "BULK_STORE(data, x, 256); //!",
            "BULK_COMMIT;", wait, "x[3] = 77; //!", "KEEP;", "BULK_WAIT(0);", "}"], wrong, "race-shared"))
    for name, wait, wrong in (("wait", "BULK_WAIT(0);", False), ("wait_read", "BULK_WAIT_READ(0);", True), ("nothing", "", True)):
        kernels.append(pair_kernel(f"bulk_static_warps_store_then_load_result_{name}", [
            *tile, "x[threadIdx.x] = threadIdx.x;", "PROXY_FENCE;", "__syncthreads();", "if (threadIdx.x == 0) {", "BULK_STORE(data, x, 256); //!",
            "BULK_COMMIT;", wait, "out[0] = data[3]; //!", "KEEP;", "BULK_WAIT(0);", "}"], wrong, "race-global"))
    return kernels


def clusters() -> list[Micro]:
    kernels = []
    entry = ["__shared__ __align__(16) unsigned x[64];", "ESCAPE(x);", "x[threadIdx.x] = x[32 + threadIdx.x] = 0;",
             "const unsigned rank = CLUSTER_RANK, id = blockIdx.x * 32 + threadIdx.x;", "unsigned* const there = REMOTE(x, rank ^ 1);", "CLUSTER_SYNC;"]
    syncs = {"none": ("", False), "cluster_sync": ("CLUSTER_SYNC;", True),
             "arrive_release_wait_acquire": ("PTX(\"barrier.cluster.arrive.release.aligned;\");\nPTX(\"barrier.cluster.wait.acquire.aligned;\");", True),
             "arrive_relaxed": ("PTX(\"barrier.cluster.arrive.relaxed.aligned;\");\nPTX(\"barrier.cluster.wait.aligned;\");", False),
             "fence_arrive_relaxed": ("FENCE(\"acq_rel.cluster\");\nPTX(\"barrier.cluster.arrive.relaxed.aligned;\");\nPTX(\"barrier.cluster.wait.aligned;\");", True),
             "unaligned": ("PTX(\"barrier.cluster.arrive;\");\nPTX(\"barrier.cluster.wait;\");", True),
             "syncthreads": ("__syncthreads();", False), "fence": ("FENCE(\"acq_rel.cluster\");", False)}
    patterns = {"write_read": ("there[threadIdx.x] = id; //!", "out[id] = x[threadIdx.x]; //!"),
                "read_write": ("const unsigned seen = there[threadIdx.x]; //!", "x[threadIdx.x] = seen + 1; //!"),
                "write_write": ("there[threadIdx.x] = id; //!", "x[threadIdx.x] = id + 100; //!"),
                "atomic_read": ("atomicAdd(&there[threadIdx.x], 1u); //!", "out[id] = x[threadIdx.x]; //!"),
                "read_read_remote": ("x[threadIdx.x] = id; //!", "out[id] = there[threadIdx.x]; //!")}
    for pattern, (first, second) in patterns.items():
        for name, (text, orders) in syncs.items():
            if pattern not in ("write_read", "read_read_remote") and name not in ("none", "cluster_sync", "arrive_relaxed", "syncthreads"):
                continue
            kernels.append(pair_kernel(f"cluster_distributed_cluster_{pattern}_{name}", [*entry, first, "KEEP;", text, second, "KEEP;", "CLUSTER_SYNC;"],
                                       not orders, "race-shared", block=32, grid=2, cluster=2))
    kernels.append(pair_kernel("cluster_distributed_cluster_atomic_atomic_none", [
        *entry, "atomicAdd(&there[3], 1u);", "atomicAdd(&x[3], 1u);", "CLUSTER_SYNC;", "out[id] = x[3];"], False, "race-shared", block=32, grid=2, cluster=2))
    for release, acquire, wrong in (("release.cluster", "acquire.cluster", False), ("release.gpu", "acquire.gpu", False),
                                    ("release.cta", "acquire.cluster", True), ("release.cluster", "relaxed.cluster", True),
                                    ("relaxed.cluster", "acquire.cluster", True)):
        narrow = "//?" if "cta" in release else ""
        kernel = pair_kernel(f"cluster_distributed_cluster_flag_{release.replace('.', '_')}_{acquire.replace('.', '_')}", [
            *entry, "if (threadIdx.x == 0 && rank == 0) {", "there[0] = 42; //!", "KEEP;", f"ST(\"{release}\", there + 1, 1); {narrow}",
            "} else if (threadIdx.x == 0) {", f"while (LD(\"{acquire}\", x + 1) == 0) {{}} {narrow}", "out[0] = x[0]; //!", "KEEP;", "}", "CLUSTER_SYNC;"],
            wrong, "race-shared", block=32, grid=2, cluster=2)
        kernel.kinds.append("atomics-misuse")
        kernels.append(kernel)
    # Global memory: a cluster's barrier orders the blocks of one cluster, not of two.
    for partner, wrong in (("blockIdx.x ^ 1", False), ("blockIdx.x ^ 2", True)):
        for pattern, first, second in (("write_read", "data[id] = id; //!", "out[id] = data[other]; //!"),
                                       ("write_write", "data[id] = id; //!", "data[other] = id + 100; //!")):
            kernels.append(pair_kernel(f"cluster_global_{'blocks' if wrong else 'cluster'}_{pattern}_cluster_sync_partner_{partner[-1]}", [
                f"const unsigned id = blockIdx.x * 32 + threadIdx.x, other = ({partner}) * 32 + threadIdx.x;", first, "KEEP;", "CLUSTER_SYNC;",
                second, "KEEP;"], wrong, "race-global", block=32, grid=4, cluster=2))
    return kernels


def generate() -> list[Micro]:
    return copies() + mbarriers() + bulk() + clusters()
