"""Hand-written captures, made again on the CPU device. Most kernels trap if anything is not as it was captured, so that
"complete" says that everything was in its place."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))
PROTOC = os.environ.get("PROTOC") or shutil.which("protoc")
BASE = 0x1500_0000_0000  # where no library lies

HEADER = ".version 8.5\n.target sm_90\n.address_size 64\n"


def entry(body: str, parameters=("a",), name="kernel", before="") -> str:
    declared = ", ".join(f".param .u64 {parameter}" for parameter in parameters)
    loads = "".join(f"ld.param.u64 %rd{i}, [{parameter}];\n" for i, parameter in enumerate(parameters))
    return (f"{HEADER}{before}\n.visible .entry {name}({declared})\n{{\n.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>;\n"
            f"mov.u32 %r0, %tid.x;\n{loads}{body}\nret;\n}}\n")


def expect(register: str, value: int, kind="u32", predicate=0) -> str:
    return f"setp.ne.{kind} %p{predicate}, {register}, {value}; @%p{predicate} trap;\n"


def text(value) -> str:
    """A value as protobuf text."""
    if isinstance(value, bytes):
        return '"' + "".join(f"\\{byte:03o}" for byte in value) + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{ " + fields(value) + " }"
    return str(value)


def fields(message: dict) -> str:
    lines = []
    for name, value in message.items():
        for item in value if isinstance(value, list) else [value]:
            lines.append(f"{name}: {text(item)}")
    return " ".join(lines)


def dim(x: int, y: int = 1, z: int = 1) -> dict:
    return {"x": x, "y": y, "z": z}


def launch(*parameters, block=32, grid=1, **others) -> dict:
    packed = b"".join(p if isinstance(p, bytes) else struct.pack("<Q", p) for p in parameters)
    return {"launch_id": 1, "module_id": 1, "kernel": "kernel", "grid": dim(grid), "block": dim(block), "parameters": packed, **others}


def memory(address: int, content: bytes, **others) -> dict:
    return {"address": address, "content": content, **others}


def capture_of(ptx: str, launches: list, memories: list = [], variables: list = [], **others) -> dict:
    return {"model": "sm_90", "modules": [{"module_id": 1, "ptx": ptx.encode(), "variables": variables}],
            "memory": memories, "launches": launches, **others}


@pytest.fixture
def write(tmp_path):
    def do(capture: dict) -> pathlib.Path:
        path = tmp_path / "capture"
        encoded = subprocess.run([PROTOC, "--encode=ops_debug.proto.Capture", "-I", str(ROOT), "proto/capture.proto"],
                                 input=fields(capture).encode(), cwd=ROOT, capture_output=True, check=True)
        path.write_bytes(encoded.stdout)
        return path

    return do


@pytest.fixture
def replay(write):
    """replay(capture): (word, reason), without checks. The exit status must say the same."""
    codes = {"complete": 0, "damaged": 3, "unplaceable": 4, "unsupported": 5, "failed": 6, "deadlock": 7, "waits": 8, "spins": 9}

    def run(capture, *before) -> tuple[str, str]:
        path = capture if isinstance(capture, pathlib.Path) else write(capture)
        result = subprocess.run([*before, str(BUILD / "ops-debug-replayer"), str(path)], capture_output=True, text=True, timeout=60,
                                env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "emulator")})
        word, reason = pathlib.Path(f"{path}.result").read_text().split("\n", 1)
        assert result.returncode == codes[word], result.stderr
        assert result.stdout == ""
        return word, reason.strip()

    return run


@pytest.fixture
def check(write, tmp_path):
    """check(capture, "race"): the findings of the replay."""

    def run(capture: dict, checks: str) -> list[dict]:
        report = tmp_path / "report.json"
        path = write(capture)
        subprocess.run([str(BUILD / "ops-debug"), "run", "--device", "emulator", "--check", checks, "--format", "json", "--output", str(report),
                        "--", str(BUILD / "ops-debug-replayer"), str(path)], capture_output=True, text=True, timeout=60)
        return json.loads(report.read_text())["findings"]

    return run


# ---- memory


def test_blocks_are_at_their_addresses_with_their_contents(replay):
    body = ("ld.global.u64 %rd2, [%rd0];\n" + "setp.ne.u64 %p1, %rd2, %rd1; @%p1 trap;\n"
            "ld.u32 %r2, [%rd2+4];\n" + expect("%r2", 77) + "st.global.u32 [%rd1], %r2;")
    first, second = BASE + 0x300, BASE + 0x500  # in one page
    capture = capture_of(entry(body, ("a", "b")), [launch(first, second)],
                         [memory(first, struct.pack("<Q", second)), memory(second, struct.pack("<II", 0, 77))])
    assert replay(capture) == ("complete", "")


def test_memory_of_the_host_is_there_too(replay):
    capture = capture_of(entry("ld.global.u32 %r1, [%rd0];\n" + expect("%r1", 5)), [launch(BASE)], [memory(BASE, struct.pack("<I", 5), host=True)])
    assert replay(capture)[0] == "complete"


def test_a_wrong_value_would_be_noticed(replay):
    capture = capture_of(entry("ld.global.u32 %r1, [%rd0];\n" + expect("%r1", 5)), [launch(BASE)], [memory(BASE, struct.pack("<I", 6))])
    word, reason = replay(capture)
    assert word == "failed" and reason.startswith("trap in kernel kernel")


def test_memory_that_was_not_captured_fails(replay):
    word, reason = replay(capture_of(entry("ld.global.u32 %r1, [%rd0+8192];"), [launch(BASE)], [memory(BASE, bytes(4096))]))
    assert word == "failed"
    assert "illegal address" in reason and "where no allocation lies" in reason


def test_addresses_that_are_taken_are_free_in_another_layout(replay, tmp_path):
    """Without randomisation the loader always lies here, where a driver may have had its memory."""
    fixed = ["setarch", "-R"]
    maps = subprocess.run([*fixed, "cat", "/proc/self/maps"], capture_output=True, text=True)
    if maps.returncode != 0:
        pytest.skip("personality is not permitted here")
    loader = next(line for line in maps.stdout.splitlines() if "/ld-linux" in line)
    address = int(loader.split("-")[0], 16)
    capture = capture_of(entry("ld.global.u32 %r1, [%rd0];\n" + expect("%r1", 5)), [launch(address)], [memory(address, struct.pack("<I", 5))])
    assert replay(capture, *fixed) == ("complete", "")


# ---- modules


def test_variables_are_at_their_addresses(replay):
    before = ".visible .global .align 4 .u32 number = 1;\n.visible .const .align 8 .u64 pointer;"
    body = ("ld.const.u64 %rd1, [pointer];\nld.global.u32 %r1, [%rd1];\n" + expect("%r1", 42) +
            "mov.u64 %rd2, number;\nsetp.ne.u64 %p1, %rd1, %rd2; @%p1 trap;")
    variables = [{"name": "number", "address": BASE + 4, "content": struct.pack("<I", 42)},
                 {"name": "pointer", "address": BASE + 0x2000, "content": struct.pack("<Q", BASE + 4)}]
    assert replay(capture_of(entry(body, before=before), [launch(0)], variables=variables)) == ("complete", "")


def test_tables_of_functions_keep_this_devices_addresses(replay):
    before = (".visible .func (.param .b32 out) seven()\n{\n.reg .b32 %x;\nmov.u32 %x, 7;\nst.param.b32 [out], %x;\nret;\n}\n"
              ".visible .global .align 8 .u64 table[2] = {0, seven};")
    body = ("ld.global.u64 %rd1, [table+8];\nprototype : .callprototype (.param .b32 _) _ ();\n"
            "{ .param .b32 result; call (result), %rd1, (), prototype; ld.param.b32 %r1, [result]; }\n" + expect("%r1", 7) +
            "ld.global.u64 %rd2, [table];\n" + expect("%rd2", 9, "u64"))
    variables = [{"name": "table", "address": BASE, "content": struct.pack("<QQ", 9, 0x7F55_0000_1000)}]
    assert replay(capture_of(entry(body, before=before), [launch(0)], variables=variables)) == ("complete", "")


def test_what_the_cpu_device_lacks_is_named(replay):
    word, reason = replay(capture_of(entry("ld.global.u32 %r1, [%rd0];").replace("sm_90", "sm_120"), [launch(0)]))
    assert word == "unsupported" and "sm_120" in reason


# ---- tensor maps


def tma(parameter: str) -> str:
    return f"""
.shared .align 128 .b8 tile[64]; .shared .align 8 .b64 bar;
setp.ne.u32 %p1, %r0, 0; @%p1 bra WAIT;
mbarrier.init.shared.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 64;
{parameter}
mov.u32 %r3, 0;
cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%rd9, {{%r3}}], [bar];
WAIT: bar.sync 0;
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra AGAIN;
ld.shared.u32 %r4, [tile+60];
""" + expect("%r4", 15)


OPAQUE = bytes(range(1, 129))
NUMBERS = struct.pack("<16I", *range(16))


def tensor_map(**others) -> dict:
    return {"opaque": OPAQUE, "data_type": 2, "rank": 1, "address": BASE, "global_dim": [16], "box_dim": [16], "element_strides": [1], **others}


def test_a_tensor_map_among_the_parameters_gets_this_devices_form(replay):
    ptx = entry(tma("mov.b64 %rd9, map;\ncvta.param.u64 %rd9, %rd9;"), ()).replace("kernel()", "kernel(.param .u64 first, .param .align 64 .b8 map[128])")
    capture = capture_of(ptx, [launch(0, bytes(56), OPAQUE)], [memory(BASE, NUMBERS)], tensor_maps=[tensor_map()])
    assert replay(capture) == ("complete", "")


def test_a_tensor_map_in_memory_gets_this_devices_form(replay):
    capture = capture_of(entry(tma("add.u64 %rd9, %rd0, 64;")), [launch(BASE + 4096)],
                         [memory(BASE, NUMBERS), memory(BASE + 4096, bytes(64) + OPAQUE + bytes(3))], tensor_maps=[tensor_map()])
    assert replay(capture) == ("complete", "")


def test_a_tensor_map_that_the_cpu_device_lacks_matters_only_if_it_is_used(replay):
    odd = tensor_map(data_type=13)  # packed 4-bit elements
    ptx = entry("ld.global.u32 %r1, [%rd0];")
    assert replay(capture_of(ptx, [launch(BASE)], [memory(BASE, bytes(64))], tensor_maps=[odd]))[0] == "complete"
    word, reason = replay(capture_of(ptx, [launch(BASE)], [memory(BASE, OPAQUE)], tensor_maps=[odd]))
    assert word == "unsupported" and "no such tensor map" in reason


# ---- launches


def test_shapes_shared_memory_and_clusters_are_as_captured(replay):
    before = ".extern .shared .align 16 .b8 room[];"
    body = ("mov.u32 %r1, %nctaid.x;\n" + expect("%r1", 4) + "mov.u32 %r1, %ntid.x;\n" + expect("%r1", 64) +
            "mov.u32 %r1, %cluster_nctaid.x;\n" + expect("%r1", 2) + "mov.u32 %r1, %dynamic_smem_size;\n" + expect("%r1", 100_000))
    capture = capture_of(entry(body, before=before), [launch(0, block=64, grid=4, cluster=dim(2), dynamic_shared_bytes=100_000)])
    assert replay(capture) == ("complete", "")


def test_a_cooperative_launch_is_one(replay):
    assert replay(capture_of(entry(""), [launch(0, grid=8, cooperative=True)]))[0] == "complete"
    word, reason = replay(capture_of(entry(""), [launch(0, block=1024, grid=10_000, cooperative=True)]))
    assert word == "failed" and "COOPERATIVE_LAUNCH_TOO_LARGE" in reason


ADD = entry("ld.global.u32 %r1, [%rd0]; add.u32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;")


def adds(*launches, ptx=ADD) -> dict:
    return capture_of(ptx, [launch(BASE, block=1, launch_id=i + 1, **others) for i, others in enumerate(launches)], [memory(BASE, bytes(4))])


@pytest.mark.parametrize("second", [{"after_all": True}, {"after": [0]}])
def test_launches_that_are_ordered_do_not_race(check, second):
    assert check(adds({}, second), "race") == []


def test_launches_without_order_race(check):
    assert {finding["kind"] for finding in check(adds({}, {}), "race")} == {"stream-race"}


def test_a_programmatic_launch_races_with_its_predecessor_unless_it_waits(check):
    programmatic = {"programmatic": True, "after": [0]}
    early = ADD.replace("ld.global", "griddepcontrol.launch_dependents; ld.global", 1)
    waiting = ADD.replace("ld.global", "griddepcontrol.launch_dependents; griddepcontrol.wait; ld.global", 1)
    assert check(adds({}, programmatic, ptx=early), "race") != []
    assert check(adds({}, programmatic, ptx=waiting), "race") == []


def test_order_reaches_over_several_launches(check):
    assert check(adds({}, {"after": [0]}, {"after": [1]}), "race") == []


# ---- findings


def test_bytes_that_nobody_had_written_stay_unwritten(check):
    body = "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; ld.global.u32 %r1, [%rd3]; add.u64 %rd4, %rd1, %rd2; st.global.u32 [%rd4], %r1;"

    def findings(*unwritten):
        blocks = [memory(BASE, bytes(128), unwritten=[{"offset": at, "size": size} for at, size in unwritten]), memory(BASE + 128, bytes(128))]
        return check(capture_of(entry(body, ("a", "b")), [launch(BASE, BASE + 128)], blocks), "init")

    assert findings() == []
    (finding,) = findings((8, 4), (64, 64))
    assert (finding["kind"], finding["count"]) == ("uninitialised-read", 17)


def test_the_upload_of_the_memory_is_no_race(check):
    blocks = [memory(BASE + 4096 * i, bytes(4096)) for i in range(4)]
    body = "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; st.global.u32 [%rd3], %r0; ld.global.u32 %r1, [%rd3+4096];"
    assert check(capture_of(entry(body), [launch(BASE)], blocks), "race,sync,init") == []


# ---- ends

SPIN = entry("SPIN: ld.volatile.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;")


def test_a_barrier_that_nobody_can_pass_is_a_deadlock(replay, check):
    capture = capture_of(entry("bar.sync 1, 64;"), [launch(0)])
    word, reason = replay(capture)
    assert word == "deadlock" and "bar.sync 1, 64" in reason
    assert "deadlock" in {finding["kind"] for finding in check(capture, "sync")}


def test_a_spin_on_global_memory_is_told_apart(replay, check):
    capture = capture_of(SPIN, [launch(BASE)], [memory(BASE, bytes(4))])
    assert replay(capture)[0] == "spins"
    assert "deadlock" in {finding["kind"] for finding in check(capture, "sync")}


def test_a_wait_for_the_host_proves_nothing(replay, check):
    capture = capture_of(SPIN, [launch(BASE)], [memory(BASE, bytes(4), host=True)])
    word, reason = replay(capture)
    assert word == "waits" and "memory that the host can write" in reason
    assert "deadlock" not in {finding["kind"] for finding in check(capture, "sync")}


def test_a_file_that_was_not_written_to_its_end_is_damaged(replay, write):
    path = write(capture_of(ADD, [launch(BASE)], [memory(BASE, bytes(4096))]))
    path.write_bytes(path.read_bytes()[:-100])
    word, reason = replay(path)
    assert word == "damaged" and "does not end where it should" in reason


def test_a_missing_file_and_wrong_usage(tmp_path):
    program = str(BUILD / "ops-debug-replayer")
    assert subprocess.run([program], capture_output=True).returncode == 2
    assert subprocess.run([program, str(tmp_path / "none")], capture_output=True).returncode == 3


def test_what_kernels_print_is_not_printed_again(replay):
    before = ('.extern .func (.param .b32 out) vprintf(.param .b64 format, .param .b64 values);\n'
              '.global .align 1 .b8 message[4] = {104, 105, 10, 0};')
    body = ("{ .param .b32 result; .param .b64 format; .param .b64 values; mov.u64 %rd1, message; st.param.b64 [format], %rd1; mov.u64 %rd2, 0;\n"
            "st.param.b64 [values], %rd2; call (result), vprintf, (format, values); }")
    assert replay(capture_of(entry(body, before=before), [launch(0)]))[0] == "complete"
