// How undefined values pass through calls: arguments and results of functions, and what the device
// run-time's functions do with theirs.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "emulator/checks/init_check.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

bool IsOneOf(char c, const char* set) { return c != 0 && std::strchr(set, c) != nullptr; }

// Bytes of each argument that a format of printf takes (device_calls.cc).
std::vector<uint32_t> SizesOfArguments(const std::string& format) {
  std::vector<uint32_t> sizes;
  for (size_t i = 0; i + 1 < format.size(); ++i) {
    if (format[i] != '%') continue;
    if (format[++i] == '%') continue;
    bool is_long = false;
    for (; IsOneOf(format[i], "-+ #0123456789.*hljztL"); ++i) {
      if (format[i] == '*') sizes.push_back(4);
      is_long = is_long || IsOneOf(format[i], "ljzt");
    }
    if (IsOneOf(format[i], "diuoxXc")) sizes.push_back(is_long && format[i] != 'c' ? 8 : 4);
    if (IsOneOf(format[i], "fFeEgGaAps")) sizes.push_back(8);
  }
  return sizes;
}

}  // namespace

void InitCheck::CopySlot(Warp& warp, Frame& from_frame, const Slot& from, Frame& to_frame,
                         const Slot& to, uint32_t lane) {
  LocalBytes& local = Of(*warp.block).local;
  const uint64_t row = RowOf(warp, lane);
  const auto place = [&](const Frame& frame, const Slot& slot) {
    return row + frame.local_base + slot.offset;
  };
  RegisterDefinedness& registers = Registers(to_frame);
  if (!from.is_register && !to.is_register) {
    std::vector<uint8_t> undefined(std::min(from.bytes, to.bytes));
    if (local.Load(place(from_frame, from), undefined.size(), undefined.data())) {
      local.Store(place(to_frame, to), undefined.size(), undefined.data(),
                  local.OriginAt(place(from_frame, from)));
    } else {
      local.SetDefined(place(to_frame, to), undefined.size(), true);
    }
    return;
  }
  uint64_t bits = 0;
  ReadOrigin origin = 0;
  if (from.is_register) {
    bits = Registers(from_frame).BitsOf(from.ref, from.width, lane);
    if (bits != 0) origin = Registers(from_frame).OriginOf(from.ref, lane);
  } else {
    uint8_t undefined[8] = {};
    if (local.Load(place(from_frame, from), std::min(from.bytes, 8u), undefined)) {
      std::memcpy(&bits, undefined, sizeof(bits));
      origin = local.OriginAt(place(from_frame, from));
    }
  }
  if (to.is_register) {
    registers.SetLane(to.ref, to.width, lane, bits & WidthMask(to.width), origin);
    return;
  }
  uint8_t undefined[8];
  std::memcpy(undefined, &bits, sizeof(undefined));
  local.Store(place(to_frame, to), std::min(to.bytes, 8u), bits != 0 ? undefined : nullptr, origin);
}

void InitCheck::Call(Warp& warp, Frame& caller, Frame& callee, uint32_t lanes) {
  Registers(callee).Reset();
  StartLocal(warp, callee, lanes);
  const size_t count = std::min(callee.site->arguments.size(), callee.function->parameters.size());
  for (size_t i = 0; i < count; ++i) {
    ForLanes(lanes, [&](uint32_t lane) {
      CopySlot(warp, caller, callee.site->arguments[i], callee, callee.function->parameters[i],
               lane);
    });
  }
}

void InitCheck::Return(Warp& warp, Frame& callee, uint32_t lanes) {
  const size_t count = std::min(callee.site->results.size(), callee.function->results.size());
  for (size_t i = 0; i < count; ++i) {
    ForLanes(lanes, [&](uint32_t lane) {
      CopySlot(warp, callee, callee.function->results[i], *callee.parent, callee.site->results[i],
               lane);
    });
  }
}

// The device run-time writes its results without an instruction, and what it prints is used.
void InitCheck::PassBuiltin(const Place& place, uint32_t lanes) {
  const CallSite& site = *place.in.fn.call;
  if (site.function < 0) return;
  const Function& callee = *launch_.program->functions[static_cast<size_t>(site.function)];
  if (callee.has_body) return;
  if (callee.builtin == Builtin::kPrintf && site.arguments.size() >= 2) UsePrinted(place, lanes);
  LocalBytes& local = Of(*place.warp.block).local;
  for (const Slot& slot : site.results) {
    if (slot.is_register) {
      Registers(place.frame).Define(slot.ref, slot.width, lanes);
      continue;
    }
    ForLanes(lanes, [&](uint32_t lane) {
      local.SetDefined(RowOf(place.warp, lane) + place.frame.local_base + slot.offset, slot.bytes,
                       true);
    });
  }
}

// vprintf(format, arguments): each argument, aligned to its size.
void InitCheck::UsePrinted(const Place& place, uint32_t lanes) {
  const CallSite& site = *place.in.fn.call;
  const auto value_of = [&](const Slot& slot, uint32_t lane) {
    uint64_t value = 0;
    if (slot.is_register) {
      std::memcpy(&value, Machine::At(place.frame, slot.ref) + (size_t{lane} << slot.width),
                  size_t{1} << slot.width);
    } else {
      std::memcpy(&value,
                  place.warp.block->local.data() + RowOf(place.warp, lane) +
                      place.frame.local_base + slot.offset,
                  std::min(slot.bytes, 8u));
    }
    return value;
  };
  ForLanes(lanes, [&](uint32_t lane) {
    const uint64_t format_address = value_of(site.arguments[0], lane);
    std::string format;
    for (uint64_t at = format_address; launch_.memory->Accessible(at, 1); ++at) {
      const char c = *reinterpret_cast<const char*>(at);
      if (c == 0 || format.size() > 4096) break;
      format += c;
    }
    const uint64_t arguments = value_of(site.arguments[1], lane);
    uint64_t offset = 0;
    for (const uint32_t size : SizesOfArguments(format)) {
      offset = (offset + size - 1) & ~uint64_t{size - 1};
      uint8_t undefined[8];
      ReadOrigin origins[2] = {};
      if (LoadBytes(place, Space::kGeneric, arguments + offset, lane, size, undefined, origins))
        Use(place, origins[0], "printed");
      offset += size;
    }
  });
}

}  // namespace ops_debug::emulator
