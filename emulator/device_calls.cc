// Functions that the device run-time provides without a body: vprintf, __assertfail, malloc, free.
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/checks/checks.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

constexpr size_t kMaximumString = 64 * 1024;

bool IsOneOf(char c, const char* set) { return c != 0 && std::strchr(set, c) != nullptr; }

// What printf returns on the device: the number of its arguments (CUDA C++ Programming Guide,
// "Formatted Output").
uint64_t CountArguments(const std::string& format) {
  uint64_t count = 0;
  for (size_t i = 0; i + 1 < format.size(); ++i) {
    if (format[i] != '%') continue;
    if (format[++i] == '%') continue;
    ++count;
    for (; IsOneOf(format[i], "-+ #0123456789.*hljztL"); ++i) count += format[i] == '*' ? 1 : 0;
  }
  return count;
}

}  // namespace

// A string at a generic address; false if it leaves accessible memory.
bool Machine::ReadString(uint64_t address, std::string* out) const {
  for (; out->size() < kMaximumString; ++address) {
    if (!launch_.memory->Accessible(address, 1)) return false;
    const char c = *reinterpret_cast<const char*>(address);
    if (c == 0) return true;
    *out += c;
  }
  return true;
}

// Arguments lie in memory as the CUDA ABI promotes them: 4-byte integers, 8-byte longs, doubles and
// pointers, aligned.
bool Machine::Print(Warp& warp, Frame& /*frame*/, uint32_t lane, uint64_t format_address,
                    uint64_t arguments) {
  std::string format;
  if (!ReadString(format_address, &format)) {
    return FailAccess(warp, Space::kGlobal, format_address, lane, 1);
  }
  std::string& output = warp.block->output;
  uint64_t offset = 0;
  const auto next = [&](uint64_t bytes, uint64_t* value) {
    offset = (offset + bytes - 1) & ~(bytes - 1);
    const std::byte* const p = ResolveLane(warp, Space::kGeneric, arguments + offset, lane,
                                           static_cast<uint32_t>(bytes), false);
    if (p == nullptr)
      return FailAccess(warp, Space::kGeneric, arguments + offset, lane,
                        static_cast<uint32_t>(bytes));
    *value = 0;
    std::memcpy(value, p, bytes);
    offset += bytes;
    return true;
  };
  char text[512] = "";
  for (size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      output += format[i++];
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '%') {
      output += '%';
      i += 2;
      continue;
    }
    std::string spec = "%";
    size_t end = i + 1;
    bool is_long = false;
    for (; end < format.size() && IsOneOf(format[end], "-+ #0123456789.*hljztL"); ++end) {
      if (format[end] == '*') {
        uint64_t width = 0;
        if (!next(4, &width)) return false;
        spec += std::to_string(static_cast<int32_t>(width));
      } else if (IsOneOf(format[end], "ljzt")) {
        is_long = true;  // long is 8 bytes
      } else if (IsOneOf(format[end], "-+ #0123456789.")) {
        spec += format[end];
      }
    }
    const char conversion = end < format.size() ? format[end] : 0;
    uint64_t value = 0;
    if (IsOneOf(conversion, "di")) {
      if (!next(is_long ? 8 : 4, &value)) return false;
      spec += "lld";
      const long long number =
          is_long ? static_cast<long long>(value) : static_cast<int32_t>(value);
      std::snprintf(text, sizeof(text), spec.c_str(), number);
    } else if (IsOneOf(conversion, "uoxX")) {
      if (!next(is_long ? 8 : 4, &value)) return false;
      spec += "ll";
      spec += conversion;
      std::snprintf(text, sizeof(text), spec.c_str(), static_cast<unsigned long long>(value));
    } else if (conversion == 'c') {
      if (!next(4, &value)) return false;
      spec += 'c';
      std::snprintf(text, sizeof(text), spec.c_str(), static_cast<int>(value));
    } else if (IsOneOf(conversion, "fFeEgGaA")) {
      if (!next(8, &value)) return false;
      spec += conversion;
      std::snprintf(text, sizeof(text), spec.c_str(), __builtin_bit_cast(double, value));
    } else if (conversion == 'p') {
      if (!next(8, &value)) return false;
      spec += 'p';
      std::snprintf(text, sizeof(text), spec.c_str(), reinterpret_cast<void*>(value));
    } else if (conversion == 's') {
      if (!next(8, &value)) return false;
      std::string argument;
      if (!ReadString(value, &argument)) return FailAccess(warp, Space::kGlobal, value, lane, 1);
      if (spec == "%") {
        output += argument;
        text[0] = 0;
      } else {
        spec += 's';
        std::snprintf(text, sizeof(text), spec.c_str(), argument.c_str());
      }
    } else {
      // Unknown conversions appear as written.
      output.append(format, i, end - i + 1);
      text[0] = 0;
    }
    output += text;
    i = end + 1;
  }
  return true;
}

bool Machine::AssertFail(Warp& warp, Frame& frame, uint32_t lanes, const CallSite& site) {
  const auto lane = static_cast<uint32_t>(__builtin_ctz(lanes));
  std::string parts[3];
  uint64_t line = 0;
  // __assertfail(message, file, line, function, character size)
  for (size_t i = 0; i < site.arguments.size() && i < 4; ++i) {
    const uint64_t value = ReadSlot(warp, frame, lane, site.arguments[i]);
    if (i == 2) {
      line = static_cast<uint32_t>(value);
    } else {
      ReadString(value, &parts[i == 3 ? 2 : i]);
    }
  }
  // One line per thread, on stderr, as the hardware's driver has it.
  const Block& block = *warp.block;
  std::string text;
  const auto add_index = [&text](const char* name, uint32_t x, uint32_t y, uint32_t z) {
    text += std::string(name) + ": [" + std::to_string(x) + "," + std::to_string(y) + "," +
            std::to_string(z) + "]";
  };
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    const auto thread = static_cast<uint32_t>(__builtin_ctz(m));
    text += parts[1] + ":" + std::to_string(static_cast<uint32_t>(line)) + ": " + parts[2] + ": ";
    add_index("block", block.index[0], block.index[1], block.index[2]);
    add_index(", thread", warp.thread_index[0][thread], warp.thread_index[1][thread],
              warp.thread_index[2][thread]);
    text += " Assertion `" + parts[0] + "` failed.\n";
  }
  std::fputs(text.c_str(), stderr);
  return Fail(LaunchError::Code::kAssert, warp, lane,
              "assertion `" + parts[0] + "` at " + parts[1] + ":" + std::to_string(line));
}

bool Machine::CallBuiltin(Warp& warp, Split& split, const Function& callee, const CallSite& site) {
  Frame& frame = *split.frame;
  const bool takes_two =
      callee.builtin == Builtin::kPrintf || callee.builtin == Builtin::kSetConditional;
  const size_t needed = takes_two ? 2 : 1;
  if (callee.builtin == Builtin::kUnknown || callee.builtin == Builtin::kNone ||
      site.arguments.size() < needed) {
    return Fail(LaunchError::Code::kUnsupportedInstruction, warp,
                static_cast<uint32_t>(__builtin_ctz(split.lanes)),
                "call of " + callee.name +
                    ", which the module does not define and the CPU device does not provide");
  }
  if (callee.builtin == Builtin::kAssertFail) return AssertFail(warp, frame, split.lanes, site);
  for (uint32_t m = split.lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint64_t first = ReadSlot(warp, frame, lane, site.arguments[0]);
    uint64_t result = 0;
    switch (callee.builtin) {
      case Builtin::kPrintf:
        if (!Print(warp, frame, lane, first, ReadSlot(warp, frame, lane, site.arguments[1])))
          return false;
        if (std::string format; ReadString(first, &format)) result = CountArguments(format);
        break;
      case Builtin::kMalloc:
        result = first == 0 ? 0 : launch_.memory->Allocate(first);
        if (result != 0 && launch_.checks != nullptr) launch_.checks->checks().Renew(result, first);
        break;
      case Builtin::kFree:
        if (uint64_t base = 0, bytes = 0;
            launch_.checks != nullptr && first != 0 && launch_.memory->Find(first, &base, &bytes))
          launch_.checks->checks().Forget(base, bytes);
        if (first != 0 && !launch_.memory->Free(first)) {
          return Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                      "free of a pointer that malloc did not return");
        }
        break;
      case Builtin::kSetConditional: {
        // The handle is the address of the condition's word (driver/graph.h).
        if ((first & 3) != 0 || !launch_.memory->Accessible(first, sizeof(uint32_t))) {
          return Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                      "cudaGraphSetConditional with a handle that is none");
        }
        const auto value = static_cast<uint32_t>(ReadSlot(warp, frame, lane, site.arguments[1]));
        __atomic_store_n(reinterpret_cast<uint32_t*>(first), value, __ATOMIC_RELAXED);
        break;
      }
      default:
        break;
    }
    if (!site.results.empty()) WriteSlot(warp, frame, lane, site.results[0], result);
  }
  return true;
}

}  // namespace ops_debug::emulator
