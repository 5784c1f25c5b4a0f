// PyTorch's caching allocator, seen from outside. Whenever it hands a block out or takes one back
// it tells the profiler, in another library: c10::reportMemoryUsageToProfiler, with the block's
// address and its rounded size. The dynamic linker binds that call to the symbol which this library
// exports under the same name, because a preloaded library comes first. The real function is called
// as well.
//
// What is being allocated is known one level up: at::detail::empty_generic and
// empty_strided_generic get sizes, strides and type, and call the allocator. They are taken the
// same way, and leave a note for the report that follows in the same thread.
//
// The C++ types are spelled as their parts: c10::ArrayRef is a pointer and a count, a class that is
// not trivially copyable is returned through a hidden first parameter (System V ABI, 3.2.3). A
// version of PyTorch that names these functions otherwise never calls ours.
#include "interposer/torch_hooks.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interposer/context_state.h"
#include "interposer/dynamic_linker.h"
#include "interposer/tensor_blocks.h"

#define OPS_DEBUG_EMPTY_GENERIC                                         \
  "_ZN2at6detail13empty_genericEN3c108ArrayRefIlEEPNS1_9AllocatorENS1_" \
  "14DispatchKeySetENS1_10ScalarTypeESt8optionalINS1_12MemoryFormatEE"
#define OPS_DEBUG_EMPTY_STRIDED_GENERIC                             \
  "_ZN2at6detail21empty_strided_genericEN3c108ArrayRefIlEES3_PNS1_" \
  "9AllocatorENS1_14DispatchKeySetENS1_10ScalarTypeE"
#define OPS_DEBUG_REPORT_MEMORY "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

namespace ops_debug::interposer {
namespace {

constexpr const char* kFramework = "PyTorch";
constexpr const char* kPool = "PyTorch caching allocator";
constexpr uint8_t kCudaDevice = 1;  // c10::DeviceType::CUDA

struct ElementType {
  const char* name;
  uint8_t bytes;
};
// c10::ScalarType in the order of its values (c10/core/ScalarType.h), as Python prints them.
constexpr ElementType kElementTypes[] = {
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex32", 4},
    {"complex64", 8},
    {"complex128", 16},
    {"bool", 1},
    {"qint8", 1},
    {"quint8", 1},
    {"qint32", 4},
    {"bfloat16", 2},
    {"quint4x2", 1},
    {"quint2x4", 1},
    {"bits1x8", 1},
    {"bits2x4", 1},
    {"bits4x2", 1},
    {"bits8", 1},
    {"bits16", 2},
    {"float8_e5m2", 1},
    {"float8_e4m3fn", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e4m3fnuz", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"uint1", 1},
    {"uint2", 1},
    {"uint3", 1},
    {"uint4", 1},
    {"uint5", 1},
    {"uint6", 1},
    {"uint7", 1},
    {"int1", 1},
    {"int2", 1},
    {"int3", 1},
    {"int4", 1},
    {"int5", 1},
    {"int6", 1},
    {"int7", 1},
    {"float8_e8m0fnu", 1},
    {"float4_e2m1fn_x2", 1},
};

// The tensor that this thread is making. A call that ends by an exception leaves the note behind;
// it is believed only below the frame that wrote it, and while that frame is still there.
struct Note {
  bool open = false;
  uintptr_t frame = 0;
  uintptr_t return_address = 0;
  uint64_t size_bytes = 0;
  shadow::TensorInfo tensor;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Note t_note;

// Bytes from the first element to behind the last; false on nonsense, which PyTorch will refuse.
bool StorageBytes(const int64_t* sizes, const int64_t* strides, size_t rank, uint64_t element_bytes,
                  uint64_t* bytes) {
  uint64_t elements = 1;
  for (size_t i = 0; i < rank; i++) {
    if (sizes[i] < 0 || (strides && strides[i] < 0)) return false;
    if (sizes[i] == 0) {
      *bytes = 0;
      return true;
    }
    const auto size = static_cast<uint64_t>(sizes[i]);
    uint64_t reach = 0;
    if (!strides) {
      if (__builtin_mul_overflow(elements, size, &elements)) return false;
    } else if (__builtin_mul_overflow(size - 1, static_cast<uint64_t>(strides[i]), &reach) ||
               __builtin_add_overflow(elements, reach, &elements)) {
      return false;
    }
  }
  return !__builtin_mul_overflow(elements, element_bytes, bytes);
}

void Leave(uintptr_t frame, const int64_t* sizes, const int64_t* strides, size_t rank,
           int8_t type) {
  Note& note = t_note;
  note.open = false;
  if (!TracksTensors() || type < 0 || static_cast<size_t>(type) >= std::size(kElementTypes)) return;
  const ElementType& element = kElementTypes[type];
  if (!StorageBytes(sizes, strides, rank, element.bytes, &note.size_bytes)) return;
  note.frame = frame;
  note.return_address = reinterpret_cast<const uintptr_t*>(frame)[1];
  note.tensor.framework = kFramework;
  note.tensor.dtype = element.name;
  note.tensor.has_shape = true;
  note.tensor.rank = static_cast<uint32_t>(std::min<size_t>(rank, shadow::TensorInfo::kMaxRank));
  std::copy_n(sizes, note.tensor.rank, note.tensor.shape.begin());
  note.open = true;
}

// Is the note about what happens in this frame?
bool Believable(const Note& note, uintptr_t frame) {
  return note.open && frame < note.frame &&
         reinterpret_cast<const uintptr_t*>(note.frame)[1] == note.return_address;
}

// Takes the note if it can be about a block of `block_bytes`.
bool TakeNote(uintptr_t frame, uint64_t block_bytes, shadow::TensorInfo* tensor,
              uint64_t* size_bytes) {
  Note& note = t_note;
  if (!Believable(note, frame)) return false;
  note.open = false;
  if (note.size_bytes == 0 || note.size_bytes > block_bytes) return false;
  *tensor = note.tensor;
  *size_bytes = note.size_bytes;
  return true;
}

// The note stays: memory of this size may be a segment that the pool takes for the tensor.
bool Question(uint64_t size_bytes, shadow::TensorInfo* tensor) noexcept {
  const Note& note = t_note;
  if (!Believable(note, reinterpret_cast<uintptr_t>(__builtin_frame_address(0))) ||
      note.size_bytes != size_bytes) {
    return false;
  }
  *tensor = note.tensor;
  return true;
}
[[maybe_unused]] const bool registered = [] {
  AnswerTensorBeingAllocated(&Question);
  return true;
}();

void* FindIn(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return nullptr;
  void* const found = RealDlsym()(handle, name);
  dlclose(handle);
  return found;
}

// The function of this name that the caller would have been bound to without us: in its own library
// or one that it needs, however that was loaded; else in any library.
void* FindReal(const char* name, const void* caller) noexcept {
  const DlsymFunction look_up = RealDlsym();
  if (!look_up) return nullptr;
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(caller, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 && map) {
    // The executable has no name, and its scope begins with us.
    if (map->l_name && map->l_name[0] != '\0') {
      if (void* const found = FindIn(map->l_name, name)) return found;
    }
  }
  if (void* const found = look_up(RTLD_NEXT, name)) return found;
  for (const char* library : {"libc10.so", "libtorch_cpu.so", "libc10_cuda.so"}) {
    if (void* const found = FindIn(library, name)) return found;
  }
  return nullptr;
}

template <class Function>
Function Real(std::atomic<Function>& cached, const char* name, const void* caller) noexcept {
  Function function = cached.load(std::memory_order_acquire);
  if (!function) {
    function = reinterpret_cast<Function>(FindReal(name, caller));
    cached.store(function, std::memory_order_release);
  }
  return function;
}

// c10::cuda::CUDAStream: a device and a number, returned in two registers.
struct TorchStream {
  uint64_t device;
  int64_t id;
};
using CurrentStreamFunction = TorchStream (*)(int8_t);
using StreamHandleFunction = CUstream (*)(const TorchStream*);

// Is the stream that PyTorch works in captured? Where it cannot be asked, any capture counts.
bool CapturesCurrentStream(int8_t device, const void* caller) {
  static std::atomic<CurrentStreamFunction> current{nullptr};
  static std::atomic<StreamHandleFunction> handle{nullptr};
  const auto get_current = Real(current, "_ZN3c104cuda20getCurrentCUDAStreamEa", caller);
  const auto get_handle = Real(handle, "_ZNK3c104cuda10CUDAStream6streamEv", caller);
  if (!get_current || !get_handle) return true;
  const TorchStream stream = get_current(device);
  return IsCapturing(ExplicitStream(get_handle(&stream), DefaultStream::kLegacy));
}

void Report(void* address, int64_t change_bytes, uint16_t device, uintptr_t frame,
            const void* caller) {
  if ((device & 0xff) != kCudaDevice || !TracksTensors()) return;
  const bool under_capture =
      AnyCapture() && CapturesCurrentStream(static_cast<int8_t>(device >> 8), caller);
  if (change_bytes < 0) {
    BlockGivenBack(reinterpret_cast<uint64_t>(address), under_capture);
    return;
  }
  BlockReport report;
  report.address = reinterpret_cast<uint64_t>(address);
  report.reserved_bytes = static_cast<uint64_t>(change_bytes);
  report.pool = kPool;
  if (!TakeNote(frame, report.reserved_bytes, &report.tensor, &report.size_bytes)) {
    report.tensor = {};
    report.tensor.framework = kFramework;
    report.size_bytes = 0;
  }
  report.for_graph = under_capture;
  BlockHandedOut(report);
}

using ReportFunction = void (*)(void*, int64_t, size_t, size_t, uint16_t);
using EmptyFunction = void* (*)(void*, const int64_t*, size_t, void*, uint64_t, int8_t, uint16_t);
using EmptyStridedFunction = void* (*)(void*, const int64_t*, size_t, const int64_t*, size_t, void*,
                                       uint64_t, int8_t);
std::atomic<ReportFunction> g_report{nullptr};
std::atomic<EmptyFunction> g_empty{nullptr};
std::atomic<EmptyStridedFunction> g_empty_strided{nullptr};

}  // namespace

// None of the three keeps anything that an exception of PyTorch's would have to clean up.
extern "C" {

__attribute__((visibility("default"))) void ops_debug_torch_report(
    void* address, int64_t change_bytes, size_t allocated, size_t reserved,
    uint16_t device) __asm__(OPS_DEBUG_REPORT_MEMORY);
void ops_debug_torch_report(void* address, int64_t change_bytes, size_t allocated, size_t reserved,
                            uint16_t device) {
  const void* const caller = __builtin_return_address(0);
  Report(address, change_bytes, device, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)),
         caller);
  if (const auto real = Real(g_report, OPS_DEBUG_REPORT_MEMORY, caller)) {
    real(address, change_bytes, allocated, reserved, device);
  }
}

__attribute__((visibility("default"))) void* ops_debug_torch_empty(
    void* result, const int64_t* sizes, size_t rank, void* allocator, uint64_t keys, int8_t type,
    uint16_t memory_format) __asm__(OPS_DEBUG_EMPTY_GENERIC);
void* ops_debug_torch_empty(void* result, const int64_t* sizes, size_t rank, void* allocator,
                            uint64_t keys, int8_t type, uint16_t memory_format) {
  Leave(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)), sizes, nullptr, rank, type);
  void* const made = Real(g_empty, OPS_DEBUG_EMPTY_GENERIC, __builtin_return_address(0))(
      result, sizes, rank, allocator, keys, type, memory_format);
  t_note.open = false;
  return made;
}

__attribute__((visibility("default"))) void* ops_debug_torch_empty_strided(
    void* result, const int64_t* sizes, size_t rank, const int64_t* strides, size_t stride_count,
    void* allocator, uint64_t keys, int8_t type) __asm__(OPS_DEBUG_EMPTY_STRIDED_GENERIC);
void* ops_debug_torch_empty_strided(void* result, const int64_t* sizes, size_t rank,
                                    const int64_t* strides, size_t stride_count, void* allocator,
                                    uint64_t keys, int8_t type) {
  Leave(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)), sizes, strides,
        std::min(rank, stride_count), type);
  void* const made =
      Real(g_empty_strided, OPS_DEBUG_EMPTY_STRIDED_GENERIC, __builtin_return_address(0))(
          result, sizes, rank, strides, stride_count, allocator, keys, type);
  t_note.open = false;
  return made;
}

}  // extern "C"

std::span<const TorchFunction> TorchFunctions() {
  static const TorchFunction functions[] = {
      {OPS_DEBUG_REPORT_MEMORY, reinterpret_cast<void (*)()>(&ops_debug_torch_report)},
      {OPS_DEBUG_EMPTY_GENERIC, reinterpret_cast<void (*)()>(&ops_debug_torch_empty)},
      {OPS_DEBUG_EMPTY_STRIDED_GENERIC,
       reinterpret_cast<void (*)()>(&ops_debug_torch_empty_strided)},
  };
  return functions;
}

}  // namespace ops_debug::interposer
