// The table of texture and surface objects, addressing and filtering. Filter weights have 8
// fractional bits, as the hardware's 9-bit fixed-point numbers (1.8) have.
#include "emulator/texture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

namespace ops_debug::emulator {

uint32_t TexelBytes(TexelFormat format) {
  switch (format) {
    case TexelFormat::kU8:
    case TexelFormat::kS8:
      return 1;
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16:
      return 2;
    default:
      return 4;
  }
}

namespace {

template <class Object>
class Table {
 public:
  uint64_t Add(Object object) {
    const std::unique_lock lock(mutex_);
    const uint64_t handle = next_++;
    objects_.emplace(handle, std::make_unique<Object>(std::move(object)));
    return handle;
  }
  // A kernel that still runs may look at a removed object, so it is kept.
  bool Remove(uint64_t handle) {
    const std::unique_lock lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return false;
    removed_.push_back(std::move(found->second));
    objects_.erase(found);
    return true;
  }
  const Object* Find(uint64_t handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(handle);
    return found != objects_.end() ? found->second.get() : nullptr;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Object>> objects_;
  std::vector<std::unique_ptr<Object>> removed_;
  uint64_t next_ = 1;
};

// Never destroyed: programs call the driver from atexit handlers.
Table<TextureObject>& Textures() {
  static auto& table = *new Table<TextureObject>;
  return table;
}
Table<Image>& Surfaces() {
  static auto& table = *new Table<Image>;
  return table;
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  float magnitude;
  if (exponent == 0x1f) {
    const uint32_t raw = 0x7f800000u | (fraction << 13);
    std::memcpy(&magnitude, &raw, sizeof(magnitude));
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction | 0x400), static_cast<int>(exponent) - 25);
  }
  return sign != 0 ? -magnitude : magnitude;
}

// One texel: `real` is what filtering works on, `bits` what an instruction returns.
struct Texel {
  std::array<float, 4> real{0, 0, 0, 1};
  std::array<uint32_t, 4> bits{0, 0, 0, 1};
};

bool IsInteger(const TextureObject& texture) {
  const TexelFormat format = texture.levels[0].format;
  return !texture.reads_float && format != TexelFormat::kF16 && format != TexelFormat::kF32;
}

Texel Load(const TextureObject& texture, const Image& image, int64_t x, int64_t y, int64_t z) {
  Texel texel;
  const uint32_t bytes = TexelBytes(image.format);
  const uint64_t address = image.address + static_cast<uint64_t>(z) * image.slice_bytes +
                           static_cast<uint64_t>(y) * image.pitch_bytes +
                           static_cast<uint64_t>(x) * image.texel_bytes();
  for (uint32_t c = 0; c < image.channels && c < 4; ++c) {
    uint32_t raw = 0;
    std::memcpy(&raw, reinterpret_cast<const void*>(address + c * bytes), bytes);
    switch (image.format) {
      case TexelFormat::kU8:
        texel.real[c] = static_cast<float>(raw) / 255.0f;
        break;
      case TexelFormat::kU16:
        texel.real[c] = static_cast<float>(raw) / 65535.0f;
        break;
      case TexelFormat::kS8:
        raw = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(raw)));
        texel.real[c] = std::max(static_cast<float>(static_cast<int32_t>(raw)) / 127.0f, -1.0f);
        break;
      case TexelFormat::kS16:
        raw = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(raw)));
        texel.real[c] = std::max(static_cast<float>(static_cast<int32_t>(raw)) / 32767.0f, -1.0f);
        break;
      case TexelFormat::kF16:
        texel.real[c] = HalfToFloat(static_cast<uint16_t>(raw));
        break;
      case TexelFormat::kF32:
        std::memcpy(&texel.real[c], &raw, sizeof(raw));
        break;
      case TexelFormat::kU32:
      case TexelFormat::kS32:
        break;
    }
    texel.bits[c] = raw;
  }
  if (!IsInteger(texture)) {
    for (uint32_t c = 0; c < 4; ++c) std::memcpy(&texel.bits[c], &texel.real[c], sizeof(float));
  }
  return texel;
}

Texel BorderTexel(const TextureObject& texture) {
  Texel texel;
  texel.real = texture.border;
  for (uint32_t c = 0; c < 4; ++c) {
    if (IsInteger(texture)) {
      texel.bits[c] = static_cast<uint32_t>(static_cast<int64_t>(texture.border[c]));
    } else {
      std::memcpy(&texel.bits[c], &texture.border[c], sizeof(float));
    }
  }
  return texel;
}

// An index after addressing; -1: the border colour. Wrap and mirror exist for normalised
// coordinates only; otherwise they clamp.
int64_t Address(const TextureObject& texture, AddressMode mode, int64_t index, int64_t size) {
  if (mode == AddressMode::kBorder) return index >= 0 && index < size ? index : -1;
  if (texture.normalized_coordinates && mode != AddressMode::kClamp) {
    const int64_t period = mode == AddressMode::kMirror ? 2 * size : size;
    int64_t at = index % period;
    if (at < 0) at += period;
    return at < size ? at : period - 1 - at;
  }
  return std::clamp<int64_t>(index, 0, size - 1);
}

// The two neighbours along one axis and the weight of the second one.
struct Axis {
  int64_t low = 0, high = 0;
  float weight = 0;
};

// Indices beyond this are addressed alike, and fit an integer.
constexpr float kFarAway = 1e9f;

Axis Locate(const TextureObject& texture, float coordinate, int64_t size, bool linear) {
  float x = texture.normalized_coordinates ? coordinate * static_cast<float>(size) : coordinate;
  if (x != x) x = 0;
  x = std::clamp(x, -kFarAway, kFarAway);
  if (!linear) {
    const auto index = static_cast<int64_t>(std::floor(x));
    return {index, index, 0};
  }
  const float shifted = x - 0.5f;
  const float low = std::floor(shifted);
  const float weight = std::floor((shifted - low) * 256.0f + 0.5f) / 256.0f;
  const auto index = static_cast<int64_t>(low);
  return {index, index + 1, weight};
}

uint32_t DimensionsOf(Geometry geometry) {
  switch (geometry) {
    case Geometry::k1D:
    case Geometry::k1DLayered:
      return 1;
    case Geometry::k3D:
      return 3;
    default:
      return 2;
  }
}

// A direction becomes a face and the place on it (the OpenGL convention, which CUDA shares).
void ProjectOnCube(TextureQuery& query) {
  const auto [x, y, z] = query.coordinates;
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  uint32_t face;
  float s, t, major;
  if (ax >= ay && ax >= az) {
    face = x >= 0 ? 0 : 1;
    major = ax;
    s = x >= 0 ? -z : z;
    t = -y;
  } else if (ay >= az) {
    face = y >= 0 ? 2 : 3;
    major = ay;
    s = x;
    t = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5;
    major = az;
    s = z >= 0 ? x : -x;
    t = -y;
  }
  query.layer = query.layer * 6 + face;
  query.coordinates = {(s / major + 1) / 2, (t / major + 1) / 2, 0};
}

class Sampler {
 public:
  Sampler(const TextureObject& texture, const TextureQuery& query)
      : texture_(texture), query_(query) {
    if (query_.geometry == Geometry::kCube || query_.geometry == Geometry::kCubeLayered)
      ProjectOnCube(query_);
  }

  Texel SampleLevel(const Image& image) const {
    const bool linear = texture_.linear && !query_.integer_coordinates && !IsInteger(texture_);
    const std::array<Axis, 3> axes = LocateAll(image, linear);
    if (!linear) return Fetch(image, axes[0].low, axes[1].low, axes[2].low);
    const uint32_t dimensions = DimensionsOf(query_.geometry);
    Texel result;
    result.real = {};
    for (uint32_t corner = 0; corner < (1u << dimensions); ++corner) {
      float weight = 1;
      std::array<int64_t, 3> at{axes[0].low, axes[1].low, axes[2].low};
      for (uint32_t d = 0; d < dimensions; ++d) {
        const bool high = (corner >> d & 1) != 0;
        weight *= high ? axes[d].weight : 1 - axes[d].weight;
        if (high) at[d] = axes[d].high;
      }
      if (weight == 0) continue;  // so that an infinity beside the place does not matter
      const Texel texel = Fetch(image, at[0], at[1], at[2]);
      for (uint32_t c = 0; c < 4; ++c) result.real[c] += weight * texel.real[c];
    }
    for (uint32_t c = 0; c < 4; ++c) std::memcpy(&result.bits[c], &result.real[c], sizeof(float));
    return result;
  }

  std::array<uint32_t, 4> GatherLevel(const Image& image, uint32_t component) const {
    const std::array<Axis, 3> axes = LocateAll(image, /*linear=*/true);
    const auto at = [&](bool right, bool lower) {
      return Fetch(image, right ? axes[0].high : axes[0].low, lower ? axes[1].high : axes[1].low, 0)
          .bits[component];
    };
    return {at(false, true), at(true, true), at(true, false), at(false, false)};
  }

 private:
  std::array<Axis, 3> LocateAll(const Image& image, bool linear) const {
    const std::array<uint32_t, 3> sizes{image.width, std::max(image.height, 1u),
                                        std::max(image.depth, 1u)};
    std::array<Axis, 3> axes;
    for (uint32_t d = 0; d < DimensionsOf(query_.geometry); ++d) {
      if (query_.integer_coordinates) {
        axes[d] = {query_.indices[d], query_.indices[d], 0};
      } else {
        axes[d] = Locate(texture_, query_.coordinates[d], sizes[d], linear);
      }
    }
    return axes;
  }

  Texel Fetch(const Image& image, int64_t x, int64_t y, int64_t z) const {
    if (texture_.is_line) {
      if (x < 0 || x >= image.width) {
        Texel zero;
        zero.real = {};
        zero.bits = {};
        return zero;
      }
      return Load(texture_, image, x, 0, 0);
    }
    const uint32_t dimensions = DimensionsOf(query_.geometry);
    const std::array<uint32_t, 3> sizes{image.width, std::max(image.height, 1u),
                                        std::max(image.depth, 1u)};
    std::array<int64_t, 3> at{x, y, z};
    for (uint32_t d = 0; d < dimensions; ++d) {
      at[d] = Address(texture_, texture_.address_modes[d], at[d], sizes[d]);
      if (at[d] < 0) return BorderTexel(texture_);
    }
    if (image.layers != 0) at[2] = std::min(query_.layer, image.layers - 1);
    return Load(texture_, image, at[0], at[1], at[2]);
  }

  const TextureObject& texture_;
  TextureQuery query_;
};

}  // namespace

uint64_t AddTexture(TextureObject object) { return Textures().Add(std::move(object)); }
uint64_t AddSurface(Image image) { return Surfaces().Add(image); }
bool RemoveTexture(uint64_t handle) { return Textures().Remove(handle); }
bool RemoveSurface(uint64_t handle) { return Surfaces().Remove(handle); }
const TextureObject* FindTexture(uint64_t handle) { return Textures().Find(handle); }
const Image* FindSurface(uint64_t handle) { return Surfaces().Find(handle); }

std::array<uint32_t, 4> Sample(const TextureObject& texture, const TextureQuery& query) {
  const Sampler sampler(texture, query);
  const auto last = static_cast<float>(texture.levels.size() - 1);
  float level = query.level;
  if (texture.levels.size() > 1 && !query.integer_coordinates) {
    level = std::clamp(level + texture.level_bias, texture.lowest_level,
                       std::max(texture.lowest_level, texture.highest_level));
  }
  level = level == level ? std::clamp(level, 0.0f, last) : 0.0f;
  if (!texture.linear_levels || IsInteger(texture)) {
    return sampler.SampleLevel(texture.levels[static_cast<size_t>(std::floor(level + 0.5f))]).bits;
  }
  const float low = std::floor(level);
  const float weight = std::floor((level - low) * 256.0f + 0.5f) / 256.0f;
  const Texel a = sampler.SampleLevel(texture.levels[static_cast<size_t>(low)]);
  if (weight == 0) return a.bits;
  const Texel b = sampler.SampleLevel(texture.levels[static_cast<size_t>(low) + 1]);
  std::array<uint32_t, 4> result;
  for (uint32_t c = 0; c < 4; ++c) {
    const float mixed = (1 - weight) * a.real[c] + weight * b.real[c];
    std::memcpy(&result[c], &mixed, sizeof(mixed));
  }
  return result;
}

std::array<uint32_t, 4> Gather(const TextureObject& texture, const TextureQuery& query,
                               uint32_t component) {
  return Sampler(texture, query).GatherLevel(texture.levels[0], component);
}

}  // namespace ops_debug::emulator
