// Texture and surface instructions with handles in registers (the form that texture objects
// compile to): tex, tld4, txq, suld.b, sust.b, sured.b, suq. Each becomes an object that the
// interpreter calls for a warp's lanes. Module-scope .texref and .samplerref (separate samplers)
// stay unsupported. Source: PTX ISA 9.0, sections 9.7.10 and 9.7.11.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "emulator/decoder.h"
#include "emulator/machine.h"
#include "emulator/texture.h"

namespace ops_debug::emulator {
namespace {

uint32_t Bits32(Frame& frame, Ref ref, uint32_t lane) {
  return reinterpret_cast<const uint32_t*>(Machine::At(frame, ref))[lane];
}
uint64_t Bits64(Frame& frame, Ref ref, uint32_t lane) {
  return reinterpret_cast<const uint64_t*>(Machine::At(frame, ref))[lane];
}
float Float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool FailHandle(Machine& machine, Warp& warp, uint32_t lane, const char* kind, uint64_t handle) {
  return machine.Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                      std::string("no ") + kind + " object has the handle " +
                          std::to_string(handle) + "; was it destroyed?");
}

class TextureFetch : public ExtendedOperation {
 public:
  Geometry geometry = Geometry::k2D;
  bool integer_coordinates = false;
  std::optional<uint32_t> gather;  // tld4: the component
  Ref handle = kNoRef;
  Ref layer = kNoRef, level = kNoRef;
  std::array<Ref, 3> coordinates{kNoRef, kNoRef, kNoRef};
  std::array<Ref, 4> results{kNoRef, kNoRef, kNoRef, kNoRef};
  // .grad: the changes of each coordinate per pixel, from which the level follows.
  std::array<Ref, 3> ddx{kNoRef, kNoRef, kNoRef}, ddy{kNoRef, kNoRef, kNoRef};

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction&,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    uint64_t known_handle = 0;
    const TextureObject* texture = nullptr;
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const uint64_t wanted = Bits64(frame, handle, lane);
      if (texture == nullptr || wanted != known_handle) {
        texture = FindTexture(wanted);
        known_handle = wanted;
      }
      if (texture == nullptr) {
        FailHandle(machine, warp, lane, "texture", wanted);
        return Step::kFault;
      }
      const TextureQuery query = MakeQuery(frame, lane, *texture);
      const std::array<uint32_t, 4> texel =
          gather ? Gather(*texture, query, *gather) : Sample(*texture, query);
      for (uint32_t c = 0; c < 4; ++c) {
        if (results[c] != kNoRef)
          reinterpret_cast<uint32_t*>(Machine::At(frame, results[c]))[lane] = texel[c];
      }
    }
    return Step::kDone;
  }

 private:
  TextureQuery MakeQuery(Frame& frame, uint32_t lane, const TextureObject& texture) const {
    TextureQuery query;
    query.geometry = geometry;
    query.integer_coordinates = integer_coordinates;
    for (uint32_t d = 0; d < 3; ++d) {
      if (coordinates[d] == kNoRef) continue;
      const uint32_t bits = Bits32(frame, coordinates[d], lane);
      query.indices[d] = static_cast<int32_t>(bits);
      query.coordinates[d] = Float(bits);
    }
    if (layer != kNoRef) query.layer = Bits32(frame, layer, lane);
    if (level != kNoRef) {
      const uint32_t bits = Bits32(frame, level, lane);
      query.level =
          integer_coordinates ? static_cast<float>(static_cast<int32_t>(bits)) : Float(bits);
    }
    if (ddx[0] != kNoRef) query.level = LevelOf(frame, lane, texture);
    query.has_level = level != kNoRef || ddx[0] != kNoRef;
    return query;
  }

  // The level at which a step in the image is one texel long, along the longer of the two axes. A
  // length in a plane is the larger component and 11/32 of the other, as on an H200, which adds to
  // it where the axes are about equally long and parallel; by how much is not known.
  float LevelOf(Frame& frame, uint32_t lane, const TextureObject& texture) const {
    const Image& image = texture.levels[0];
    const std::array<uint32_t, 3> sizes{image.width, std::max(image.height, 1u),
                                        std::max(image.depth, 1u)};
    const auto length = [&](const std::array<Ref, 3>& step) {
      std::array<float, 3> part{};
      for (uint32_t d = 0; d < 3 && step[d] != kNoRef; ++d) {
        const float scale = texture.normalized_coordinates ? static_cast<float>(sizes[d]) : 1.0f;
        part[d] = std::fabs(Float(Bits32(frame, step[d], lane)) * scale);
      }
      if (step[2] != kNoRef) return std::hypot(part[0], part[1], part[2]);
      return std::max(part[0], part[1]) + std::min(part[0], part[1]) * (11.0f / 32.0f);
    };
    const float longest = std::max(length(ddx), length(ddy));
    return longest > 0 ? __builtin_log2f(longest) : 0.0f;
  }
};

enum class OutOfRange : uint8_t { kTrap, kClamp, kZero };
enum class SurfaceAction : uint8_t { kLoad, kStore, kReduce };

class SurfaceAccess : public ExtendedOperation {
 public:
  SurfaceAction action = SurfaceAction::kLoad;
  OutOfRange out_of_range = OutOfRange::kTrap;
  Geometry geometry = Geometry::k2D;
  uint32_t element_shift = 2;
  uint32_t count = 1;
  AtomicOp operation = AtomicOp::kAdd;
  bool is_signed = false;
  Ref handle = kNoRef, layer = kNoRef;
  std::array<Ref, 3> coordinates{kNoRef, kNoRef, kNoRef};
  std::array<Ref, 4> values{kNoRef, kNoRef, kNoRef, kNoRef};

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction&,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const Image* image = FindSurface(Bits64(frame, handle, lane));
      if (image == nullptr) {
        FailHandle(machine, warp, lane, "surface", Bits64(frame, handle, lane));
        return Step::kFault;
      }
      bool inside = true;
      const uint64_t address = AddressOf(frame, lane, *image, &inside);
      if (!inside && out_of_range == OutOfRange::kTrap) {
        Fail(machine, warp, frame, lane, *image);
        return Step::kFault;
      }
      if (action == SurfaceAction::kReduce) {
        if (inside) Reduce(frame, lane, address);
        continue;
      }
      for (uint32_t i = 0; i < count; ++i) Move(frame, lane, i, address, inside);
    }
    return Step::kDone;
  }

 private:
  uint32_t bytes() const { return count << element_shift; }

  // `x` counts bytes. Clamping moves it to the last whole element of the row.
  uint64_t AddressOf(Frame& frame, uint32_t lane, const Image& image, bool* inside) const {
    const int64_t row_bytes = static_cast<int64_t>(image.width) * image.texel_bytes();
    const std::array<int64_t, 3> limits{row_bytes - bytes(), std::max<int64_t>(image.height, 1) - 1,
                                        std::max<int64_t>(image.depth, 1) - 1};
    std::array<int64_t, 3> at{};
    for (uint32_t d = 0; d < 3; ++d) {
      if (coordinates[d] == kNoRef) continue;
      at[d] = static_cast<int32_t>(Bits32(frame, coordinates[d], lane));
      const bool fits = at[d] >= 0 && at[d] <= limits[d];
      if (!fits && out_of_range == OutOfRange::kClamp) {
        at[d] = std::clamp<int64_t>(at[d], 0, std::max<int64_t>(limits[d], 0));
      } else if (!fits) {
        *inside = false;
      }
    }
    if (at[0] % bytes() != 0) *inside = *inside && out_of_range != OutOfRange::kTrap;
    at[0] -= at[0] % (1 << element_shift);
    if (layer != kNoRef) {
      const uint32_t wanted = Bits32(frame, layer, lane);
      const uint32_t layers = std::max(image.layers, 1u);
      if (wanted >= layers && out_of_range != OutOfRange::kClamp) *inside = false;
      at[2] = std::min(wanted, layers - 1);
    }
    return image.address + static_cast<uint64_t>(at[2]) * image.slice_bytes +
           static_cast<uint64_t>(at[1]) * image.pitch_bytes + static_cast<uint64_t>(at[0]);
  }

  void Fail(Machine& machine, Warp& warp, Frame& frame, uint32_t lane, const Image& image) const {
    std::string place;
    for (Ref ref : coordinates) {
      if (ref == kNoRef) continue;
      place += (place.empty() ? "" : ", ") +
               std::to_string(static_cast<int32_t>(Bits32(frame, ref, lane)));
    }
    machine.Fail(LaunchError::Code::kIllegalAddress, warp, lane,
                 "surface access at (" + place + "), x in bytes, of " + std::to_string(bytes()) +
                     " bytes outside of a surface of " + std::to_string(image.width) + " x " +
                     std::to_string(std::max(image.height, 1u)) + " x " +
                     std::to_string(std::max(image.depth, image.layers)) + " texels of " +
                     std::to_string(image.texel_bytes()) + " bytes");
  }

  void Move(Frame& frame, uint32_t lane, uint32_t i, uint64_t address, bool inside) const {
    if (values[i] == kNoRef) return;
    const uint32_t element = 1u << element_shift;
    std::byte* value = Machine::At(frame, values[i]) + (lane << element_shift);
    auto* memory = reinterpret_cast<std::byte*>(address) + i * element;
    if (action == SurfaceAction::kStore) {
      if (inside) std::memcpy(memory, value, element);
    } else if (inside) {
      std::memcpy(value, memory, element);
    } else {
      std::memset(value, 0, element);
    }
  }

  template <class T>
  void ReduceAs(uint64_t address, T operand) const {
    T* memory = reinterpret_cast<T*>(address);
    T before = __atomic_load_n(memory, __ATOMIC_RELAXED);
    T after;
    do {
      switch (operation) {
        case AtomicOp::kMin:
          after = std::min(before, operand);
          break;
        case AtomicOp::kMax:
          after = std::max(before, operand);
          break;
        case AtomicOp::kAnd:
          after = before & operand;
          break;
        case AtomicOp::kOr:
          after = before | operand;
          break;
        default:
          // Wraps.
          after = static_cast<T>(static_cast<uint64_t>(before) + static_cast<uint64_t>(operand));
          break;
      }
    } while (!__atomic_compare_exchange_n(memory, &before, after, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
  }

  void Reduce(Frame& frame, uint32_t lane, uint64_t address) const {
    if (element_shift == 3 && is_signed) {
      ReduceAs<int64_t>(address, static_cast<int64_t>(Bits64(frame, values[0], lane)));
    } else if (element_shift == 3) {
      ReduceAs<uint64_t>(address, Bits64(frame, values[0], lane));
    } else if (is_signed) {
      ReduceAs<int32_t>(address, static_cast<int32_t>(Bits32(frame, values[0], lane)));
    } else {
      ReduceAs<uint32_t>(address, Bits32(frame, values[0], lane));
    }
  }
};

enum class ImageProperty : uint8_t {
  kWidth,
  kHeight,
  kDepth,
  kArraySize,
  kLevels,
  kNormalized,
};

class ImageAnswer : public ExtendedOperation {
 public:
  bool is_texture = true;
  ImageProperty property = ImageProperty::kWidth;
  Ref handle = kNoRef, result = kNoRef;

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction&,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const uint64_t wanted = Bits64(frame, handle, lane);
      const TextureObject* texture = is_texture ? FindTexture(wanted) : nullptr;
      const Image* image = texture != nullptr ? &texture->levels[0]
                           : is_texture       ? nullptr
                                              : FindSurface(wanted);
      if (image == nullptr) {
        FailHandle(machine, warp, lane, is_texture ? "texture" : "surface", wanted);
        return Step::kFault;
      }
      reinterpret_cast<uint32_t*>(Machine::At(frame, result))[lane] = Answer(texture, *image);
    }
    return Step::kDone;
  }

 private:
  uint32_t Answer(const TextureObject* texture, const Image& image) const {
    switch (property) {
      case ImageProperty::kWidth:
        return image.width;
      case ImageProperty::kHeight:
        return image.height;
      case ImageProperty::kDepth:
        return image.depth;
      case ImageProperty::kArraySize:
        return image.layers;
      case ImageProperty::kLevels:
        return texture != nullptr ? static_cast<uint32_t>(texture->levels.size()) : 1;
      case ImageProperty::kNormalized:
        return texture != nullptr && texture->normalized_coordinates ? 1 : 0;
    }
    return 0;
  }
};

std::optional<Geometry> GeometryOf(const ptx::Instruction& in) {
  constexpr std::pair<std::string_view, Geometry> kNames[] = {
      {".1d", Geometry::k1D},
      {".2d", Geometry::k2D},
      {".3d", Geometry::k3D},
      {".a1d", Geometry::k1DLayered},
      {".a2d", Geometry::k2DLayered},
      {".cube", Geometry::kCube},
      {".acube", Geometry::kCubeLayered},
  };
  for (const auto& [name, geometry] : kNames) {
    if (in.Has(name)) return geometry;
  }
  return std::nullopt;
}

bool IsLayered(Geometry geometry) {
  return geometry == Geometry::k1DLayered || geometry == Geometry::k2DLayered ||
         geometry == Geometry::kCubeLayered;
}

size_t CoordinatesOf(Geometry geometry) {
  switch (geometry) {
    case Geometry::k1D:
    case Geometry::k1DLayered:
      return 1;
    case Geometry::k2D:
    case Geometry::k2DLayered:
      return 2;
    default:
      return 3;
  }
}

}  // namespace

// [handle, {coordinates}] or [handle, coordinate]: registers of 64 and of 32 bits. `*layer` is the
// first coordinate of layered geometries.
bool Decoder::ReadImageAddress(const ptx::Operand& operand, uint8_t geometry_number, Ref* handle,
                               Ref* layer, Ref* coordinates) {
  const auto geometry = static_cast<Geometry>(geometry_number);
  if (!operand.IsAddress() || operand.children.size() != 2 || !operand.children[0].IsRegister())
    return false;
  *handle = Read(operand.children[0], Type::kB64);
  const ptx::Operand& place = operand.children[1];
  const bool is_vector = place.kind == ptx::Operand::Kind::kVector;
  const size_t first = IsLayered(geometry) ? 1 : 0;
  const size_t needed = CoordinatesOf(geometry) + first;
  if ((is_vector ? place.children.size() : 1) < needed) return false;
  const auto at = [&](size_t i) -> const ptx::Operand& {
    return is_vector ? place.children[i] : place;
  };
  if (first == 1) *layer = Read(at(0), Type::kB32);
  for (size_t i = first; i < needed; ++i) coordinates[i - first] = Read(at(i), Type::kB32);
  return true;
}

// tex.geom.v4.dtype.ctype d, [a, c]; tex.level..., lod; tex.grad..., dPdx, dPdy.
bool Decoder::Texture(const ptx::Instruction& in) {
  const std::optional<Geometry> geometry = GeometryOf(in);
  const bool gathers = in.opcode == "tld4";
  if (!geometry || in.operands.size() < 2 || in.modifiers.size() < 3 || in.Has(".v2")) return false;
  const Type result_type = ParseType(in.modifiers[in.modifiers.size() - 2]);
  const std::string_view coordinate_type = in.modifiers.back();
  const bool known_type =
      result_type == Type::kF32 || result_type == Type::kU32 || result_type == Type::kS32;
  if (!known_type || (coordinate_type != ".f32" && coordinate_type != ".s32")) return false;
  const ptx::Operand& d = in.operands[0];
  // With `d|p` the predicate says whether the memory is resident, which it always is.
  const bool has_predicate = d.kind == ptx::Operand::Kind::kPair;
  const ptx::Operand& vector = has_predicate ? d.children[0] : d;
  if (vector.kind != ptx::Operand::Kind::kVector || vector.children.size() != 4) return false;
  auto fetch = std::make_shared<TextureFetch>();
  fetch->geometry = *geometry;
  fetch->integer_coordinates = coordinate_type == ".s32";
  if (!ReadImageAddress(in.operands[1], static_cast<uint8_t>(*geometry), &fetch->handle,
                        &fetch->layer, fetch->coordinates.data())) {
    return false;
  }
  size_t used = 2;
  if (gathers) {
    constexpr std::string_view kComponents[] = {".r", ".g", ".b", ".a"};
    for (uint32_t c = 0; c < 4; ++c) {
      if (in.Has(kComponents[c])) fetch->gather = c;
    }
    if (!fetch->gather) return false;
  } else if (in.Has(".level")) {
    if (in.operands.size() < 3) return false;
    fetch->level = Read(in.operands[used++], Type::kB32);
  } else if (in.Has(".grad")) {
    if (in.operands.size() < 4) return false;
    const size_t dimensions = CoordinatesOf(*geometry);
    for (auto* gradient : {&fetch->ddx, &fetch->ddy}) {
      const ptx::Operand& operand = in.operands[used++];
      const bool is_vector = operand.kind == ptx::Operand::Kind::kVector;
      if (is_vector && operand.children.size() < dimensions) return false;
      for (size_t i = 0; i < dimensions; ++i) {
        if (!is_vector && i != 0) return false;
        (*gradient)[i] = Read(is_vector ? operand.children[i] : operand, Type::kB32);
      }
    }
  }
  if (in.operands.size() != used) return false;  // offsets and depth comparison
  std::array<Destination, 4> destinations;
  for (uint32_t c = 0; c < 4; ++c) {
    if (vector.children[c].kind == ptx::Operand::Kind::kSink) continue;
    destinations[c] = Write(vector.children[c], Type::kB32);
    fetch->results[c] = destinations[c].ref;
  }
  EmitExtended(std::move(fetch));
  for (const Destination& destination : destinations) Finish(destination);
  if (has_predicate) {
    EmitPredicate(PredicateOp::kMove, WritePredicate(d.children[1]), PredicateConstant(true));
  }
  return true;
}

// suld.b.geom{.vec}.type.clamp d, [a, b]; sust.b... [a, b], c; sured.b.op.geom.type.clamp [a, b],
// c.
bool Decoder::Surface(const ptx::Instruction& in) {
  const std::optional<Geometry> geometry = GeometryOf(in);
  if (!geometry || !in.Has(".b") || in.operands.size() != 2) return false;
  auto access = std::make_shared<SurfaceAccess>();
  access->geometry = *geometry;
  access->action = in.opcode == "suld"   ? SurfaceAction::kLoad
                   : in.opcode == "sust" ? SurfaceAction::kStore
                                         : SurfaceAction::kReduce;
  if (in.Has(".clamp")) {
    access->out_of_range = OutOfRange::kClamp;
  } else if (in.Has(".zero")) {
    access->out_of_range = OutOfRange::kZero;
  } else if (!in.Has(".trap")) {
    return false;
  }
  Type type = Type::kNone;
  for (std::string_view modifier : in.modifiers) {
    const Type parsed = ParseType(modifier);
    if (parsed != Type::kNone) type = parsed;
  }
  if (type == Type::kNone || ShiftOf(type) > 3) return false;
  access->element_shift = ShiftOf(type);
  access->is_signed = type == Type::kS32 || type == Type::kS64;
  access->count = in.Has(".v4") ? 4 : in.Has(".v2") ? 2 : 1;
  if (access->action == SurfaceAction::kReduce) {
    if (in.Has(".min")) access->operation = AtomicOp::kMin;
    if (in.Has(".max")) access->operation = AtomicOp::kMax;
    if (in.Has(".and")) access->operation = AtomicOp::kAnd;
    if (in.Has(".or")) access->operation = AtomicOp::kOr;
    if (access->element_shift < 2) return false;
  }
  const bool loads = access->action == SurfaceAction::kLoad;
  const ptx::Operand& address = in.operands[loads ? 1 : 0];
  const ptx::Operand& value = in.operands[loads ? 0 : 1];
  if (!ReadImageAddress(address, static_cast<uint8_t>(*geometry), &access->handle, &access->layer,
                        access->coordinates.data())) {
    return false;
  }
  const bool is_vector = value.kind == ptx::Operand::Kind::kVector;
  if ((is_vector ? value.children.size() : 1) != access->count) return false;
  const Type bits = BitsType(access->element_shift);
  std::array<Destination, 4> destinations;
  for (uint32_t i = 0; i < access->count; ++i) {
    const ptx::Operand& part = is_vector ? value.children[i] : value;
    if (loads) {
      if (part.kind == ptx::Operand::Kind::kSink) continue;
      destinations[i] = Write(part, bits);
      access->values[i] = destinations[i].ref;
    } else {
      access->values[i] = Read(part, bits);
    }
  }
  EmitExtended(std::move(access));
  for (const Destination& destination : destinations) Finish(destination);
  return true;
}

// txq.property.b32 d, [a]; suq.property.b32 d, [a].
bool Decoder::ImageQuery(const ptx::Instruction& in) {
  constexpr std::pair<std::string_view, ImageProperty> kProperties[] = {
      {".width", ImageProperty::kWidth},
      {".height", ImageProperty::kHeight},
      {".depth", ImageProperty::kDepth},
      {".array_size", ImageProperty::kArraySize},
      {".num_mipmap_levels", ImageProperty::kLevels},
      {".normalized_coords", ImageProperty::kNormalized},
  };
  if (in.operands.size() != 2 || in.modifiers.empty() || !in.operands[1].IsAddress() ||
      in.operands[1].children.size() != 1 || !in.operands[1].children[0].IsRegister()) {
    return false;
  }
  auto answer = std::make_shared<ImageAnswer>();
  answer->is_texture = in.opcode == "txq";
  bool found = false;
  for (const auto& [name, property] : kProperties) {
    if (!in.Has(name)) continue;
    answer->property = property;
    found = true;
  }
  if (!found) return false;
  answer->handle = Read(in.operands[1].children[0], Type::kB64);
  const Destination destination = Write(in.operands[0], Type::kB32);
  answer->result = destination.ref;
  EmitExtended(std::move(answer));
  Finish(destination);
  return true;
}

}  // namespace ops_debug::emulator
