"""Control flow, calls and the stack (PTX ISA 9.0, 9.7.12 and 9.7.15): branches through tables, calls through
pointers, recursion, predicated calls, alloca; constants, kernel parameters by value and special
registers that every launch of the same shape sees alike."""

import struct

import numpy as np

import values
from case import Case
from element import element

PREAMBLE = """
.const .align 8 .b32 table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
.const .align 4 .b8 bytes[4] = {0x80, 0x7f, 0xff, 1};
.visible .func (.param .b32 result) double_it(.param .b32 x)
{ .reg .b32 %r; ld.param.b32 %r, [x]; add.u32 %r, %r, %r; st.param.b32 [result], %r; ret; }
.visible .func (.param .b32 result) square_it(.param .b32 x)
{ .reg .b32 %r; ld.param.b32 %r, [x]; mul.lo.u32 %r, %r, %r; st.param.b32 [result], %r; ret; }
.visible .func (.param .b32 result) negate_it(.param .b32 x)
{ .reg .b32 %r; ld.param.b32 %r, [x]; neg.s32 %r, %r; st.param.b32 [result], %r; ret; }
.visible .func (.param .b32 result) fibonacci(.param .b32 x)
{ .reg .b32 %r<4>; .reg .pred %p; ld.param.b32 %r0, [x]; setp.lt.u32 %p, %r0, 2;
  @%p bra DONE;
  { .param .b32 a; .param .b32 d; sub.u32 %r1, %r0, 1; st.param.b32 [a], %r1;
    call.uni (d), fibonacci, (a); ld.param.b32 %r2, [d]; }
  { .param .b32 a; .param .b32 d; sub.u32 %r1, %r0, 2; st.param.b32 [a], %r1;
    call.uni (d), fibonacci, (a); ld.param.b32 %r3, [d]; }
  add.u32 %r0, %r2, %r3;
DONE: st.param.b32 [result], %r0; ret; }
.visible .func (.param .align 16 .b8 result[24]) rotate(.param .align 16 .b8 x[24], .param .b8 by)
{ .reg .b64 %d<3>; .reg .b16 %h; .reg .pred %p;
  ld.param.v2.b64 {%d0, %d1}, [x]; ld.param.b64 %d2, [x+16]; ld.param.s8 %h, [by];
  setp.lt.s16 %p, %h, 0;
  @%p st.param.v2.b64 [result], {%d1, %d2}; @%p st.param.b64 [result+16], %d0;
  @!%p st.param.v2.b64 [result], {%d2, %d0}; @!%p st.param.b64 [result+16], %d1; ret; }
.global .align 8 .u64 targets[3] = {double_it, square_it, negate_it};
"""


def _small(seed, below, count=128):
    return values.random_bits(32, count, seed) % np.uint32(below)


def branches():
    text = ("T: .branchtargets A, B, C; mov.u32 %d, 0; brx.idx %a, T; A: add.u32 %d, %b, 1; bra E;"
            " B: mul.lo.u32 %d, %b, 3; C: xor.b32 %d, %d, 0x55; E:")
    yield element("brx.idx", text, "u32", ("u32", "u32"),
                  inputs=[_small("brx", 3), values.random_bits(32, 128, "brx values")])
    text = ("mov.u32 %d, 0; L: and.b32 %x, %a, 1; setp.eq.u32 %w, %x, 0; @%w shr.u32 %a, %a, 1;"
            " @!%w mad.lo.u32 %a, %a, 3, 1; add.u32 %d, %d, 1; setp.gt.u32 %w, %a, 1; @%w bra L;")
    yield element("loop.divergent", text, "u32", "u32", inputs=[_small("collatz", 200)],
                  registers=(".b32 %x", ".pred %w"), instruction="divergent loop")


def calls():
    text = ("{ .param .b32 p; .param .b32 r; st.param.b32 [p], %a; call.uni (r), fibonacci, (p);"
            " ld.param.b32 %d, [r]; }")
    yield element("call.recursive", text, "u32", "u32", inputs=[_small("fib", 12)],
                  preamble=PREAMBLE)
    text = ("mov.u64 %y, targets; mul.wide.u32 %z, %a, 8; add.u64 %y, %y, %z; ld.global.u64 %y, [%y];"
            " { .param .b32 p; .param .b32 r; st.param.b32 [p], %b;"
            " P: .callprototype (.param .b32 _) _ (.param .b32 _);"
            " call (r), %y, (p), P; ld.param.b32 %d, [r]; }")
    yield element("call.indirect", text, "u32", ("u32", "u32"),
                  inputs=[_small("targets", 3), values.random_bits(32, 128, "call values")],
                  registers=(".b64 %y, %z",), preamble=PREAMBLE)
    text = ("setp.ne.u32 %w, %a, 1; mov.u32 %d, %b; @!%w bra N; { .param .b32 p; .param .b32 r;"
            " st.param.b32 [p], %b; call (r), negate_it, (p); ld.param.b32 %d, [r]; } N:")
    yield element("call.divergent", text, "u32", ("u32", "u32"),
                  inputs=[_small("divergent", 3), values.random_bits(32, 128, "call values")],
                  registers=(".pred %w",), preamble=PREAMBLE)
    text = ("{ .param .align 16 .b8 p[24]; .param .b8 n; .param .align 16 .b8 r[24]; cvt.u16.u32 %h, %a;"
            " st.param.v2.b64 [p], {%b, %c}; st.param.b64 [p+16], 77; st.param.b8 [n], %h;"
            " call.uni (r), rotate, (p, n); ld.param.v2.b64 {%d, %q}, [r]; ld.param.b64 %x, [r+16]; }"
            " xor.b64 %q, %q, %x;")
    yield element("call.structure", text, ("b64", "b64"), ("u32", "b64", "b64"),
                  inputs=[_small("structure", 256), *(values.random_bits(64, 128, s) for s in "bc")],
                  registers=(".b64 %x", ".b16 %h"), preamble=PREAMBLE)


def stack():
    text = ("stacksave.u64 %x; cvt.u64.u32 %y, %a; alloca.u64 %y, %y, 16; alloca.u64 %z, 32;"
            " st.local.u32 [%y], %a; st.local.u32 [%y+4], %b; st.local.v2.u32 [%z+8], {%b, %a};"
            " ld.local.v2.u32 {%d, %q}, [%y]; ld.local.u32 %h, [%z+12]; sub.u32 %d, %d, %h;"
            " stackrestore.u64 %x; alloca.u64 %z, 16; st.local.u32 [%z], %q; ld.local.u32 %q, [%z];")
    yield element("alloca", text, ("u32", "u32"), ("u32", "u32"),
                  inputs=[_small("alloca", 64) * np.uint32(4) + np.uint32(16),
                          values.random_bits(32, 128, "alloca values")],
                  registers=(".b64 %x, %y, %z", ".b32 %h"))


def constants():
    text = ("and.b32 %x, %a, 7; mul.wide.u32 %y, %x, 4; mov.u64 %z, table; add.u64 %y, %y, %z;"
            " ld.const.u32 %d, [%y]; ld.const.s8 %x, [bytes+2]; add.u32 %d, %d, %x;"
            " ld.const.v4.u32 {%x, %x, %x, %q}, [table];")
    yield element("ld.const", text, ("u32", "u32"), "u32", inputs=[_small("const", 1 << 30)],
                  registers=(".b32 %x", ".b64 %y, %z"), preamble=PREAMBLE)


def parameters():
    entry = """.visible .entry $entry(.param .b8 byte, .param .align 16 .b8 block[20], .param .f64 d,
  .param .u16 h, .param .u64 out)
{ .reg .b64 %p, %x<4>; .reg .b32 %r<4>; .reg .f64 %f; .reg .s16 %s;
  ld.param.u64 %p, [out]; ld.param.s8 %s, [byte]; cvt.s64.s16 %x0, %s; st.global.u64 [%p], %x0;
  ld.param.v2.u64 {%x0, %x1}, [block]; st.global.v2.u64 [%p+16], {%x0, %x1};
  ld.param.u32 %r0, [block+16]; ld.param.u16 %r1, [h]; ld.param.b8 %r2, [block+3];
  mov.b64 %x2, {%r0, %r1}; st.global.u64 [%p+8], %x2; ld.param.f64 %f, [d]; st.global.f64 [%p+32], %f;
  cvt.u64.u32 %x3, %r2; st.global.u64 [%p+40], %x3; ret; }"""
    block = bytes(range(1, 21))
    values_of = [b"\x9c", block, struct.pack("<d", -2.5), struct.pack("<H", 0xabcd)]
    yield Case(name="parameters", instruction="ld.param of every width", entry=entry, inputs=[],
               output=np.zeros(6, np.uint64), block=(1, 1, 1),
               parameters=lambda driver, inputs, output: [*values_of, struct.pack("<Q", output)],
               parameter_note=repr(values_of))


def specials():
    names = ("tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y",
             "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z", "laneid", "lanemask_eq",
             "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "dynamic_smem_size",
             "total_smem_size", "aggr_smem_size", "clusterid.x", "nclusterid.y", "cluster_ctaid.x",
             "cluster_nctaid.x", "cluster_ctarank", "cluster_nctarank")
    grid, block = (2, 3, 2), (8, 3, 2)
    threads = 48 * 12
    lines = [".visible .entry $entry(.param .u64 out)\n{ .reg .b64 %p, %o; .reg .b32 %r<8>;",
             "mov.u32 %r1, %ctaid.y;"
             " mov.u32 %r2, %ctaid.z; mad.lo.u32 %r1, %r2, 3, %r1; mov.u32 %r2, %ctaid.x;"
             " mad.lo.u32 %r1, %r1, 2, %r2; mov.u32 %r2, %tid.z; mad.lo.u32 %r1, %r1, 2, %r2;"
             " mov.u32 %r2, %tid.y; mad.lo.u32 %r1, %r1, 3, %r2; mov.u32 %r2, %tid.x;"
             " mad.lo.u32 %r1, %r1, 8, %r2; mul.wide.u32 %o, %r1, 4;"
             " ld.param.u64 %p, [out]; add.u64 %p, %p, %o;"]
    for k, name in enumerate(names):
        lines.append(f"mov.u32 %r3, %{name}; st.global.u32 [%p+{4 * threads * k}], %r3;")
    lines.append("ret; }")
    yield Case(name="special_registers", instruction="mov of special registers",
               entry="\n".join(lines), inputs=[], output=np.zeros(threads * len(names), np.uint32),
               grid=grid, block=block, shared_bytes=640,
               operands=lambda i: f"%{names[i // threads]} of thread {i % threads}")


HINTED = ".global .align 128 .b8 hinted[128];"


def hints():
    """Instructions whose only effect is on time, in the midst of others."""
    plain = {
        "membar": "st.global.u32 [%p], %a; membar.cta; membar.gl; membar.sys; ld.global.u32 %a, [%p];",
        "prefetch": "prefetch.global.L1 [%z]; prefetch.global.L2 [%z];"
                    " prefetch.global.L2::evict_last [%z]; prefetchu.L1 [%y];",
        "applypriority": "applypriority.global.L2::evict_normal [%z], 128;",
        "discard": "discard.global.L2 [%z], 128;",
        "nanosleep": "nanosleep.u32 20;",
        "griddepcontrol": "griddepcontrol.wait; griddepcontrol.launch_dependents;",
        "pmevent": "pmevent 3;",
        "createpolicy": "createpolicy.fractional.L2::evict_last.b64 %y, 0.5;"
                        " ld.global.L2::cache_hint.u32 %a, [%p], %y;",
    }
    for name, text in plain.items():
        yield element(name, f"mov.u64 %z, hinted; cvta.global.u64 %y, %z; {text} add.u32 %d, %a, 1;",
                      "u32", "u32", registers=(".b64 %y, %z",), preamble=HINTED, instruction=text)
    case = element("setmaxnreg", "setmaxnreg.dec.sync.aligned.u32 40; add.u32 %d, %a, 1;"
                   " setmaxnreg.inc.sync.aligned.u32 64;", "u32", "u32", target="sm_90a")
    case.entry = case.entry.replace(")\n{", ")\n.maxnreg 64\n{", 1)
    yield case
    yield element("exit", "setp.lt.u32 %w, %a, %b; @%w exit; sub.u32 %d, %a, %b;", "u32",
                  ("u32", "u32"), registers=(".pred %w",))


def cases():
    yield from hints()
    yield from branches()
    yield from calls()
    yield from stack()
    yield from constants()
    yield from parameters()
    yield from specials()
