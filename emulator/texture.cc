// The table of texture and surface objects, and addressing. Filter weights have 8 fractional bits,
// as the hardware's 9-bit fixed-point numbers (1.8) have; what no manual says (how coordinates and
// weights are rounded, what lies outside) was found on an H200 and is held by test/golden.
#include "emulator/texture.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "emulator/texture_blend.h"

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

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

bool IsFloat(TexelFormat format) {
  return format == TexelFormat::kF16 || format == TexelFormat::kF32;
}

// Whether results are the integers of the texels.
bool IsInteger(const TextureObject& texture) {
  return !texture.reads_float && !IsFloat(texture.levels[0].format);
}

// The channels of a texel as they are in memory, integers extended to 32 bits. Channels that the
// image lacks are 0, the fourth too (so an H200 has it).
using Texel = std::array<uint32_t, 4>;

Texel Load(const Image& image, int64_t x, int64_t y, int64_t z) {
  Texel texel{};
  const uint32_t bytes = TexelBytes(image.format);
  const uint64_t address = image.address + static_cast<uint64_t>(z) * image.slice_bytes +
                           static_cast<uint64_t>(y) * image.pitch_bytes +
                           static_cast<uint64_t>(x) * image.texel_bytes();
  for (uint32_t c = 0; c < image.channels && c < 4; ++c) {
    uint32_t raw = 0;
    std::memcpy(&raw, reinterpret_cast<const void*>(address + c * bytes), bytes);
    if (image.format == TexelFormat::kS8)
      raw = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(raw)));
    if (image.format == TexelFormat::kS16)
      raw = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(raw)));
    texel[c] = raw;
  }
  return texel;
}

// What an instruction returns for one channel that is not filtered.
uint32_t Result(const TextureObject& texture, uint32_t raw) {
  const TexelFormat format = texture.levels[0].format;
  if (format == TexelFormat::kF16) return BitsOf(HalfToFloat(static_cast<uint16_t>(raw)));
  if (format == TexelFormat::kF32 || !texture.reads_float) return raw;
  const auto real = static_cast<float>(static_cast<int32_t>(raw));
  switch (format) {
    case TexelFormat::kU8:
      return BitsOf(real / 255.0f);
    case TexelFormat::kS8:
      return BitsOf(std::max(real / 127.0f, -1.0f));
    case TexelFormat::kU16:
      return BitsOf(real / 65535.0f);
    default:
      return BitsOf(std::max(real / 32767.0f, -1.0f));
  }
}

// The border colour as if it lay in the image.
Texel BorderTexel(const TextureObject& texture) {
  Texel texel{};
  for (uint32_t c = 0; c < texture.levels[0].channels && c < 4; ++c)
    texel[c] = ToFormat(texture, texture.border[c]);
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

// The two neighbours along one axis and the weight of the second one, in 1/256.
struct Axis {
  int64_t low = 0, high = 0;
  uint32_t weight = 0;
};

// Indices beyond this are addressed alike, and fit an integer.
constexpr double kFarAway = 1e9;

// Normalised coordinates are fixed-point numbers with 21 fractional bits, rounded down; positions
// between texel centres have 8, rounded to the nearest (upwards in the middle).
Axis Locate(const TextureObject& texture, AddressMode mode, float coordinate, int64_t size,
            bool linear) {
  double x = std::fabs(coordinate) < FLT_MIN ? 0.0 : static_cast<double>(coordinate);
  if (x != x) x = 0;
  if (texture.normalized_coordinates) {
    const bool repeats = mode == AddressMode::kWrap || mode == AddressMode::kMirror;
    if (repeats) x = std::isinf(x) ? 0.0 : x - 2.0 * std::floor(x / 2.0);
    x = std::clamp(x, -kFarAway, kFarAway);
    x = std::floor(x * 0x1p21) * 0x1p-21 * static_cast<double>(size);
  }
  x = std::clamp(x, -kFarAway, kFarAway);
  if (!linear) {
    const auto index = static_cast<int64_t>(std::floor(x));
    return {index, index, 0};
  }
  const auto place = static_cast<int64_t>(std::floor(x * 256.0 - 127.5));
  const bool clamps = mode == AddressMode::kClamp ||
                      (mode != AddressMode::kBorder && !texture.normalized_coordinates);
  if (clamps && place < 0) return {0, 0, 0};
  if (clamps && place >= (size - 1) * 256) return {size - 1, size - 1, 0};
  return {place >> 8, (place >> 8) + 1, static_cast<uint32_t>(place & 255)};
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
void ProjectOnCube(TextureQuery& query, uint32_t cubes) {
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
  query.layer = std::min(query.layer, cubes - 1) * 6 + face;
  query.coordinates = {(s / major + 1) / 2, (t / major + 1) / 2, 0};
}

class Sampler {
 public:
  Sampler(const TextureObject& texture, const TextureQuery& query)
      : texture_(texture), query_(query) {
    if (query_.geometry == Geometry::kCube || query_.geometry == Geometry::kCubeLayered)
      ProjectOnCube(query_, std::max(texture.levels[0].layers / 6, 1u));
  }

  Texel Point(const Image& image) const {
    const std::array<Axis, 3> axes = LocateAll(image, /*linear=*/false);
    return Fetch(image, axes[0].low, axes[1].low, axes[2].low);
  }

  // Adds the texels around the place, which share `weight` (of 256). It is parted along z, then x,
  // then y, each time rounded to whole 1/256. Of which part the half is rounded up differs between
  // the two levels and between the columns.
  void Corners(const Image& image, uint32_t weight, bool second, bool linear, Blend* blend) const {
    std::array<Axis, 3> axes = LocateAll(image, linear);
    // A line is a row at 0 of a plane: with a border, half of it lies outside.
    if (linear && query_.geometry == Geometry::k1D &&
        texture_.address_modes[1] == AddressMode::kBorder) {
      axes[1] = {-1, 0, 128};
    }
    const auto part = [](uint32_t whole, uint32_t share) { return (whole * share + 128) >> 8; };
    for (uint32_t z = 0; z < 2; ++z) {
      const uint32_t deep =
          second ? part(weight, axes[2].weight) : weight - part(weight, 256 - axes[2].weight);
      const uint32_t of_z = z == 1 ? deep : weight - deep;
      const uint32_t right = part(of_z, axes[0].weight);
      for (uint32_t x = 0; x < 2; ++x) {
        const uint32_t of_x = x == 1 ? right : of_z - right;
        const uint32_t lower =
            x == 1 ? part(of_x, axes[1].weight) : of_x - part(of_x, 256 - axes[1].weight);
        for (uint32_t y = 0; y < 2; ++y) {
          const uint32_t of_y = y == 1 ? lower : of_x - lower;
          if (of_y == 0) continue;  // so that an infinity beside the place does not matter
          blend->Add(
              Fetch(image, x == 1 ? axes[0].high : axes[0].low, y == 1 ? axes[1].high : axes[1].low,
                    z == 1 ? axes[2].high : axes[2].low),
              of_y);
        }
      }
    }
  }

  std::array<uint32_t, 4> GatherLevel(const Image& image, uint32_t component) const {
    const std::array<Axis, 3> axes = LocateAll(image, /*linear=*/true);
    const auto at = [&](bool right, bool lower) {
      return Quiet(Fetch(image, right ? axes[0].high : axes[0].low,
                         lower ? axes[1].high : axes[1].low, 0)[component]);
    };
    return {at(false, true), at(true, true), at(true, false), at(false, false)};
  }

 private:
  // Gathering makes every NaN the format's one.
  uint32_t Quiet(uint32_t raw) const {
    const uint32_t result = Result(texture_, raw);
    const TexelFormat format = texture_.levels[0].format;
    if (!IsFloat(format) || (result & 0x7fffffffu) <= 0x7f800000u) return result;
    return format == TexelFormat::kF16 ? 0x7fffe000u : 0x7fffffffu;
  }

  std::array<Axis, 3> LocateAll(const Image& image, bool linear) const {
    const std::array<uint32_t, 3> sizes{image.width, std::max(image.height, 1u),
                                        std::max(image.depth, 1u)};
    std::array<Axis, 3> axes;
    for (uint32_t d = 0; d < DimensionsOf(query_.geometry); ++d) {
      if (query_.integer_coordinates) {
        axes[d] = {query_.indices[d], query_.indices[d], 0};
      } else {
        axes[d] =
            Locate(texture_, texture_.address_modes[d], query_.coordinates[d], sizes[d], linear);
      }
    }
    return axes;
  }

  Texel Fetch(const Image& image, int64_t x, int64_t y, int64_t z) const {
    const uint32_t dimensions = DimensionsOf(query_.geometry);
    const std::array<uint32_t, 3> sizes{image.width, std::max(image.height, 1u),
                                        std::max(image.depth, 1u)};
    std::array<int64_t, 3> at{x, y, z};
    // Integer coordinates know no address modes: what lies outside is 0. With levels they clamp,
    // and a line is read from plain memory only.
    const bool zero_outside = query_.integer_coordinates && texture_.levels.size() == 1;
    if (query_.integer_coordinates && query_.geometry == Geometry::k1D && !texture_.is_line)
      return {};
    for (uint32_t d = 0; d < dimensions; ++d) {
      if (zero_outside) {
        if (at[d] < 0 || at[d] >= sizes[d]) return {};
        continue;
      }
      const AddressMode mode =
          query_.integer_coordinates ? AddressMode::kClamp : texture_.address_modes[d];
      at[d] = Address(texture_, mode, at[d], sizes[d]);
      if (at[d] < 0) return BorderTexel(texture_);
    }
    if (dimensions == 1 && y < 0) return BorderTexel(texture_);
    if (image.layers != 0) {
      if (zero_outside && query_.layer >= image.layers) return {};
      at[2] = std::min(query_.layer, image.layers - 1);
    }
    return Load(image, at[0], at[1], at[2]);
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
  float level = query.level == query.level ? query.level : 0.0f;
  if (texture.levels.size() > 1 && !query.integer_coordinates) {
    // Both have 8 fractional bits before they are added.
    if (query.has_level)
      level =
          std::floor(level * 256.0f) / 256.0f + std::floor(texture.level_bias * 256.0f) / 256.0f;
    level = std::clamp(level, texture.lowest_level,
                       std::max(texture.lowest_level, texture.highest_level));
  }
  level = std::clamp(level, 0.0f, last);
  const bool filters = !query.integer_coordinates && !IsInteger(texture);
  const bool linear = texture.linear && filters;
  // Levels have 8 fractional bits, rounded down.
  const auto place = static_cast<uint32_t>(std::floor(level * 256.0f));
  uint32_t first = place >> 8, second_weight = place & 255;
  if (!texture.linear_levels || !filters) {
    first = (place + 128) >> 8;
    second_weight = 0;
  }
  if (!linear && second_weight == 0) {
    Texel texel = sampler.Point(texture.levels[first]);
    for (uint32_t& channel : texel) channel = Result(texture, channel);
    return texel;
  }
  Blend blend(texture.levels[0].format);
  sampler.Corners(texture.levels[first], 256 - second_weight, false, linear, &blend);
  if (second_weight != 0)
    sampler.Corners(texture.levels[first + 1], second_weight, true, linear, &blend);
  return blend.Result();
}

std::array<uint32_t, 4> Gather(const TextureObject& texture, const TextureQuery& query,
                               uint32_t component) {
  return Sampler(texture, query).GatherLevel(texture.levels[0], component);
}

}  // namespace ops_debug::emulator
