// Frames are read where the interpreter keeps them, without calling it: a thread's own frames do
// not change while it is in native code, so this is safe even when it has given up the
// interpreter's lock. What must be known for that is the layout of a few structures, which differ
// from version to version and are public in none. So they are not written down here but found:
// once, when a thread holds the lock, the stack is asked for through the C interface
// (PyEval_GetFrame, PyFrame_GetBack, PyFrame_GetCode, PyFrame_GetLasti), and the memory behind the
// thread state is searched for a chain of frames that says the same. All reads of the search go
// through a pipe, which answers EFAULT where a load would crash. If no layout fits, there are no
// Python stacks.
//
// A code object is known by its address and by the addresses of its name and file: another one in
// the same place has others. Strings are copied when a line is met first.
#include "interposer/python_stack.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "interposer/dynamic_linker.h"

namespace ops_debug::interposer {
namespace {

using PyObject = void;

struct PythonApi {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;        // may be missing
  int (*holds_lock)() = nullptr;           // PyGILState_Check
  void* (*current_state)() = nullptr;      // null if this thread does not hold the lock
  void* (*state_of_thread)() = nullptr;    // PyGILState_GetThisThreadState; needs no lock
  PyObject* (*frame)() = nullptr;          // borrowed
  PyObject* (*back)(PyObject*) = nullptr;  // new reference
  PyObject* (*code)(PyObject*) = nullptr;  // new reference
  int (*last_instruction)(PyObject*) = nullptr;
  int (*address_to_line)(PyObject*, int) = nullptr;  // PyCode_Addr2Line; only reads
  void (*release)(PyObject*) = nullptr;
  PyObject* (*attribute)(PyObject*, const char*) = nullptr;
  const char* (*utf8)(PyObject*) = nullptr;
  void (*fetch_error)(PyObject**, PyObject**, PyObject**) = nullptr;
  void (*restore_error)(PyObject*, PyObject*, PyObject*) = nullptr;
  int (*collection_off)() = nullptr;
  int (*collection_on)() = nullptr;
  void* code_type = nullptr;  // &PyCode_Type
};

template <class Function>
bool Find(Function* function, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    *function = reinterpret_cast<Function>(RealDlsym()(RTLD_DEFAULT, name));
    if (*function) return true;
  }
  return false;
}

bool FindApi(PythonApi* api) {
  if (!Find(&api->is_initialized, {"Py_IsInitialized"})) return false;
  Find(&api->is_finalizing, {"Py_IsFinalizing", "_Py_IsFinalizing"});
  return Find(&api->holds_lock, {"PyGILState_Check"}) &&
         Find(&api->current_state, {"PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet"}) &&
         Find(&api->state_of_thread, {"PyGILState_GetThisThreadState"}) &&
         Find(&api->frame, {"PyEval_GetFrame"}) && Find(&api->back, {"PyFrame_GetBack"}) &&
         Find(&api->code, {"PyFrame_GetCode"}) &&
         Find(&api->last_instruction, {"PyFrame_GetLasti"}) &&
         Find(&api->address_to_line, {"PyCode_Addr2Line"}) && Find(&api->release, {"Py_DecRef"}) &&
         Find(&api->attribute, {"PyObject_GetAttrString"}) &&
         Find(&api->utf8, {"PyUnicode_AsUTF8"}) && Find(&api->fetch_error, {"PyErr_Fetch"}) &&
         Find(&api->restore_error, {"PyErr_Restore"}) &&
         Find(&api->collection_off, {"PyGC_Disable"}) &&
         Find(&api->collection_on, {"PyGC_Enable"}) && Find(&api->code_type, {"PyCode_Type"});
}

// Byte offsets.
struct Layout {
  int state_frame = 0;      // thread state -> frame, or -> a structure that leads there
  int indirect_frame = -1;  // in that structure; -1: there is none
  int frame_code = 0;
  int frame_previous = 0;
  int frame_instruction = 0;      // pointer to the instruction that is being executed
  int64_t first_instruction = 0;  // code object -> its instructions
  int code_file = 0;
  int code_name = 0;
  int text_bytes = 0;  // string object -> its characters, if they are ASCII
};
constexpr int kTextLength = 16;  // PyASCIIObject: reference count, type, length
constexpr int kObjectType = 8;

// Pointers that the interpreter tags in their low bits.
uintptr_t Untagged(uintptr_t pointer) { return pointer & ~uintptr_t{7}; }

// Reads memory that may not be there.
class CarefulReader {
 public:
  CarefulReader() {
    if (pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) ends_[0] = ends_[1] = -1;
  }
  ~CarefulReader() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  CarefulReader(const CarefulReader&) = delete;
  CarefulReader& operator=(const CarefulReader&) = delete;

  bool Read(uintptr_t address, uintptr_t* value) const {
    if (address < 4096 || address % 8 != 0 || ends_[0] < 0) return false;
    constexpr ssize_t kBytes = sizeof *value;
    return write(ends_[1], reinterpret_cast<const void*>(address), kBytes) == kBytes &&
           read(ends_[0], value, kBytes) == kBytes;
  }
  uintptr_t ReadOrZero(uintptr_t address) const {
    uintptr_t value = 0;
    return Read(address, &value) ? value : 0;
  }

 private:
  int ends_[2] = {-1, -1};
};

struct KnownFrame {
  uintptr_t code = 0;
  int last_instruction = 0;
};

constexpr int kStateBytes = 1024, kFrameBytes = 128, kCodeBytes = 320;
constexpr size_t kKnownFrames = 8;
constexpr int kMaxHiddenFrames = 4;  // of the interpreter's own, between two of the program's

// The addresses of the known frames, if a chain through these offsets leads over all of them.
std::vector<uintptr_t> FollowChain(const CarefulReader& reader, uintptr_t frame,
                                   const Layout& layout, const std::vector<KnownFrame>& known) {
  std::vector<uintptr_t> found;
  int hidden = 0;
  while (found.size() < known.size() && frame != 0 && hidden <= kMaxHiddenFrames) {
    const uintptr_t code = Untagged(reader.ReadOrZero(frame + layout.frame_code));
    if (code == known[found.size()].code) {
      found.push_back(frame);
      hidden = 0;
    } else {
      hidden++;
    }
    frame = reader.ReadOrZero(frame + layout.frame_previous);
  }
  if (found.size() != known.size()) found.clear();
  return found;
}

bool FindInstruction(const CarefulReader& reader, const std::vector<uintptr_t>& frames,
                     const std::vector<KnownFrame>& known, Layout* layout) {
  for (int offset = 0; offset < kFrameBytes; offset += 8) {
    int64_t bias = 0;
    bool same = true;
    for (size_t i = 0; same && i < frames.size(); i++) {
      const auto distance =
          static_cast<int64_t>(reader.ReadOrZero(frames[i] + offset) - known[i].code) -
          known[i].last_instruction;
      same = distance > 0 && distance < 4096 && (i == 0 || distance == bias);
      bias = distance;
    }
    if (!same) continue;
    layout->frame_instruction = offset;
    layout->first_instruction = bias;
    return true;
  }
  return false;
}

bool FindFrames(const CarefulReader& reader, uintptr_t state, const std::vector<KnownFrame>& known,
                Layout* layout) {
  for (layout->state_frame = 16; layout->state_frame < kStateBytes; layout->state_frame += 8) {
    const uintptr_t direct = reader.ReadOrZero(state + layout->state_frame);
    if (direct == 0) continue;
    for (const int indirect : {-1, 0, 8}) {
      layout->indirect_frame = indirect;
      const uintptr_t frame = indirect < 0 ? direct : reader.ReadOrZero(direct + indirect);
      if (frame == 0) continue;
      for (layout->frame_code = 0; layout->frame_code < kFrameBytes; layout->frame_code += 8) {
        const uintptr_t code = Untagged(reader.ReadOrZero(frame + layout->frame_code));
        if (code != known.front().code) continue;
        for (int previous = 0; previous < kFrameBytes; previous += 8) {
          layout->frame_previous = previous;
          if (previous == layout->frame_code) continue;
          const auto frames = FollowChain(reader, frame, *layout, known);
          if (!frames.empty() && FindInstruction(reader, frames, known, layout)) return true;
        }
      }
    }
  }
  return false;
}

// Where a code object keeps the object that is its attribute.
std::optional<int> FindAttribute(const PythonApi& api, const CarefulReader& reader, uintptr_t code,
                                 const char* name, int* text_bytes) {
  PyObject* const value = api.attribute(reinterpret_cast<PyObject*>(code), name);
  if (!value) return std::nullopt;
  std::optional<int> found;
  const auto object = reinterpret_cast<uintptr_t>(value);
  for (int offset = 16; !found && offset < kCodeBytes; offset += 8) {
    if (reader.ReadOrZero(code + offset) == object) found = offset;
  }
  if (const char* const text = api.utf8(value)) {
    const uintptr_t distance = reinterpret_cast<uintptr_t>(text) - object;
    if (distance < 128) *text_bytes = static_cast<int>(distance);
  }
  api.release(value);
  return found;
}

// The caller holds the interpreter's lock. Nothing if the stack is too short to be sure.
std::optional<Layout> FindLayout(const PythonApi& api, bool* tried) {
  std::vector<KnownFrame> known;
  std::vector<PyObject*> references;
  PyObject* frame = api.frame();
  while (frame && known.size() < kKnownFrames) {
    PyObject* const code = api.code(frame);
    if (!code) break;
    references.push_back(code);
    known.push_back({reinterpret_cast<uintptr_t>(code), api.last_instruction(frame)});
    frame = api.back(frame);
    if (frame) references.push_back(frame);
  }
  const bool enough = known.size() >= 2 && std::ranges::any_of(known, [&](const KnownFrame& other) {
                        return other.code != known.front().code;
                      });
  *tried = enough;
  Layout layout;
  bool ok = false;
  if (enough) {
    const CarefulReader reader;
    ok = FindFrames(reader, reinterpret_cast<uintptr_t>(api.current_state()), known, &layout);
    const auto file = FindAttribute(api, reader, known[0].code, "co_filename", &layout.text_bytes);
    const auto name = FindAttribute(api, reader, known[0].code, "co_qualname", &layout.text_bytes);
    ok = ok && file && name && layout.text_bytes != 0;
    if (ok) {
      layout.code_file = *file;
      layout.code_name = *name;
    }
  }
  for (PyObject* reference : references) api.release(reference);
  return ok ? std::optional(layout) : std::nullopt;
}

constexpr size_t kMaxLines = 1u << 20;  // then new ones stay unnamed
constexpr uint32_t kMaxSearches = 8;

struct Place {
  uintptr_t code = 0;
  uintptr_t instruction = 0;
  bool operator==(const Place&) const = default;
};
struct PlaceHash {
  size_t operator()(const Place& place) const {
    return (place.instruction ^ (place.code >> 4)) * 0x9e3779b97f4a7c15ull >> 20;
  }
};
// A line that was met. `file` and `name` are the code object's when it was.
struct Line {
  uintptr_t file = 0, name = 0;
  uint32_t number = 0;  // 0: a frame of the interpreter's own, or of ours
};

// Never destroyed: threads run until the very end of the process.
struct Python {
  PythonApi api;
  Layout layout;
  std::atomic<bool> found{false}, readable{false}, given_up{false};
  std::atomic<uint32_t> attempts{0}, searches{0};
  std::mutex search_mutex;
  std::shared_mutex
      mutex;  // guards the rest; nothing of Python's that could wait is called under it
  std::unordered_map<Place, Line, PlaceHash> lines;
  std::vector<PythonFrame> frames{{}};
};
Python& ThePython() {
  static auto* python = new Python;
  return *python;
}

bool Found(Python& python) {
  if (python.found.load(std::memory_order_acquire)) return true;
  // Libraries come one by one; the more questions, the rarer we look.
  const uint32_t attempt = python.attempts.fetch_add(1, std::memory_order_relaxed);
  if ((attempt & (attempt + 1)) != 0) return false;
  std::lock_guard lock(python.search_mutex);
  if (!python.found) {
    PythonApi api;
    if (!FindApi(&api)) return false;
    python.api = api;
    python.found.store(true, std::memory_order_release);
  }
  return true;
}

// Searches for the layout if this thread holds the interpreter's lock.
bool Readable(Python& python) {
  if (python.readable.load(std::memory_order_acquire)) return true;
  if (python.given_up.load(std::memory_order_relaxed)) return false;
  const PythonApi& api = python.api;
  // PyGILState_Check answers yes whenever there are sub-interpreters, so the state is asked for
  // too.
  if (!api.is_initialized() || (api.is_finalizing && api.is_finalizing()) || !api.holds_lock() ||
      !api.current_state() || api.current_state() != api.state_of_thread()) {
    return false;
  }
  // Another thread that searches holds the interpreter's lock, too, unless it lost it meanwhile.
  std::unique_lock lock(python.search_mutex, std::try_to_lock);
  if (!lock || python.readable) return python.readable;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  api.fetch_error(&type, &value, &trace);
  // Making frame objects can start a collection before Python 3.12, and with it finalizers; a
  // pool's lock may be held here.
  const bool collects = api.collection_off() != 0;
  bool tried = false;
  const auto layout = FindLayout(api, &tried);
  if (collects) api.collection_on();
  api.restore_error(type, value, trace);
  if (layout) {
    python.layout = *layout;
    python.readable.store(true, std::memory_order_release);
  } else if (tried && ++python.searches >= kMaxSearches) {
    python.given_up = true;
  }
  return layout.has_value();
}

uintptr_t Load(uintptr_t address) { return *reinterpret_cast<const uintptr_t*>(address); }

std::string Text(const Layout& layout, uintptr_t object) {
  constexpr size_t kMaxBytes = 4096;
  const size_t length = Load(object + kTextLength);
  const char* const text = reinterpret_cast<const char*>(object + layout.text_bytes);
  if (length > kMaxBytes || strnlen(text, length) != length) return "?";  // not ASCII
  return std::string(text, length);
}

Line MakeLine(Python& python, const Place& place) {
  const Layout& layout = python.layout;
  Line line{Load(place.code + layout.code_file), Load(place.code + layout.code_name), 0};
  PythonFrame frame;
  frame.file = Text(layout, line.file);
  frame.function = Text(layout, line.name);
  const auto ours = [&](const char* file) { return frame.file.ends_with(file); };
  if (frame.function.starts_with("<interpreter") || frame.function.starts_with("<shim") ||
      ours("/ops_debug/_cupy.py") || ours("/ops_debug/_rmm.py")) {
    return line;
  }
  const int64_t offset =
      static_cast<int64_t>(place.instruction - place.code) - layout.first_instruction;
  frame.line = static_cast<uint32_t>(
      std::max(0, python.api.address_to_line(reinterpret_cast<PyObject*>(place.code),
                                             static_cast<int>(offset))));
  if (python.frames.size() < kMaxLines) {
    line.number = static_cast<uint32_t>(python.frames.size());
    python.frames.push_back(std::move(frame));
  }
  return line;
}

}  // namespace

bool PythonReadable() noexcept { return ThePython().readable.load(std::memory_order_relaxed); }

PythonStackHandle CapturePythonStack() noexcept {
  PythonStackHandle stack;
  try {
    Python& python = ThePython();
    if (!Found(python) || !Readable(python)) return stack;
    const PythonApi& api = python.api;
    if (!api.is_initialized() || (api.is_finalizing && api.is_finalizing())) return stack;
    const auto state = reinterpret_cast<uintptr_t>(api.state_of_thread());
    if (state == 0) return stack;
    const Layout& layout = python.layout;
    uintptr_t frame = Load(state + layout.state_frame);
    if (frame != 0 && layout.indirect_frame >= 0) frame = Load(frame + layout.indirect_frame);
    const auto code_type = reinterpret_cast<uintptr_t>(api.code_type);
    std::shared_lock lock(python.mutex);
    for (; frame != 0 && stack.count < PythonStackHandle::kMaxFrames;
         frame = Load(frame + layout.frame_previous)) {
      const Place place{Untagged(Load(frame + layout.frame_code)),
                        Load(frame + layout.frame_instruction)};
      if (place.code == 0 || Load(place.code + kObjectType) != code_type) continue;
      const auto known = python.lines.find(place);
      uint32_t number = 0;
      if (known != python.lines.end() &&
          known->second.file == Load(place.code + layout.code_file) &&
          known->second.name == Load(place.code + layout.code_name)) {
        number = known->second.number;
      } else {
        lock.unlock();
        {
          std::unique_lock write(python.mutex);
          number = (python.lines[place] = MakeLine(python, place)).number;
        }
        lock.lock();
      }
      if (number != 0) stack.lines[stack.count++] = number;
    }
  } catch (...) {
    // No memory: the frames so far are what there is.
  }
  return stack;
}

PythonStack ResolvePythonStack(const PythonStackHandle& stack) {
  PythonStack out;
  Python& python = ThePython();
  std::shared_lock lock(python.mutex);
  for (uint32_t i = 0; i < std::min(stack.count, PythonStackHandle::kMaxFrames); i++) {
    if (stack.lines[i] < python.frames.size()) out.push_back(python.frames[stack.lines[i]]);
  }
  return out;
}

}  // namespace ops_debug::interposer
