"""Synchronisation as libraries write it: cooperative groups, cuda::barrier, cuda::atomic_ref. One translation unit, since
their headers take longer to compile than all other kernels together."""
from micro import Micro
from patterns import SHARED_ZEROED, pair_kernel

INCLUDES = ["#include <cooperative_groups.h>", "#include <cooperative_groups/reduce.h>", "#include <cuda/atomic>", "#include <cuda/barrier>",
            "namespace cg = cooperative_groups;", "#pragma nv_diag_suppress static_var_with_dynamic_init"]


def generate() -> list[Micro]:
    kernels = []
    for sync, wrong in (("cg::this_grid().sync();", False), ("", True), ("cg::this_thread_block().sync();", True)):
        name = "grid_sync" if "grid" in sync else "block_sync" if sync else "none"
        for pattern, first, second in (("write_read", "data[id] = id; //!", "out[id] = data[other]; //!"),
                                       ("read_write", "const unsigned seen = data[other]; //!", "data[id] = seen + 1; //!"),
                                       ("write_write", "data[id] = id; //!", "data[other] = id + 100; //!")):
            kernels.append(pair_kernel(f"groups_global_blocks_{pattern}_{name}", [
                "const unsigned id = blockIdx.x * 32 + threadIdx.x, other = (gridDim.x - 1 - blockIdx.x) * 32 + threadIdx.x;", first, "KEEP;", sync,
                second, "KEEP;"], wrong, "race-global", block=32, grid=4, cooperative=True))
    kernels.append(pair_kernel("groups_global_blocks_grid_sync_twice", [
        "const auto grid = cg::this_grid();", "const unsigned id = blockIdx.x * 32 + threadIdx.x, other = (gridDim.x - 1 - blockIdx.x) * 32 + threadIdx.x;",
        "unsigned sum = 0;", "for (unsigned i = 0; i < 3; i++) {", "data[id] = i;", "grid.sync();", "sum += data[other];", "grid.sync();", "}",
        "out[id] = sum;"], False, "race-global",
        block=32, grid=4, cooperative=True))
    warp = "cg::tiled_partition<32>(cg::this_thread_block())"
    for party, block, other, kind in (("lanes", 32, "31 - threadIdx.x", "missing-warp-sync"), ("warps", 64, "63 - threadIdx.x", "race-shared")):
        for name, text, orders in (("block_sync", "cg::this_thread_block().sync();", ("lanes", "warps")), ("tile_sync", f"{warp}.sync();", ("lanes",)),
                                   ("tile_shfl", f"out[2048 + threadIdx.x] = {warp}.shfl_xor(threadIdx.x, 1);", ()),
                                   ("reduce", f"out[2048 + threadIdx.x] = cg::reduce({warp}, threadIdx.x, cg::plus<unsigned>());", ())):
            kernels.append(pair_kernel(f"groups_static_{party}_write_read_{name}", [
                *SHARED_ZEROED, "x[threadIdx.x] = threadIdx.x; //!", "KEEP;", text, f"out[threadIdx.x] = x[{other}]; //!", "KEEP;"],
                party not in orders, kind, block=block))
    for width, wrong in ((16, True), (32, False)):  # the partner is in the other half
        kernels.append(pair_kernel(f"groups_static_lanes_tile_of_{width}", [
            *SHARED_ZEROED, "x[threadIdx.x] = threadIdx.x; //!", "KEEP;", f"cg::tiled_partition<{width}>(cg::this_thread_block()).sync();",
            "out[threadIdx.x] = x[31 - threadIdx.x]; //!", "KEEP;"], wrong, "missing-warp-sync", block=32))
    for name, between, wrong in (("arrive_and_wait", "barrier.arrive_and_wait();", False), ("arrive_only", "(void)barrier.arrive();", True),
                                 ("split", "auto token = barrier.arrive();\nbarrier.wait(std::move(token));", False)):
        kernels.append(pair_kernel(f"library_static_warps_barrier_{name}", [
            "__shared__ cuda::barrier<cuda::thread_scope_block> barrier;", "if (threadIdx.x == 0) init(&barrier, blockDim.x);", *SHARED_ZEROED,
            "x[threadIdx.x] = threadIdx.x; //!", "KEEP;", between, "out[threadIdx.x] = x[63 - threadIdx.x]; //!", "KEEP;"], wrong, "race-shared"))
    for scope, party, store, load, wrong in (
            ("device", "blocks", "release", "acquire", False), ("device", "blocks", "relaxed", "acquire", True),
            ("device", "blocks", "release", "relaxed", True), ("device", "blocks", "seq_cst", "seq_cst", False),
            ("block", "blocks", "release", "acquire", True), ("block", "warps", "release", "acquire", False), ("system", "blocks", "release", "acquire", False)):
        mark = "//?" if scope == "block" and party == "blocks" else ""
        who, partner = (("blockIdx.x == 0", "true") if party == "blocks" else ("threadIdx.x == 0", "threadIdx.x == 32"))
        first = "threadIdx.x == 0 && " if party == "blocks" else ""
        kernel = pair_kernel(f"library_global_{party}_atomic_ref_{scope}_{store}_{load}", [
            f"cuda::atomic_ref<unsigned, cuda::thread_scope_{scope}> flag(flags[0]);", f"if ({first}{who}) {{", "data[0] = 42; //!", "KEEP;",
            f"flag.store(1, cuda::std::memory_order_{store}); {mark}", f"}} else if ({first}{partner}) {{",
            f"while (flag.load(cuda::std::memory_order_{load}) == 0) {{}} {mark}", "out[0] = data[0]; //!", "KEEP;", "}"], wrong, "race-global",
            block=32 if party == "blocks" else 64, grid=2 if party == "blocks" else 1)
        kernel.kinds.append("atomics-misuse")
        kernels.append(kernel)
    return kernels
