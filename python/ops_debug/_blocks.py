"""Reports of blocks to the preloaded library (interposer/block_exports.cc)."""
import ctypes


def connect():
    """(handed_out, given_back), or None if nobody listens in this process.

    handed_out(address, size_bytes, reserved_bytes, framework, pool); given_back(address)."""
    library = ctypes.PyDLL(None)  # keeps the interpreter's lock: the calls are short
    try:
        tracks = library.ops_debug_tracks_blocks
    except AttributeError:
        return None
    if not tracks():
        return None
    handed_out = library.ops_debug_block_handed_out
    handed_out.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p]
    handed_out.restype = None
    given_back = library.ops_debug_block_given_back
    given_back.argtypes = [ctypes.c_uint64]
    given_back.restype = None
    return handed_out, given_back
