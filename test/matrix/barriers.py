"""Barriers and warp masks that the threads named do not all reach; and right code that looks like it."""
from micro import Micro
from patterns import pair_kernel

# What is wrong with a barrier, and what it comes to when the threads wait for each other for ever.
DIVERGENCE, FOREVER = "barrier-divergence", "deadlock"


def generate() -> list[Micro]:
    kernels = []

    def add(name, body, wrong, block=64, kinds=(DIVERGENCE,), **fields):
        kernel = pair_kernel(f"barrier_{name}", body, wrong, kinds[0], block=block, **fields)
        kernel.kinds += kinds[1:]
        kernels.append(kernel)

    end = "out[blockIdx.x * blockDim.x + threadIdx.x] = 1;"
    # ---- Block barriers
    add("half_warp", ["if (threadIdx.x < 16) __syncthreads(); //!", end], True, block=32)
    add("odd_lanes", ["if (threadIdx.x % 2) __syncthreads(); //!", end], True)
    add("whole_warp_leaves", ["if (threadIdx.x >= 32) return; //?", "__syncthreads(); //!", end], True)
    add("half_a_warp_leaves", ["if (threadIdx.x >= 48) return; //?", "__syncthreads(); //!", end], True)
    add("trips_per_lane", ["#pragma unroll 1", "for (unsigned i = 0; i < 1 + threadIdx.x % 2; i++) __syncthreads(); //!", end], True)
    add("trips_per_warp", ["#pragma unroll 1", "for (unsigned i = 0; i < 1 + threadIdx.x / 32; i++) __syncthreads(); //!", end], True)
    add("two_places", ["if (threadIdx.x < 32) {", "out[64 + threadIdx.x] = 3;", "__syncthreads(); //!", "out[96 + threadIdx.x] = 4;", "} else {", "__syncthreads(); //!", end, "}"], True)
    add("data_decides", ["if (data[threadIdx.x] + threadIdx.x < 40) __syncthreads(); //!", end], True)
    add("uniform_condition", ["if (data[0] == 0) __syncthreads();", end], False)
    add("block_decides", ["if (blockIdx.x == 1) __syncthreads();", end], False, grid=3)
    add("block_leaves", ["if (blockIdx.x == 1) return;", "__syncthreads();", end], False, grid=3)
    add("uniform_trips", ["#pragma unroll 1", "for (unsigned i = 0; i < 1 + blockIdx.x; i++) __syncthreads();", end], False, grid=3)
    add("after_divergence", ["if (threadIdx.x % 3 == 0) out[100 + threadIdx.x] = 1; else out[200 + threadIdx.x] = 2;", "__syncthreads();", end], False)
    add("odd_block_size", ["__syncthreads();", end], False, block=48)
    add("leaves_behind", ["__syncthreads();", "if (threadIdx.x >= 32) return;", end], False)
    add("leaves_before_named", ["if (threadIdx.x >= 32) return;", "BARRIER(\"sync\", 1, 32);", end], False)
    # ---- Named barriers
    add("count_no_multiple_of_warp", ["BARRIER(\"sync\", 1, 48); //!", end], True, block=48, alone=True)
    add("ids_differ", ["if (threadIdx.x < 32) { BARRIER(\"sync\", 1, 64); //!", "} else { BARRIER(\"sync\", 2, 64); //!", "}", end], True,
        kinds=(DIVERGENCE, FOREVER), alone=True)
    add("counts_differ", ["if (threadIdx.x < 32) { BARRIER(\"sync\", 1, 64); //!", "} else { BARRIER(\"sync\", 1, 96); //!", "}", end], True,
        kinds=(DIVERGENCE, FOREVER), alone=True)
    add("count_too_large", ["BARRIER(\"sync\", 1, 96); //!", end], True, kinds=(DIVERGENCE, FOREVER), alone=True)
    add("arrive_without_sync", ["if (threadIdx.x < 32) BARRIER(\"arrive\", 1, 64); else BARRIER(\"sync\", 1, 64);", end], False)
    add("halves_of_their_own", ["BARRIER(\"sync\", 1 + threadIdx.x / 64, 64);", end], False, block=128)
    add("three_of_four_warps", ["if (threadIdx.x < 96) BARRIER(\"sync\", 1, 96);", end], False, block=128)
    add("named_from_two_places", ["if (threadIdx.x < 32) { out[100 + threadIdx.x] = 1; BARRIER(\"sync\", 1, 64); out[200 + threadIdx.x] = 2; } else { BARRIER(\"sync\", 1, 64); }", end], False)
    # ---- Warps. A mask may name lanes that have left, so the other lanes have something left to do.
    behind = "out[64 + threadIdx.x] = 1;"
    add("syncwarp_full_in_half", ["if (threadIdx.x < 16) __syncwarp(); //!", "KEEP;", behind], True, block=32, kinds=(DIVERGENCE, "missing-warp-sync"))
    add("syncwarp_not_in_mask", ["if (threadIdx.x >= 16) __syncwarp(0x0000ffffu); //!", end], True, block=32, kinds=(DIVERGENCE, "missing-warp-sync"),
        alone=True)
    add("shfl_full_in_half", ["if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 3); //!", "KEEP;", behind], True, block=32,
        kinds=(DIVERGENCE, "missing-warp-sync"))
    add("ballot_full_in_half", ["if (threadIdx.x < 16) out[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x & 1); //!", "KEEP;", behind], True, block=32,
        kinds=(DIVERGENCE, "missing-warp-sync"))
    add("syncwarp_mask_of_half", ["if (threadIdx.x < 16) __syncwarp(0x0000ffffu);", end], False, block=32)
    add("shfl_mask_of_half", ["if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0x0000ffffu, threadIdx.x, 3);"], False, block=32)
    add("syncwarp_activemask", ["if (threadIdx.x % 2) __syncwarp(0xaaaaaaaau);", end], False, block=32)
    add("syncwarp_after_exit", ["if (threadIdx.x >= 16) return;", "__syncwarp(0x0000ffffu);", end], False, block=32)
    add("shfl_short_block", ["out[threadIdx.x] = __shfl_sync(0x000fffffu, threadIdx.x, 3);"], False, block=20)
    add("ballot_then_mask", ["const unsigned mask = __ballot_sync(0xffffffffu, threadIdx.x < 10);",
                             "if (threadIdx.x < 10) out[threadIdx.x] = __shfl_sync(mask, threadIdx.x, 0);"], False, block=32)
    # ---- mbarriers
    state = ["__shared__ __align__(8) uint64_t barrier;", "ESCAPE(&barrier);"]
    invalid = (DIVERGENCE, "uninitialised-read", "race-shared")
    add("mbarrier_uninitialised", [*state, "MBARRIER_ARRIVE(&barrier); //!", end], True, block=32, kinds=invalid, alone=True)
    add("mbarrier_after_inval", [*state, "if (threadIdx.x == 0) MBARRIER_INIT(&barrier, 32); //?", "__syncthreads();",
                                 "if (threadIdx.x == 0) asm volatile(\"mbarrier.inval.shared::cta.b64 [%0];\" ::\"r\"(SHARED_ADDRESS(&barrier)) : \"memory\"); //?",
                                 "__syncthreads();", "MBARRIER_ARRIVE(&barrier); //!", end], True, block=32, kinds=invalid, alone=True)
    add("mbarrier_overwritten", [*state, "if (threadIdx.x == 0) MBARRIER_INIT(&barrier, 32); //?", "__syncthreads();",
                                 "if (threadIdx.x == 0) barrier = 12345; //?", "__syncthreads();", "MBARRIER_ARRIVE(&barrier); //!", end], True, block=32,
        kinds=invalid, alone=True)
    add("mbarrier_init_unordered", [*state, "if (threadIdx.x == 0) MBARRIER_INIT(&barrier, 64); //!", "MBARRIER_ARRIVE(&barrier); //!", end], True,
        kinds=(*invalid, "missing-warp-sync"), alone=True)
    add("mbarrier_reinitialised", [*state, "for (unsigned i = 0; i < 2; i++) {", "if (threadIdx.x == 0) MBARRIER_INIT(&barrier, 64);", "__syncthreads();",
                                   "MBARRIER_ARRIVE(&barrier);", "MBARRIER_WAIT(&barrier, 0);", "__syncthreads();",
                                   "if (threadIdx.x == 0) asm volatile(\"mbarrier.inval.shared::cta.b64 [%0];\" ::\"r\"(SHARED_ADDRESS(&barrier)) : \"memory\");",
                                   "__syncthreads();", "}", end], False)
    add("mbarrier_too_few_arrive", [*state, "if (threadIdx.x == 0) MBARRIER_INIT(&barrier, 65);", "__syncthreads();", "MBARRIER_ARRIVE(&barrier);",
                                    "MBARRIER_WAIT(&barrier, 0); //!", end], True, kinds=(FOREVER,), alone=True)
    # ---- Waiting for ever
    add("flag_never_set", ["while (LD(\"acquire.gpu\", flags) == 0) {} //!", end], True, kinds=(FOREVER,), alone=True)
    add("lock_never_given_back", ["if (threadIdx.x % 32 == 0) {", "while (CAS(\"acquire.gpu\", flags, 0, 1) != 0) {} //!", "out[0] = 1;", "}"], True,
        kinds=(FOREVER, "race-global"), alone=True)
    add("block_waits_for_itself", ["if (threadIdx.x == 0) { while (LD(\"acquire.cta\", flags) == 0) {} //!", "}", "__syncthreads(); //!",
                                   "if (threadIdx.x == 32) ST(\"release.cta\", flags, 1);"], True, kinds=(FOREVER,), alone=True)
    return kernels
