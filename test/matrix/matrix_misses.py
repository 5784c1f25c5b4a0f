"""What the checkers do not decide yet, by name and with the reason. Whatever is listed here and is decided after all makes
the test fail, so the table stays true.
"""

# What the instrumented kernel does not follow. On the CPU device the exact checks, which are the default there, find all of it.
NOT_ON_THE_DEVICE = {
    r"barrier_(ids_differ|counts_differ|count_too_large|mbarrier_too_few_arrive|flag_never_set|lock_never_given_back|block_waits_for_itself)_wrong":
        "a deadlock: the kernel itself cannot tell that nobody comes any more",
    r"barrier_count_no_multiple_of_warp_wrong": "counts of named barriers are not judged on the device",
    r"barrier_mbarrier_(uninitialised|after_inval|overwritten|init_unordered)_wrong": "the state of mbarriers is not followed on the device",
    r"barrier_(shfl|ballot)_full_in_half_wrong": "of the masks only that of bar.warp.sync is judged on the device",
    r"bulk_.*_wrong": "accesses of bulk copies (the asynchronous proxy) are not followed on the device",
    r"cluster_distributed_cluster_(write_read|read_write|write_write|atomic_read|read_read_remote)_.*_wrong":
        "accesses to another block's shared memory have no cells on the device",
    r"copy_static_warps_(nothing|commit|wait_1_of_1|wait_0_without_commit|wait_2_of_2)_(own_(none|syncthreads)|other_syncthreads)_wrong":
        "on the device a cp.async counts as done when it is issued: missing waits are not found",
    r"copy_static_warps_(second_group_wait_1|store_to_(destination|source)_at_once|pipeline_._stages_wait_(2|3)_both_barrier|epilogue_barrier_only)_wrong":
        "on the device a cp.async counts as done when it is issued: missing waits are not found",
    r"init_(dynamic|local)_.*_wrong": "local and dynamic shared memory have no written state on the device",
    r"init_(static|global)_address_32_of_64_written_wrong": "on the device a read matters when its value is stored, compared or computed with",
    r"init_(static|global)_3_bytes_mask_ffffff_wrong": "words of which a part is written are not reported on the device, since their tails are often masked",
    r"init_static_bulk_writes_32_words_wrong": "accesses of bulk copies are not followed on the device",
    r"streams_graph_(branches_parallel|launch_nothing)_wrong": "kernels of graphs are not checked for races on the device: a replay would need tickets of its own",
    r"streams_dependent_launch_(no_wait|wait_behind_the_read)_wrong": "on the device a programmatic dependent launch counts as a plain one",
}

# mode ("emulator-exact", "emulator-ptx", "gpu-ptx") -> {regular expression for the whole name: reason}
TABLES: dict[str, dict[str, str]] = {
    "emulator-exact": {},
    "emulator-ptx": NOT_ON_THE_DEVICE,
    # Deadlocks are not run on a GPU at all.
    "gpu-ptx": {name: reason for name, reason in NOT_ON_THE_DEVICE.items() if not reason.startswith("a deadlock")},
}


def table(mode: str) -> dict[str, str]:
    return TABLES[mode]
