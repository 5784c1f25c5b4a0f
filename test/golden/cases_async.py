"""mbarriers, asynchronous copies and clusters. State tokens and addresses are opaque, so cases
compare what programs can observe: predicates, pending counts, memory."""

import numpy as np

from case import Case

PREAMBLE = ".shared .align 1024 .b8 memory[16384];"
WORDS = 32  # of output per block
BOUND = 2000  # polls before a wait gives up


def _random(count, seed):
    return np.random.RandomState(seed).randint(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)


def _case(name, instruction, body, *, inputs=None, words=WORDS, blocks=1, threads=32, cluster=None,
          target="sm_90", initial=None):
    """%rd1 = input, %rd2 = the block's words of the output, %r1 = memory, %r2 = thread,
    %r3 = rank in the cluster; `OUT(index, value)` stores a 32-bit register by thread 0."""
    head = """
.visible .entry $entry(.param .u64 in, .param .u64 out)
{
.reg .pred %p<32>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<8>;
ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %r1, memory; mov.u32 %r2, %tid.x;
mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %ctaid.x; mul.wide.u32 %rd3, %r4, """ + str(4 * words) + """;
add.u64 %rd2, %rd2, %rd3; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r3, 0;
"""
    data = inputs if inputs is not None else _random(1024, 1)
    output = np.zeros(words * blocks, np.uint32) if initial is None else initial
    return Case(name=name, instruction=instruction, entry=head + body + "\nret;\n}", inputs=[data],
                output=output, grid=(blocks, 1, 1), block=(threads, 1, 1), cluster=cluster,
                preamble=PREAMBLE, target=target)


def _predicates(predicates, first=0):
    """Stores predicates as words of the output."""
    return "\n".join(f"selp.u32 %r50, 1, 0, {p}; @%p1 st.global.u32 [%rd2+{4 * (first + i)}], %r50;"
                     for i, p in enumerate(predicates))


def _wait(barrier, parity, label, predicate="%p30"):
    return f"""mov.u32 %r51, 0;
{label}: mbarrier.try_wait.parity.shared.b64 {predicate}, [{barrier}], {parity}; @{predicate} bra {label}_DONE;
add.u32 %r51, %r51, 1; setp.lt.u32 %p31, %r51, {BOUND}; @%p31 bra {label};
{label}_DONE:"""


SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"


def _phases():
    body = "@!%p1 bra END;\n"
    # Tests of both parities and pending counts after each step of a life with counts and bytes.
    steps = [
        "mbarrier.init.shared.b64 [memory], 3;",
        "mbarrier.arrive.shared.b64 %rd10, [memory];",
        "mbarrier.arrive.shared.b64 %rd10, [memory], 2;",
        "mbarrier.arrive.release.cta.shared::cta.b64 %rd10, [memory], 1;",
        "mbarrier.arrive.noComplete.shared.b64 %rd10, [memory], 1;",
        "mbarrier.arrive.expect_tx.shared.b64 %rd10, [memory], 48;",
        "mbarrier.complete_tx.relaxed.cta.shared.b64 [memory], 32;",
        "mbarrier.complete_tx.relaxed.cta.shared.b64 [memory], 16;",
        "mbarrier.arrive_drop.shared.b64 %rd10, [memory];",
        "mbarrier.arrive.shared.b64 %rd10, [memory], 2;",
        "mbarrier.expect_tx.relaxed.cta.shared.b64 [memory], 16;",
        "mbarrier.arrive.shared.b64 %rd10, [memory], 2;",
        "mbarrier.complete_tx.relaxed.cta.shared.b64 [memory], 16;",
        "mbarrier.complete_tx.relaxed.cta.shared.b64 [memory], 16;",
        "mbarrier.arrive_drop.expect_tx.shared.b64 %rd10, [memory], 16;",
        "mbarrier.arrive.shared.b64 %rd10, [memory];",
        "mbarrier.inval.shared.b64 [memory]; mbarrier.init.shared.b64 [memory], 7;",
        "mbarrier.arrive.shared.b64 %rd10, [memory], 6;",
        "mbarrier.arrive.shared.b64 %rd10, [memory];",
    ]
    for i, step in enumerate(steps):
        token = "%rd10," in step
        body += step + f"""
mbarrier.test_wait.parity.shared.b64 %p3, [memory], 0; mbarrier.test_wait.parity.shared.b64 %p4, [memory], 1;
selp.u32 %r10, 1, 0, %p3; selp.u32 %r11, 2, 0, %p4; add.u32 %r10, %r10, %r11; mov.u32 %r12, 0;"""
        if token:
            body += """
mbarrier.pending_count.b64 %r12, %rd10; mbarrier.test_wait.shared.b64 %p5, [memory], %rd10;
selp.u32 %r13, 4, 0, %p5; add.u32 %r10, %r10, %r13;"""
        body += f"\nmad.lo.u32 %r10, %r12, 16, %r10; st.global.u32 [%rd2+{4 * i}], %r10;\n"
    yield _case("phases", "mbarrier.arrive, arrive_drop, expect_tx, complete_tx, test_wait",
                body + "END:")
    yield _case("initial.parity", "mbarrier.test_wait.parity", """
@!%p1 bra END; mbarrier.init.shared.b64 [memory+8], 1048575;
mbarrier.test_wait.parity.shared.b64 %p3, [memory+8], 1; mbarrier.test_wait.parity.shared.b64 %p4, [memory+8], 0;
mbarrier.try_wait.parity.shared.b64 %p5, [memory+8], 1; mbarrier.try_wait.parity.shared.b64 %p6, [memory+8], 0, 100;
mbarrier.arrive.shared.b64 %rd10, [memory+8], 1000000; mbarrier.arrive.shared.b64 %rd11, [memory+8];
mbarrier.pending_count.b64 %r10, %rd10; mbarrier.pending_count.b64 %r11, %rd11;
st.global.u32 [%rd2+64], %r10; st.global.u32 [%rd2+68], %r11;
""" + _predicates(["%p3", "%p4", "%p5", "%p6"]) + "END:")
    yield _case("ping.pong", "mbarrier.try_wait", """
@%p1 mbarrier.init.shared.b64 [memory], 32; @%p1 mbarrier.init.shared.b64 [memory+8], 32; bar.sync 0;
mov.u32 %r10, 0; mov.u32 %r11, 0; and.b32 %r12, %r2, 31; shl.b32 %r13, %r12, 2; add.u32 %r13, %r13, %r1;
xor.b32 %r20, %r12, 31; shl.b32 %r20, %r20, 2; add.u32 %r20, %r20, %r1;
setp.ge.u32 %p3, %r2, 32; @%p3 bra CONSUME;
PRODUCE: and.b32 %r14, %r10, 1; xor.b32 %r14, %r14, 1;
EMPTY: mbarrier.try_wait.parity.shared.b64 %p4, [memory+8], %r14; @!%p4 bra EMPTY;
mad.lo.u32 %r15, %r10, 1000, %r12; st.shared.u32 [%r13+64], %r15; mbarrier.arrive.shared.b64 _, [memory];
add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 16; @%p5 bra PRODUCE; bra END;
CONSUME: and.b32 %r14, %r10, 1;
FULL: mbarrier.try_wait.parity.shared.b64 %p4, [memory], %r14; @!%p4 bra FULL;
ld.shared.u32 %r15, [%r20+64]; mad.lo.u32 %r11, %r11, 3, %r15; mbarrier.arrive.shared.b64 _, [memory+8];
add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 16; @%p5 bra CONSUME;
shl.b32 %r12, %r12, 2; cvt.u64.u32 %rd10, %r12; add.u64 %rd10, %rd10, %rd2; st.global.u32 [%rd10], %r11;
END:""", threads=64)


def _copies():
    for size, cache in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")):
        for covered in (None, 0, 3, size):
            extra = "" if covered is None else f", {covered}"
            yield _case(f"cp.async.{cache}.{size}.{covered}", f"cp.async.{cache} {size}{extra}", f"""
mul.lo.u32 %r10, %r2, {size}; add.u32 %r11, %r10, %r1; cvt.u64.u32 %rd10, %r10; add.u64 %rd10, %rd10, %rd1;
mov.u32 %r12, -1; shl.b32 %r13, %r2, 4; add.u32 %r13, %r13, %r1;
st.shared.v4.u32 [%r13], {{%r12, %r12, %r12, %r12}}; bar.sync 0;
cp.async.{cache}.shared.global [%r11], [%rd10], {size}{extra}; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
ld.shared.v4.u32 {{%r14, %r15, %r16, %r17}}, [%r13]; cvt.u64.u32 %rd11, %r2; shl.b64 %rd11, %rd11, 4; add.u64 %rd11, %rd11, %rd2;
st.global.v4.u32 [%rd11], {{%r14, %r15, %r16, %r17}};""", words=128)
    for ignored in ("%p1", "!%p1"):
        setup = "not.pred %p6, %p1;" if ignored[0] == "!" else "mov.pred %p6, %p1;"
        yield _case(f"cp.async.ignore.{ignored.strip('%')}", "cp.async with ignore-src", f"""
shl.b32 %r10, %r2, 3; add.u32 %r11, %r10, %r1; cvt.u64.u32 %rd10, %r10; add.u64 %rd11, %rd10, %rd1; {setup}
mov.u32 %r12, -1; st.shared.v2.u32 [%r11], {{%r12, %r12}};
cp.async.ca.shared.global.L2::128B [%r11], [%rd11], 8, %p6; cp.async.wait_all;
ld.shared.v2.u32 {{%r14, %r15}}, [%r11]; add.u64 %rd12, %rd10, %rd2; st.global.v2.u32 [%rd12], {{%r14, %r15}};""",
                    words=64)
    yield _case("cp.async.mbarrier", "cp.async.mbarrier.arrive", """
@%p1 mbarrier.init.shared.b64 [memory], 32; @%p1 mbarrier.init.shared.b64 [memory+8], 33; bar.sync 0;
shl.b32 %r10, %r2, 2; add.u32 %r11, %r10, %r1; cvt.u64.u32 %rd10, %r10; add.u64 %rd11, %rd10, %rd1;
cp.async.ca.shared.global [%r11+64], [%rd11], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [memory];
cp.async.ca.shared.global [%r11+256], [%rd11+128], 4; cp.async.mbarrier.arrive.shared.b64 [memory+8];
bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [memory+8], 33;
""" + _wait("memory", 0, "A", "%p7") + _wait("memory+8", 0, "B", "%p8") + """
xor.b32 %r12, %r10, 124; add.u32 %r12, %r12, %r1; ld.shared.u32 %r13, [%r12+64]; ld.shared.u32 %r14, [%r12+256];
xor.b32 %r13, %r13, %r14; add.u64 %rd12, %rd10, %rd2; st.global.u32 [%rd12], %r13;
""" + _predicates(["%p7", "%p8"], 32), words=34)


def _bulk():
    for size in (16, 64, 2048):
        yield _case(f"bulk.load.{size}", "cp.async.bulk.shared::cluster.global", f"""
@%p1 mbarrier.init.shared.b64 [memory], 1; fence.proxy.async.shared::cta; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [memory], {size};
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [memory+1024], [%rd1+16], {size}, [memory];
""" + _wait("memory", 0, "A", "%p7") + f"""
shl.b32 %r10, %r2, 2; LOOP: add.u32 %r11, %r10, %r1; ld.shared.u32 %r12, [%r11+1024]; cvt.u64.u32 %rd10, %r10; add.u64 %rd10, %rd10, %rd2;
st.global.u32 [%rd10+4], %r12; add.u32 %r10, %r10, 128; setp.lt.u32 %p8, %r10, {size}; @%p8 bra LOOP;
""" + _predicates(["%p7"]), words=1 + max(size, 128) // 4)
    fill = """
shl.b32 %r10, %r2, 3; add.u32 %r11, %r10, %r1; cvt.u64.u32 %rd10, %r10; add.u64 %rd10, %rd10, %rd1; ld.global.u64 %rd11, [%rd10];
st.shared.u64 [%r11], %rd11; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 bra END;
"""
    yield _case("bulk.store", "cp.async.bulk.global.shared::cta", fill + """
cp.async.bulk.global.shared::cta.bulk_group [%rd2+32], [memory], 176; cp.async.bulk.commit_group;
cp.async.bulk.global.shared::cta.bulk_group [%rd2], [memory+224], 32; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0; END:""", words=64)
    shared = {"add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"),
              "and": ("b32",), "or": ("b32",), "xor": ("b32",), "inc": ("u32",), "dec": ("u32",)}
    global_ = {"add": ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16"),
               "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
               "max": ("u32", "s32", "u64", "s64", "f16", "bf16"), "and": ("b32", "b64"),
               "or": ("b32", "b64"), "xor": ("b32", "b64"), "inc": ("u32",), "dec": ("u32",)}
    for operation, kinds in global_.items():
        for kind in kinds:
            data = _floats(kind, 7)
            yield _case(f"bulk.reduce.global.{operation}.{kind}",
                        f"cp.reduce.async.bulk.global.shared::cta.{operation}.{kind}", fill + f"""
cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [%rd2], [memory], 256; cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0; END:""", words=64, inputs=data, initial=_floats(kind, 8))
    for operation, kinds in shared.items():
        for kind in kinds:
            yield _case(f"bulk.reduce.shared.{operation}.{kind}",
                        f"cp.reduce.async.bulk.shared::cluster.shared::cta.{operation}.{kind}", """
shl.b32 %r10, %r2, 3; add.u32 %r11, %r10, %r1; cvt.u64.u32 %rd10, %r10; add.u64 %rd10, %rd10, %rd1; ld.global.u64 %rd11, [%rd10];
st.shared.u64 [%r11+1024], %rd11; ld.global.u64 %rd11, [%rd10+256]; st.shared.u64 [%r11+2048], %rd11;
@%p1 mbarrier.init.shared.b64 [memory], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [memory], 256;
fence.proxy.async.shared::cta; """ + SYNC + f"""
xor.b32 %r20, %r3, 1; add.u32 %r21, %r1, 2048; mapa.shared::cluster.u32 %r22, %r21, %r20; mapa.shared::cluster.u32 %r23, %r1, %r20;
@%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation}.{kind} [%r22], [memory+1024], 256, [%r23];
""" + _wait("memory", 0, "A", "%p7") + """
ld.shared.u64 %rd11, [%r11+2048]; cvt.u64.u32 %rd12, %r10; add.u64 %rd12, %rd12, %rd2; st.global.u64 [%rd12], %rd11;
""" + SYNC + _predicates(["%p7"], 64), words=66, blocks=2, cluster=(2, 1, 1))


def _floats(kind, seed):
    generator = np.random.RandomState(seed)
    name = kind.rsplit(".", maxsplit=1)[-1]
    if name == "f32":
        values = generator.uniform(-8, 8, 64).astype(np.float32)
        values[::9] = np.float32(2e-39)
        return values.view(np.uint32)
    if name == "f64":
        return generator.uniform(-8, 8, 32).view(np.uint32)
    if name == "f16":
        values = generator.uniform(-8, 8, 128).astype(np.float16)
        values[::9] = np.float16(3e-7)
        return values.view(np.uint32)
    if name == "bf16":
        bits = generator.uniform(-8, 8, 128).astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint32)
    bits = _random(64, seed)
    bits[::2] %= 16
    return bits


def _clusters():
    index = "".join(
        f"mov.u32 %r10, %{name}; @%p1 st.global.u32 [%rd2+{4 * i}], %r10;\n"
        for i, name in enumerate((
            "clusterid.x", "clusterid.y", "clusterid.z", "nclusterid.x", "nclusterid.y",
            "nclusterid.z", "cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z",
            "cluster_nctaid.x", "cluster_nctaid.y", "cluster_nctaid.z", "cluster_ctarank",
            "cluster_nctarank", "ctaid.x", "ctaid.y", "ctaid.z")))
    number = """
mov.u32 %r10, %ctaid.y; mov.u32 %r11, %ctaid.z; mov.u32 %r12, %nctaid.x; mov.u32 %r13, %nctaid.y;
mad.lo.u32 %r14, %r11, %r13, %r10; mul.lo.u32 %r14, %r14, %r12; mul.wide.u32 %rd10, %r14, 128; add.u64 %rd2, %rd2, %rd10;
"""
    explicit = "mov.pred %p7, %is_explicit_cluster;" + _predicates(["%p7"], 20)
    for name, grid, cluster in (("none", (3, 2, 2), None), ("one", (3, 2, 2), (1, 1, 1)),
                                ("x", (8, 1, 2), (4, 1, 1)), ("xyz", (4, 6, 2), (2, 2, 2)),
                                ("y", (3, 4, 1), (1, 4, 1))):
        case = _case(f"registers.{name}", "%clusterid, %cluster_ctaid, ...", number + index + explicit,
                     blocks=grid[0] * grid[1] * grid[2], cluster=cluster)
        case.grid = grid
        yield case
    yield _case("shared.of.others", "mapa, ld/st/atom.shared::cluster", """
shl.b32 %r10, %r2, 2; add.u32 %r11, %r10, %r1; mad.lo.u32 %r12, %r3, 1000, %r2; st.shared.u32 [%r11], %r12; mov.u32 %r13, 0; st.shared.u32 [%r11+256], %r13;
""" + SYNC + """
add.u32 %r14, %r3, 1; and.b32 %r14, %r14, 3; mapa.shared::cluster.u32 %r15, %r11, %r14; getctarank.shared::cluster.u32 %r16, %r15;
ld.shared::cluster.u32 %r17, [%r15]; atom.shared::cluster.add.u32 %r18, [%r15+256], %r17;
cvt.u64.u32 %rd10, %r11; cvta.shared.u64 %rd11, %rd10; mapa.u64 %rd12, %rd11, %r14; getctarank.u64 %r19, %rd12; ld.u32 %r20, [%rd12];
isspacep.shared::cta %p3, %rd12; isspacep.shared::cluster %p4, %rd12; isspacep.shared %p5, %rd11; isspacep.global %p6, %rd12;
add.u32 %r21, %r3, 7; red.add.u32 [%rd12+256], %r21; st.shared::cluster.u32 [%r15+1024], %r21;
""" + SYNC + """
ld.shared.u32 %r22, [%r11+256]; ld.shared.u32 %r23, [%r11+1024]; mad.lo.u32 %r24, %r16, 10, %r19; mad.lo.u32 %r24, %r24, 7, %r17;
mad.lo.u32 %r24, %r24, 3, %r20; mad.lo.u32 %r24, %r24, 5, %r22; mad.lo.u32 %r24, %r24, 3, %r23; cvt.u64.u32 %rd13, %r10; add.u64 %rd13, %rd13, %rd2;
st.global.u32 [%rd13], %r24;
""" + _predicates(["%p3", "%p4", "%p5", "%p6"], 32), words=36, blocks=4, cluster=(4, 1, 1))
    for kind, vector, register in (("u32", "", "%r20"), ("u64", "", "%rd20"), ("f32", ".v2", "{%f1, %f2}"),
                                   ("b32", ".v4", "{%r20, %r21, %r22, %r23}"), ("s64", ".v2", "{%rd20, %rd21}")):
        count = {"": 1, ".v2": 2, ".v4": 4}[vector] * (8 if "64" in kind else 4)
        yield _case(f"st.async{vector}.{kind}", f"st.async{vector}.{kind}", f"""
@%p1 mbarrier.init.shared.b64 [memory], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [memory], {32 * count};
shl.b32 %r10, %r2, 4; add.u32 %r11, %r10, %r1; cvt.u64.u32 %rd10, %r10; mad.wide.u32 %rd10, %r3, 512, %rd10; add.u64 %rd10, %rd10, %rd1;
ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd10]; ld.global.v2.b64 {{%rd20, %rd21}}, [%rd10]; mov.b32 %f1, %r20; mov.b32 %f2, %r21;
mov.u32 %r12, -1; st.shared.v4.u32 [%r11+1024], {{%r12, %r12, %r12, %r12}}; fence.mbarrier_init.release.cluster;
""" + SYNC + f"""
xor.b32 %r13, %r3, 1; mapa.shared::cluster.u32 %r14, %r11, %r13; mapa.shared::cluster.u32 %r15, %r1, %r13;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{kind} [%r14+1024], {register}, [%r15];
""" + _wait("memory", 0, "A", "%p7") + """
ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r11+1024]; cvt.u64.u32 %rd11, %r10; add.u64 %rd11, %rd11, %rd2; st.global.v4.u32 [%rd11], {%r20, %r21, %r22, %r23};
""" + SYNC + _predicates(["%p7"], 128), words=132, blocks=2, cluster=(2, 1, 1))
    for operation, kind in (("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "u32"), ("min", "s32"),
                            ("max", "u32"), ("max", "s32"), ("inc", "u32"), ("dec", "u32"), ("and", "b32"),
                            ("or", "b32"), ("xor", "b32")):
        size = 8 if kind == "u64" else 4
        register = "%rd20" if size == 8 else "%r20"
        # The order of the reductions is open: with one limit for all lanes it does not matter.
        limit = "mov.u32 %r20, 5; " if operation in ("inc", "dec") else ""
        yield _case(f"red.async.{operation}.{kind}", f"red.async.{operation}.{kind}", f"""
@%p1 mbarrier.init.shared.b64 [memory], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [memory], {32 * size};
and.b32 %r10, %r2, 3; shl.b32 %r10, %r10, 3; add.u32 %r11, %r10, %r1; mul.wide.u32 %rd10, %r2, 8; mad.wide.u32 %rd10, %r3, 256, %rd10; add.u64 %rd10, %rd10, %rd1;
ld.global.u64 %rd20, [%rd10]; cvt.u32.u64 %r20, %rd20; ld.global.u64 %rd21, [%rd1+512]; st.shared.u64 [%r11+1024], %rd21; bar.sync 0; fence.mbarrier_init.release.cluster;
{limit}""" + SYNC + f"""
xor.b32 %r13, %r3, 1; mapa.shared::cluster.u32 %r14, %r11, %r13; mapa.shared::cluster.u32 %r15, %r1, %r13;
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation}.{kind} [%r14+1024], {register}, [%r15];
""" + _wait("memory", 0, "A", "%p7") + """
ld.shared.u64 %rd22, [%r11+1024]; cvt.u64.u32 %rd11, %r10; add.u64 %rd11, %rd11, %rd2; st.global.u64 [%rd11], %rd22;
""" + SYNC + _predicates(["%p7"], 8), words=10, blocks=2, cluster=(2, 1, 1), inputs=_floats(kind, 11).repeat(4))
    yield _case("bulk.multicast", "cp.async.bulk.multicast::cluster", """
@%p1 mbarrier.init.shared.b64 [memory], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [memory], 128; fence.mbarrier_init.release.cluster;
shl.b32 %r10, %r2, 2; add.u32 %r11, %r10, %r1; mov.u32 %r12, -1; st.shared.u32 [%r11+1024], %r12; fence.proxy.async.shared::cta;
""" + SYNC + """
mov.b16 %h1, 13; setp.eq.and.u32 %p3, %r3, 1, %p1;
@%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [memory+1024], [%rd1+256], 128, [memory], %h1;
setp.eq.u32 %p4, %r3, 1; setp.ne.u32 %p7, %r3, %r3; @%p4 bra OUT;
""" + _wait("memory", 0, "A", "%p7") + """
OUT: ld.shared.u32 %r13, [%r11+1024]; cvt.u64.u32 %rd10, %r10; add.u64 %rd10, %rd10, %rd2; st.global.u32 [%rd10], %r13;
""" + SYNC + _predicates(["%p7"], 32), words=33, blocks=4, cluster=(4, 1, 1))
    yield _case("bulk.to.other", "cp.async.bulk.shared::cluster.shared::cta", """
@%p1 mbarrier.init.shared.b64 [memory], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [memory], 128; fence.mbarrier_init.release.cluster;
shl.b32 %r10, %r2, 2; add.u32 %r11, %r10, %r1; mad.lo.u32 %r12, %r3, 100, %r2; st.shared.u32 [%r11+1024], %r12; fence.proxy.async.shared::cta;
""" + SYNC + """
xor.b32 %r13, %r3, 1; add.u32 %r14, %r1, 2048; mapa.shared::cluster.u32 %r15, %r14, %r13; mapa.shared::cluster.u32 %r16, %r1, %r13;
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r15], [memory+1024], 128, [%r16];
""" + _wait("memory", 0, "A", "%p7") + """
ld.shared.u32 %r17, [%r11+2048]; cvt.u64.u32 %rd10, %r10; add.u64 %rd10, %rd10, %rd2; st.global.u32 [%rd10], %r17;
""" + SYNC + _predicates(["%p7"], 32), words=33, blocks=2, cluster=(2, 1, 1))
    yield _case("remote.arrive", "mbarrier.arrive.shared::cluster", """
@%p1 mbarrier.init.shared.b64 [memory], 65; fence.mbarrier_init.release.cluster; mad.lo.u32 %r10, %r3, 10, 3; st.shared.u32 [memory+64], %r10;
""" + SYNC + """
xor.b32 %r13, %r3, 1; mapa.shared::cluster.u32 %r16, %r1, %r13; st.shared::cluster.u32 [%r16+64], %r13;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r16]; mbarrier.arrive.shared::cluster.b64 _, [%r16], 1;
mbarrier.test_wait.parity.shared.b64 %p6, [memory], 0; @%p1 mbarrier.arrive.shared.b64 _, [memory];
""" + _wait("memory", 0, "A", "%p7") + """
ld.shared.u32 %r17, [memory+64]; @%p1 st.global.u32 [%rd2], %r17;
""" + SYNC + _predicates(["%p6", "%p7"], 1).replace("%p6", "%p7"), words=4, blocks=2, cluster=(2, 1, 1))


def cases():
    yield from _phases()
    yield from _copies()
    yield from _bulk()
    yield from _clusters()
