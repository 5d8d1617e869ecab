#include "kernels/block_fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/block_lines.h"
#include "kernels/block_pack.h"
#include "kernels/block_store.h"

namespace sluice::kernels {
namespace {

constexpr int kMaxSubBlocks = 16;

void StoreHalf(float value, uint8_t* to) {
  const uint16_t half = F16Of(value);
  to[0] = static_cast<uint8_t>(half & 255u);
  to[1] = static_cast<uint8_t>(half >> 8);
}

float F16Rounded(float value) {
  uint8_t half[2];
  StoreHalf(value, half);
  return F16At(half);
}

// What a format's blocks are: short ones have one scale, long ones integer
// scales of sub-blocks that multiply a scale.
struct Shape {
  Levels levels;
  bool has_minimum = false;
  int sub = kShortBlock;  // elements of a sub-block
  int lowest_scale = 0;   // of the integer scales
  int highest_scale = 0;
};

Shape ShapeOf(BlockFormat format) {
  const BlockLayout& layout = LayoutOf(format);
  const int bits = layout.low_bits + layout.high_bits;
  Shape shape;
  shape.has_minimum = layout.minimum >= 0;
  if (format == BlockFormat::kIq4Nl || format == BlockFormat::kIq4Xs) {
    shape.levels = Levels::Table(kIq4Values);
  } else if (format == BlockFormat::kMxfp4) {
    shape.levels = Levels::Table(kMxfp4Values);
  } else if (format == BlockFormat::kQ8_0) {
    shape.levels = Levels::Integers(-127, 127);
  } else if (shape.has_minimum) {
    shape.levels = Levels::Integers(0, (1 << bits) - 1);
  } else {
    shape.levels = Levels::Integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1);
  }
  switch (format) {
    case BlockFormat::kQ2K:
      shape.sub = 16;
      shape.highest_scale = 15;
      break;
    case BlockFormat::kQ3K:
      shape.sub = 16;
      shape.lowest_scale = -32;
      shape.highest_scale = 31;
      break;
    case BlockFormat::kQ4K:
    case BlockFormat::kQ5K:
      shape.highest_scale = 63;
      break;
    case BlockFormat::kQ6K:
      shape.sub = 16;
      shape.lowest_scale = -128;
      shape.highest_scale = 127;
      break;
    case BlockFormat::kIq4Xs:
      shape.lowest_scale = -32;
      shape.highest_scale = 31;
      break;
    default:
      break;
  }
  return shape;
}

// 2^(code - 128) is the scale of doubled values.
float Mxfp4Scale(int code) { return std::ldexp(1.0f, code - 128); }

void FitMxfp4(const Levels& levels, const Elements& e, uint8_t* codes,
              uint8_t* stored) {
  float largest = 0;
  for (int k = 0; k < e.count; ++k) {
    largest = std::max(largest, std::abs(e.x[k]));
  }
  int exponent = 0;
  std::frexp(largest / levels.highest, &exponent);
  const int middle = largest == 0 ? 0 : std::clamp(exponent + 128, 0, 254);
  int best = middle;
  float error = ErrorOf(levels, e, {Mxfp4Scale(best), 0.0f});
  for (int code = std::max(middle - 2, 0); code <= std::min(middle + 1, 254);
       ++code) {
    const float other = ErrorOf(levels, e, {Mxfp4Scale(code), 0.0f});
    if (!(other < error)) continue;
    best = code;
    error = other;
  }
  stored[0] = static_cast<uint8_t>(best);
  const float inverse = InverseOf(Mxfp4Scale(best));
  for (int k = 0; k < e.count; ++k) {
    codes[k] = levels.CodeOf(e.x[k] * inverse);
  }
}

void CodesOnLine(const Levels& levels, const Elements& e, Line line,
                 uint8_t* codes) {
  const float inverse = InverseOf(line.scale);
  for (int k = 0; k < e.count; ++k) {
    codes[k] = levels.CodeOf((e.x[k] - line.least) * inverse);
  }
}

void FitShort(const BlockLayout& layout, const Shape& shape, const Elements& e,
              uint8_t* codes, uint8_t* stored) {
  Line line = shape.has_minimum ? FitScaleAndLeast(shape.levels, e, false)
                                : FitScale(shape.levels, e);
  line = {F16Rounded(line.scale), F16Rounded(line.least)};
  StoreHalf(line.scale, stored + layout.scale);
  if (shape.has_minimum) StoreHalf(line.least, stored + layout.minimum);
  CodesOnLine(shape.levels, e, line, codes);
  if (layout.low_bits == 8) {  // Q8_0's codes are signed bytes
    for (int k = 0; k < e.count; ++k) {
      codes[k] = static_cast<uint8_t>(codes[k] - 127);
    }
  }
}

// The scales of a long block: two numbers and the integers of its sub-blocks.
struct LongScales {
  float scale = 0;
  float minimum = 0;  // taken off
  int scales[kMaxSubBlocks] = {};
  int minima[kMaxSubBlocks] = {};

  Line LineOf(int sub) const {
    return {scale * static_cast<float>(scales[sub]),
            -(minimum * static_cast<float>(minima[sub]))};
  }
};

class LongFit {
 public:
  LongFit(const Shape& shape, const Elements& e)
      : shape_(shape), e_(e), subs_(kLongBlock / shape.sub) {}

  LongScales Fit() {
    for (int i = 0; i < subs_; ++i) {
      lines_[i] = shape_.has_minimum
                      ? FitScaleAndLeast(shape_.levels, Part(i), true)
                      : FitScale(shape_.levels, Part(i));
    }
    const float scale = UnitOf([](Line line) { return line.scale; });
    const float minimum = UnitOf([](Line line) { return -line.least; });
    LongScales best = Rounded(F16Rounded(scale), F16Rounded(minimum));
    float error = ErrorOfBlock(best);
    // The integers are coarse: a little less or more may suit more of them.
    for (const float factor : {0.96f, 0.98f, 1.02f, 1.04f}) {
      Keep(Rounded(F16Rounded(scale * factor), F16Rounded(minimum)), best,
           error);
    }
    for (int i = 0; i < subs_; ++i) Refine(i, best);
    error = ErrorOfBlock(best);
    Keep(Solved(best), best, error);
    return best;
  }

 private:
  Elements Part(int sub) const { return e_.Part(sub * shape_.sub, shape_.sub); }

  // The number of which the sub-blocks' are multiples: that of the largest
  // magnitude over the integer at its end.
  template <typename Of>
  float UnitOf(Of of) const {
    float end = 0;
    for (int i = 0; i < subs_; ++i) {
      if (std::abs(of(lines_[i])) > std::abs(end)) end = of(lines_[i]);
    }
    const int last =
        shape_.lowest_scale < 0 ? shape_.lowest_scale : shape_.highest_scale;
    return end / static_cast<float>(last);
  }

  int IntegerOf(float value, float unit) const {
    if (unit == 0) return 0;
    return static_cast<int>(RoundToInteger(
        std::clamp(value / unit, static_cast<float>(shape_.lowest_scale),
                   static_cast<float>(shape_.highest_scale))));
  }

  LongScales Rounded(float scale, float minimum) const {
    LongScales made;
    made.scale = scale;
    made.minimum = minimum;
    for (int i = 0; i < subs_; ++i) {
      made.scales[i] = IntegerOf(lines_[i].scale, scale);
      made.minima[i] = IntegerOf(-lines_[i].least, minimum);
    }
    return made;
  }

  float ErrorOfBlock(const LongScales& scales) const {
    float error = 0;
    for (int i = 0; i < subs_; ++i) {
      error += ErrorOf(shape_.levels, Part(i), scales.LineOf(i));
    }
    return error;
  }

  void Keep(const LongScales& other, LongScales& best, float& error) const {
    const float now = ErrorOfBlock(other);
    if (!(now < error)) return;
    best = other;
    error = now;
  }

  // Tries the integers beside a sub-block's.
  void Refine(int sub, LongScales& best) const {
    const int scale = best.scales[sub];
    const int minimum = best.minima[sub];
    const int beside = shape_.has_minimum ? 1 : 0;
    BestLine line(shape_.levels, Part(sub));
    line.Try(best.LineOf(sub));
    LongScales tried = best;
    for (int i = std::max(scale - 1, shape_.lowest_scale);
         i <= std::min(scale + 1, shape_.highest_scale); ++i) {
      for (int j = std::max(minimum - beside, 0);
           j <= std::min(minimum + beside, shape_.highest_scale); ++j) {
        tried.scales[sub] = i;
        tried.minima[sub] = shape_.has_minimum ? j : 0;
        if (!line.Try(tried.LineOf(sub))) continue;
        best.scales[sub] = i;
        best.minima[sub] = tried.minima[sub];
      }
    }
  }

  // The same integers and codes, with the two numbers of least squares.
  LongScales Solved(const LongScales& from) const {
    double ll = 0, lm = 0, mm = 0, xl = 0, xm = 0;
    for (int i = 0; i < subs_; ++i) {
      const Sums sums(shape_.levels, Part(i), from.LineOf(i));
      const double s = from.scales[i];
      const double m = -from.minima[i];
      ll += s * s * double{sums.ll};
      lm += s * m * double{sums.l};
      mm += m * m * double{sums.w};
      xl += s * double{sums.xl};
      xm += m * double{sums.x};
    }
    LongScales made = from;
    const double determinant = ll * mm - lm * lm;
    if (determinant > 0) {
      made.scale =
          F16Rounded(static_cast<float>((xl * mm - xm * lm) / determinant));
      made.minimum =
          F16Rounded(static_cast<float>((xm * ll - xl * lm) / determinant));
    } else if (ll > 0 && mm == 0) {
      made.scale = F16Rounded(static_cast<float>(xl / ll));
    }
    return made;
  }

  const Shape& shape_;
  const Elements e_;
  const int subs_;
  Line lines_[kMaxSubBlocks];
};

void FitLong(BlockFormat format, const Shape& shape, const Elements& e,
             uint8_t* codes, uint8_t* stored) {
  const BlockLayout& layout = LayoutOf(format);
  const LongScales scales = LongFit(shape, e).Fit();
  StoreHalf(scales.scale, stored + layout.scale);
  if (shape.has_minimum) StoreHalf(scales.minimum, stored + layout.minimum);
  for (int i = 0; i < kLongBlock / shape.sub; ++i) {
    StoreSubBlock(format, i * shape.sub, {scales.scales[i], scales.minima[i]},
                  stored + layout.subscales);
    const int at = i * shape.sub;
    CodesOnLine(shape.levels, e.Part(at, shape.sub), scales.LineOf(i),
                codes + at);
  }
}

// Weighs the elements of one block.
void Weigh(const float* x, const float* importance, int count, float* weight) {
  double squares = 0;
  bool is_weighed = false;
  for (int k = 0; k < count; ++k) {
    squares += double{x[k]} * double{x[k]};
    is_weighed = is_weighed || (importance != nullptr && importance[k] > 0);
  }
  const auto mean = static_cast<float>(squares / count);
  const float root = std::sqrt(mean);
  for (int k = 0; k < count; ++k) {
    weight[k] = is_weighed ? importance[k] * std::sqrt(mean + x[k] * x[k])
                           : root + std::abs(x[k]);
  }
}

}  // namespace

void FitBlocks(BlockFormat format, const float* x, const float* importance,
               int64_t blocks, uint8_t* stored) {
  const BlockLayout& layout = LayoutOf(format);
  const Shape shape = ShapeOf(format);
  float weight[kLongBlock];
  uint8_t codes[kLongBlock];
  for (int64_t b = 0; b < blocks; ++b) {
    Weigh(x, importance, layout.elements, weight);
    const Elements e = {x, weight, layout.elements};
    std::memset(stored, 0, static_cast<size_t>(layout.bytes));
    if (format == BlockFormat::kMxfp4) {
      FitMxfp4(shape.levels, e, codes, stored);
    } else if (layout.elements == kLongBlock) {
      FitLong(format, shape, e, codes, stored);
    } else {
      FitShort(layout, shape, e, codes, stored);
    }
    StoreCodes(format, codes, stored);
    x += layout.elements;
    if (importance != nullptr) importance += layout.elements;
    stored += layout.bytes;
  }
}

}  // namespace sluice::kernels
