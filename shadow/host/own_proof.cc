// Addresses are numbers in a mixed radix: if each place's stride is at least what all smaller ones
// together span, a number has one spelling, so different threads have different ones. Starts of
// several accesses count as one more digit, or make the lowest one wider; steps, of which any
// multiple may be there, must exceed everything.
#include "shadow/host/own_proof.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>

namespace ops_debug::shadow {
namespace {

// Sums beyond this are not looked at: address spaces are smaller.
constexpr int64_t kLargest = int64_t{1} << 56;

class Evaluator {
 public:
  Evaluator(const LaunchShape& shape, const LaunchParameters& parameters)
      : shape_(shape), parameters_(parameters) {}

  std::optional<int64_t> Sum(const UniformSum& sum) const {
    int64_t total = 0;
    for (const UniformTerm& term : sum) {
      int64_t product = term.factor;
      for (const uint32_t atom : term.of) {
        int64_t value = 0;
        if (!Atom(atom, &value) || __builtin_mul_overflow(product, value, &product))
          return std::nullopt;
      }
      if (__builtin_add_overflow(total, product, &total)) return std::nullopt;
    }
    if (total > kLargest || total < -kLargest) return std::nullopt;
    return total;
  }

 private:
  bool Atom(uint32_t atom, int64_t* value) const {
    if (atom < kGridSizeX) {
      *value = shape_.block[atom - kBlockSizeX];
      return true;
    }
    if (atom < kGridSizeX + 3) {
      *value = shape_.grid[atom - kGridSizeX];
      return true;
    }
    const bool wide = atom >= kParameter64;
    uint64_t bits = 0;
    if (!parameters_.Read(atom - (wide ? kParameter64 : kParameter32), wide ? 8 : 4, &bits))
      return false;
    *value = wide ? static_cast<int64_t>(bits) : static_cast<int32_t>(bits);
    // As an unsigned number it would be another one; nobody passes such sizes.
    return *value >= 0;
  }

  const LaunchShape& shape_;
  const LaunchParameters& parameters_;
};

struct Digit {
  int64_t stride = 0, count = 0;
};

// The form in numbers.
struct Numbers {
  std::array<int64_t, kPlaces> places{};
  std::array<bool, kPlaces + 1> pinned{};
  std::array<int64_t, kPlaces + 1> pin_values{};
  int64_t start = 0, bytes = 0, narrow = 0;
  std::vector<int64_t> steps;
  bool has_counter = false;
  int64_t counter_factor = 0, counter_below = 0;
  std::array<bool, 3> counted{};  // the counter tells these places apart
};

// True if each digit exceeds what those below it span, which begins with `*span`.
bool Spell(std::vector<Digit> digits, int64_t* span) {
  std::sort(digits.begin(), digits.end(),
            [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
  for (const Digit& digit : digits) {
    int64_t more = 0;
    if (digit.stride < *span || __builtin_mul_overflow(digit.stride, digit.count - 1, &more) ||
        __builtin_add_overflow(*span, more, span) || *span > kLargest)
      return false;
  }
  return true;
}

int64_t Divisor(const std::vector<int64_t>& numbers) {
  int64_t divisor = 0;
  for (const int64_t number : numbers) divisor = std::gcd(divisor, number);
  return divisor;
}

// A counter that has another value in each thread of a block, and is not negative.
bool Count(const BoundedCounter& counter, const LaunchShape& shape, const Evaluator& evaluate,
           const std::array<bool, kPlaces + 1>& pinned, Numbers* numbers) {
  std::vector<Digit> digits;
  for (uint32_t axis = 0; axis < 3; axis++) {
    const auto factor = evaluate.Sum(counter.threads[axis]);
    if (!factor || (*factor < 0 && !counter.is_unsigned)) return false;
    if (*factor == 0) continue;
    numbers->counted[axis] = true;
    if (!pinned[kThreadX + axis]) digits.push_back({std::abs(*factor), shape.block[axis]});
  }
  const auto start = evaluate.Sum(counter.start), below = evaluate.Sum(counter.below);
  if (!start || !below || (*start < 0 && !counter.is_unsigned)) return false;
  std::vector<int64_t> steps;
  for (const UniformSum& sum : counter.steps) {
    const auto step = evaluate.Sum(sum);
    if (!step || (*step < 0 && !counter.is_unsigned)) return false;
    steps.push_back(*step);
  }
  int64_t span = 1;
  if (!Spell(std::move(digits), &span)) return false;
  const int64_t step = Divisor(steps);
  if (step != 0 && step < span) return false;
  numbers->counter_below = std::max<int64_t>(*below, 1);
  return true;
}

bool Evaluate(const IndexForm& form, const LaunchShape& shape, const Evaluator& evaluate,
              Numbers* out) {
  const auto start = evaluate.Sum(form.start);
  if (!start) return false;
  out->start = *start;
  out->bytes = form.bytes;
  out->narrow = form.narrow;
  for (uint32_t i = 0; i <= kPlaces; i++) {
    if ((form.pinned >> i & 1) == 0) continue;
    const auto value = evaluate.Sum(form.pin_values[i]);
    if (!value) return false;
    out->pinned[i] = true;
    out->pin_values[i] = *value;
  }
  for (uint32_t i = 0; i < kPlaces; i++) {
    const auto factor = evaluate.Sum(form.places[i]);
    if (!factor) return false;
    out->places[i] = *factor;
    // One thread's number is a constant.
    if (!out->pinned[i]) continue;
    int64_t more = 0;
    if (__builtin_mul_overflow(*factor, out->pin_values[i], &more) ||
        __builtin_add_overflow(out->start, more, &out->start))
      return false;
    out->places[i] = 0;
  }
  for (const UniformSum& sum : form.steps) {
    const auto step = evaluate.Sum(sum);
    if (!step) return false;
    if (*step != 0) out->steps.push_back(std::abs(*step));
  }
  if (form.counter_factor.empty()) return true;
  const auto factor = evaluate.Sum(form.counter_factor);
  if (!factor || *factor == 0) return false;
  out->has_counter = true;
  out->counter_factor = std::abs(*factor);
  return Count(form.counter, shape, evaluate, out->pinned, out);
}

// Where several accesses start: those that lie closer together than `closer` become one wider one,
// the rest is a digit of its own.
void AddStarts(std::vector<int64_t> starts, int64_t closer, int64_t* bytes,
               std::vector<Digit>* digits) {
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::vector<int64_t> firsts{starts.front()};
  int64_t wide = 0;
  for (const int64_t start : starts) {
    if (closer == 0 || start - firsts.back() < closer) {
      wide = std::max(wide, start - firsts.back());
    } else {
      firsts.push_back(start);
    }
  }
  *bytes += wide;
  if (firsts.size() < 2) return;
  std::vector<int64_t> distances;
  for (const int64_t first : firsts) distances.push_back(first - firsts.front());
  const int64_t stride = Divisor(distances);
  digits->push_back({stride, distances.back() / stride + 1});
}

}  // namespace

bool ThreadsStayApart(std::span<const IndexForm> forms, const LaunchShape& shape,
                      const LaunchParameters& parameters, Among among) {
  if (forms.empty()) return false;
  const Evaluator evaluate(shape, parameters);
  std::vector<Numbers> all(forms.size());
  for (size_t i = 0; i < forms.size(); i++) {
    if (!Evaluate(forms[i], shape, evaluate, &all[i])) return false;
  }
  const Numbers& one = all.front();
  int64_t bytes = 0, narrow = one.narrow;
  std::vector<int64_t> starts, steps;
  for (const Numbers& other : all) {
    if (other.places != one.places || other.pinned != one.pinned ||
        other.pin_values != one.pin_values || other.has_counter != one.has_counter ||
        other.counter_factor != one.counter_factor || other.counted != one.counted)
      return false;
    bytes = std::max(bytes, other.bytes);
    narrow = std::min(narrow, other.narrow);
    starts.push_back(other.start);
    steps.insert(steps.end(), other.steps.begin(), other.steps.end());
  }
  int64_t below = 0;
  for (const Numbers& other : all) below = std::max(below, other.counter_below);
  // Loops that count in different ways may reach each other's numbers.
  if (one.has_counter && std::any_of(forms.begin(), forms.end(), [&](const IndexForm& form) {
        return form.counter.threads != forms.front().counter.threads ||
               form.counter.start != forms.front().counter.start ||
               form.counter.steps != forms.front().counter.steps;
      })) {
    return false;
  }

  std::vector<Digit> digits;
  // Every number in which two threads may differ must show in the address.
  for (uint32_t i = 0; i < kWarpX; i++) {
    const bool of_grid = i >= kBlockX;
    if (of_grid && among == Among::kThreadsOfBlock) continue;
    const int64_t count = of_grid ? shape.grid[i - kBlockX] : shape.block[i - kThreadX];
    int64_t stride = std::abs(one.places[i]);
    if (one.pinned[i] || count <= 1) continue;
    if (i == kThreadX && one.places[kWarpX] != 0) {
      // The number of the warp stands for the thread if only one lane gets there.
      if (stride != 0 || !one.pinned[kLaneX]) return false;
      digits.push_back({std::abs(one.places[kWarpX]), (count + 31) / 32});
      continue;
    }
    if (!of_grid && one.counted[i]) {
      if (stride != 0) return false;
      continue;
    }
    if (stride == 0) return false;
    digits.push_back({stride, count});
  }
  if (one.has_counter) digits.push_back({one.counter_factor, below});
  const int64_t step = Divisor(steps);
  // Any multiple of the step is there anyway.
  const int64_t first = *std::min_element(starts.begin(), starts.end());
  for (int64_t& start : starts) start = step == 0 ? start - first : (start - first) % step;
  int64_t least = 0;
  for (const Digit& digit : digits)
    least = least == 0 ? digit.stride : std::min(least, digit.stride);
  AddStarts(std::move(starts), least, &bytes, &digits);
  int64_t span = bytes;
  if (!Spell(std::move(digits), &span)) return false;
  if (step != 0 && step < span) return false;
  int64_t most = 0;
  return __builtin_mul_overflow(narrow, int64_t{1} << 31, &most) || span <= most;
}

}  // namespace ops_debug::shadow
