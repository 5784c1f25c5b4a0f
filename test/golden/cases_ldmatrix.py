"""ldmatrix, stmatrix and movmatrix (PTX ISA 9.0, 9.7.14.5.15 to 9.7.14.5.17)."""

import numpy as np

import values
from matrix_case import registers, thread_case, words

ROW_BYTES = 16
ROWS = 64  # in shared memory


def _rows(seed):
    """A random row of shared memory for each lane, no two the same."""
    return np.argsort(values.random_bits(64, ROWS, seed), kind="stable")[:32].astype(np.uint32)


FILL = ("mad.lo.u32 %t5, %t0, 32, %t4;\n"
        + "\n".join(f"st.shared.b32 [%t5+{4 * k}], %i{k};" for k in range(8)) + "\nbar.sync 0;\n"
        "mad.lo.u32 %t6, %i8, 16, %t4;\n"
        "cvt.u64.u32 %rd4, %t6; cvta.shared.u64 %rd5, %rd4;\n")


def _inputs(name):
    image = words("f16", "any", (1, 32, 8), "a", name)
    return np.concatenate([image, _rows(name).reshape(1, 32, 1)], -1)


def cases():
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            for space, address in ((".shared", "[%t6]"), (".shared::cta", "[%rd4]"), ("", "[%rd5]")):
                name = f"ldmatrix.x{count}{trans}{space.replace('::', '.')}"
                text = (f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 "
                        f"{registers('o', 0, count)}, {address};")
                yield thread_case(name, text, "mov.u32 %t4, sm;\n" + FILL + text, _inputs(name), count,
                                  shared=ROWS * ROW_BYTES)
                name = "st" + name[2:]
                text = (f"stmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {address}, "
                        f"{registers('i', 0, count)};")
                read_back = "\nbar.sync 0;\n" + "\n".join(
                    f"ld.shared.b32 %o{k}, [%t5+{4 * k}];" for k in range(8))
                yield thread_case(name, text, "mov.u32 %t4, sm;\n" + FILL + text + read_back,
                                  _inputs(name), 8, shared=ROWS * ROW_BYTES)
    text = "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;"
    yield thread_case("movmatrix", text, text, _inputs("movmatrix"), 1)
