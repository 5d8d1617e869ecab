#include "kernels/block_lines.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::kernels {
namespace {

constexpr int kCandidates = 4;  // to each side of a first guess
constexpr int kRounds = 3;      // of levels, then least squares

// The index in a table of the level nearest to `wanted`. At most one middle of
// two levels is within half of an integer.
int IndexIn(const Levels& levels, float wanted) {
  const float near =
      RoundToInteger(std::clamp(wanted, levels.lowest, levels.highest));
  const int first = levels.first[static_cast<int>(near) + 128];
  return first + (wanted > levels.middle[first] ? 1 : 0);
}

}  // namespace

Levels Levels::Integers(int lowest, int highest) {
  Levels levels;
  levels.lowest = static_cast<float>(lowest);
  levels.highest = static_cast<float>(highest);
  return levels;
}

Levels Levels::Table(const int8_t (&values)[16]) {
  Levels levels;
  for (int code = 0; code < 16; ++code) {
    // MXFP4 has two zeros: the first is enough.
    if (code > 0 && values[code] == 0) continue;
    int at = levels.count++;
    for (; at > 0 && levels.value[at - 1] > values[code]; --at) {
      levels.value[at] = levels.value[at - 1];
      levels.code[at] = levels.code[at - 1];
    }
    levels.value[at] = values[code];
    levels.code[at] = static_cast<uint8_t>(code);
  }
  for (int i = 0; i < levels.count; ++i) {
    levels.middle[i] = i + 1 < levels.count
                           ? 0.5f * (levels.value[i] + levels.value[i + 1])
                           : std::numeric_limits<float>::infinity();
  }
  for (int i = 0; i < 256; ++i) {
    const float low = static_cast<float>(i) - 128.5f;
    int first = 0;
    while (levels.middle[first] < low) ++first;
    levels.first[i] = static_cast<uint8_t>(first);
  }
  levels.lowest = levels.value[0];
  levels.highest = levels.value[levels.count - 1];
  return levels;
}

float Levels::Nearest(float wanted) const {
  if (count > 0) return value[IndexIn(*this, wanted)];
  return RoundToInteger(std::clamp(wanted, lowest, highest));
}

uint8_t Levels::CodeOf(float wanted) const {
  if (count > 0) return code[IndexIn(*this, wanted)];
  return static_cast<uint8_t>(Nearest(wanted) - lowest);
}

float Levels::StepAt(float end) const {
  if (count == 0) return 1.0f;
  return end < 0 ? value[1] - value[0] : value[count - 1] - value[count - 2];
}

float RoundToInteger(float value) {
  constexpr float kOneAndAHalf = 0x1.8p23f;
  return (value + kOneAndAHalf) - kOneAndAHalf;
}

float InverseOf(float scale) {
  const float inverse = 1.0f / scale;
  return std::isinf(inverse) ? 0.0f : inverse;
}

float ErrorOf(const Levels& levels, const Elements& e, Line line) {
  const float inverse = InverseOf(line.scale);
  float error = 0;
  for (int k = 0; k < e.count; ++k) {
    const float level = levels.Nearest((e.x[k] - line.least) * inverse);
    const float off = line.scale * level + line.least - e.x[k];
    error += e.weight[k] * off * off;
  }
  return error;
}

Sums::Sums(const Levels& levels, const Elements& e, Line line) {
  const float inverse = InverseOf(line.scale);
  for (int k = 0; k < e.count; ++k) {
    const float level = levels.Nearest((e.x[k] - line.least) * inverse);
    const float weighted = e.weight[k] * level;
    w += e.weight[k];
    x += e.weight[k] * e.x[k];
    l += weighted;
    ll += weighted * level;
    xl += weighted * e.x[k];
  }
}

Line Sums::Scale() const { return {ll > 0 ? xl / ll : 0.0f, 0.0f}; }

Line Sums::ScaleAndLeast(bool is_below) const {
  const float determinant = w * ll - l * l;
  if (!(determinant > 0)) return {0.0f, is_below ? 0.0f : x / w};
  const Line line = {(w * xl - x * l) / determinant,
                     (ll * x - l * xl) / determinant};
  return is_below && line.least > 0 ? Scale() : line;
}

Line FitScale(const Levels& levels, const Elements& e) {
  float end = 0;
  for (int k = 0; k < e.count; ++k) {
    if (std::abs(e.x[k]) > std::abs(end)) end = e.x[k];
  }
  BestLine best(levels, e);
  if (end == 0) return best.line();
  for (const float level : {levels.lowest, levels.highest}) {
    const float step = levels.StepAt(level) / (kCandidates + 1);
    for (int i = -kCandidates; i <= kCandidates; ++i) {
      const float at = level + static_cast<float>(i) * step;
      best.Try(Sums(levels, e, {end / at, 0.0f}).Scale());
    }
  }
  for (int i = 0; i < kRounds; ++i) {
    if (!best.Try(Sums(levels, e, best.line()).Scale())) break;
  }
  return best.line();
}

Line FitScaleAndLeast(const Levels& levels, const Elements& e, bool is_below) {
  const auto [low, high] = std::minmax_element(e.x, e.x + e.count);
  const float least = is_below ? std::min(*low, 0.0f) : *low;
  BestLine best(levels, e);
  best.Try({0.0f, least});
  if (*high <= least) return best.line();
  for (int i = -kCandidates; i <= kCandidates; ++i) {
    const float steps = levels.highest + 0.25f * static_cast<float>(i);
    const Line guess = {(*high - least) / steps, least};
    best.Try(guess);
    best.Try(Sums(levels, e, guess).ScaleAndLeast(is_below));
  }
  for (int i = 0; i < kRounds; ++i) {
    const Sums sums(levels, e, best.line());
    if (!best.Try(sums.ScaleAndLeast(is_below))) break;
  }
  return best.line();
}

}  // namespace sluice::kernels
