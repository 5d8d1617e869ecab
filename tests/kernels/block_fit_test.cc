#include "kernels/block_fit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_store.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

using Floats = std::vector<float>;

std::vector<uint8_t> Fitted(BlockFormat format, const Floats& x,
                            const Floats& importance = {}) {
  const auto blocks = static_cast<int64_t>(x.size()) / BlockElements(format);
  // Every byte is written, whatever was there.
  std::vector<uint8_t> stored(static_cast<size_t>(blocks * BlockBytes(format)),
                              0xA5);
  FitBlocks(format, x.data(), importance.empty() ? nullptr : importance.data(),
            blocks, stored.data());
  return stored;
}

std::vector<double> ValuesOf(BlockFormat format,
                             const std::vector<uint8_t>& stored) {
  const auto blocks = static_cast<int64_t>(stored.size()) / BlockBytes(format);
  return BlockValues(format, stored.data(), blocks * BlockElements(format));
}

// Squared error of elements that `counts` says.
template <typename Counts>
double ErrorWhere(const Floats& x, const std::vector<double>& values,
                  Counts counts) {
  double error = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const double off = values[k] - double{x[k]};
    if (counts(k)) error += off * off;
  }
  return error;
}

double ErrorOfFit(const Floats& x, const std::vector<double>& values) {
  return ErrorWhere(x, values, [](size_t) { return true; });
}

// The levels of a format's codes: every integer, or those of its table.
std::vector<double> LevelsOf(BlockFormat format) {
  const BlockLayout& layout = kBlockLayouts[static_cast<int>(format)];
  const int bits = layout.low_bits + layout.high_bits;
  const bool is_table =
      format == BlockFormat::kIq4Nl || format == BlockFormat::kIq4Xs;
  std::vector<double> levels;
  // Q8_0 has no -128.
  for (int code = format == BlockFormat::kQ8_0 ? 1 : 0; code < 1 << bits;
       ++code) {
    if (is_table) {
      levels.push_back(kIq4Values[code]);
    } else if (format == BlockFormat::kMxfp4) {
      levels.push_back(kMxfp4Values[code]);
    } else {
      levels.push_back(layout.minimum >= 0 ? code : code - (1 << (bits - 1)));
    }
  }
  return levels;
}

// The error of elements that are each on the nearest of rising `levels`.
double ErrorOn(const Floats& x, const std::vector<double>& levels, double scale,
               double offset) {
  double error = 0;
  for (const float v : x) {
    const double wanted = (double{v} - offset) / scale;
    const auto above = std::lower_bound(levels.begin(), levels.end(), wanted);
    double off = above == levels.end() ? 1e300 : *above - wanted;
    if (above != levels.begin()) off = std::min(off, wanted - *(above - 1));
    error += off * off * scale * scale;
  }
  return error;
}

// The error of a sub-block on the best of many scales (and minima, not above 0
// in formats of long blocks), which are not rounded; MXFP4 has all of its own.
double LeastError(BlockFormat format, const Floats& x, bool has_minimum) {
  std::vector<double> levels = LevelsOf(format);
  std::sort(levels.begin(), levels.end());
  const bool is_long = BlockElements(format) == kLongBlock;
  double end = 0;
  for (const float v : x) end = std::max(end, std::abs(double{v}));
  const double top = std::max(-levels.front(), levels.back());
  std::vector<double> scales;
  std::vector<double> offsets = {0.0};
  if (format == BlockFormat::kMxfp4) {
    for (int e = -128; e < 127; ++e) scales.push_back(std::ldexp(1.0, e));
  } else {
    const int tries = has_minimum ? 60 : 400;
    for (int i = 1; i <= tries; ++i) {
      scales.push_back(2.2 * end / top * i / tries);
      if (!has_minimum) scales.push_back(-scales.back());
    }
    for (int j = 0; j <= 60 && has_minimum; ++j) {
      const double offset = 1.2 * end * (j - 30) / 30;
      if (!is_long || offset <= 0) offsets.push_back(offset);
    }
  }
  double least = 1e300;
  for (const double scale : scales) {
    for (const double offset : offsets) {
      least = std::min(least, ErrorOn(x, levels, scale, offset));
    }
  }
  return least;
}

// Elements of a sub-block, which has a scale of its own.
int64_t SubBlockOf(BlockFormat format) {
  return format == BlockFormat::kQ2K || format == BlockFormat::kQ3K ||
                 format == BlockFormat::kQ6K
             ? 16
             : 32;
}

class FitBlocksTest : public ::testing::TestWithParam<BlockFormat> {
 protected:
  BlockFormat format() const { return GetParam(); }
  bool is_long() const { return BlockElements(format()) == kLongBlock; }
};

TEST_P(FitBlocksTest, IsNoWorseThanPlainRounding) {
  if (!CanStore(format())) return;
  for (const float scale : {1.0f, 3e-3f, 50.0f}) {
    const Floats x = RandomFloats(3, 64 * 32, scale);
    std::vector<uint8_t> plain(static_cast<size_t>(64 * BlockBytes(format())));
    StoreBlocks(format(), x.data(), 64, plain.data());
    EXPECT_LT(ErrorOfFit(x, ValuesOf(format(), Fitted(format(), x))),
              0.98 * ErrorOfFit(x, ValuesOf(format(), plain)));
  }
}

// Weights are almost equal where all elements have about one magnitude, so
// that the plain squared error is what the search makes small.
TEST_P(FitBlocksTest, IsNearTheBestOfManyScales) {
  const Floats noise = RandomFloats(7, 8 * 256, 0.3f);
  const Floats signs = RandomFloats(8, 8 * 256);
  Floats x(noise.size());
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] = (signs[k] < 0 ? -1.0f : 1.0f) * (1.0f + noise[k]);
  }
  const std::vector<uint8_t> stored = Fitted(format(), x);
  const bool has_minima = ReadBlock(format(), stored.data()).has_minima;
  const int64_t sub = SubBlockOf(format());
  double least = 0;
  for (auto at = x.begin(); at != x.end(); at += sub) {
    least += LeastError(format(), Floats(at, at + sub), has_minima);
  }
  const double error = ErrorOfFit(x, ValuesOf(format(), stored));
  // Weights differ a little, and so MXFP4's choice of a scale may. The others'
  // scales are rounded: to integers of four bits in Q2_K, of six and more.
  EXPECT_LT(error, (format() == BlockFormat::kQ2K ? 1.3 : 1.15) * least);
}

TEST_P(FitBlocksTest, EveryCodeIsTheNearestOne) {
  const Floats x = RandomFloats(5, 4 * 256, 0.02f);
  const std::vector<uint8_t> stored = Fitted(format(), x);
  const std::vector<double> levels = LevelsOf(format());
  const auto elements = static_cast<size_t>(BlockElements(format()));
  for (size_t k = 0; k < x.size(); ++k) {
    const auto block = static_cast<int64_t>(k / elements);
    const BlockNumbers n =
        ReadBlock(format(), stored.data() + block * BlockBytes(format()));
    const size_t in = k % elements;
    const double scale = double{n.scale} * n.sub_scale[in / 16];
    const double offset =
        n.has_minima ? double{n.minimum} * n.sub_minimum[in / 16] : 0.0;
    const double off = std::abs(scale * n.code[in] + offset - double{x[k]});
    double nearest = 1e300;
    for (const double level : levels) {
      nearest =
          std::min(nearest, std::abs(scale * level + offset - double{x[k]}));
    }
    // Two levels may be as near but for a rounding.
    EXPECT_LE(off, nearest + 1e-5 * std::abs(scale)) << k;
  }
}

TEST_P(FitBlocksTest, ImportantColumnsHaveTheSmallerError) {
  const Floats x = RandomFloats(9, 32 * 256, 0.02f);
  Floats importance(x.size());
  const auto is_important = [](size_t k) { return k % 8 == 3; };
  for (size_t k = 0; k < x.size(); ++k) {
    importance[k] = is_important(k) ? 1000.0f : 1.0f;
  }
  const auto with = ValuesOf(format(), Fitted(format(), x, importance));
  const auto without = ValuesOf(format(), Fitted(format(), x));
  const double now = ErrorWhere(x, with, is_important);
  const double before = ErrorWhere(x, without, is_important);
  // MXFP4 has one of a few scales to choose.
  EXPECT_LT(now, (format() == BlockFormat::kMxfp4 ? 1.0 : 0.9) * before);
}

TEST_P(FitBlocksTest, WithoutAnyImportanceABlockIsFittedAsWithout) {
  const Floats x = RandomFloats(4, 512, 0.1f);
  EXPECT_EQ(Fitted(format(), x, Floats(x.size(), 0.0f)), Fitted(format(), x));
}

TEST_P(FitBlocksTest, ZerosAndSingleElementsStayWhatTheyAre) {
  Floats x(1024, 0.0f);
  for (const double value : ValuesOf(format(), Fitted(format(), x))) {
    EXPECT_EQ(value, 0.0);
  }
  // The only one of a block. IQ4 has no level 0.
  x[3] = 0.75f;
  x[256] = -0.75f;
  x[513] = 6.5e4f;
  const auto values = ValuesOf(format(), Fitted(format(), x));
  for (size_t k = 0; k < x.size(); ++k) {
    const double only = k < 256 ? 0.75 : k < 512 ? 0.75 : k < 768 ? 6.5e4 : 0.0;
    EXPECT_NEAR(values[k], double{x[k]}, 0.04 * only) << k;
  }
}

TEST_P(FitBlocksTest, TinyAndHugeElementsGiveFiniteBlocks) {
  for (const float scale : {1e-42f, 1e-30f, 1e-8f, 6e4f}) {
    for (const bool above : {false, true}) {
      Floats x = RandomFloats(6, 512, scale);
      if (above) {
        for (float& v : x) v = std::abs(v);
      }
      double largest = 0;
      for (const float v : x) largest = std::max(largest, std::abs(double{v}));
      for (const double value : ValuesOf(format(), Fitted(format(), x))) {
        ASSERT_TRUE(std::isfinite(value));
        EXPECT_LE(std::abs(value), 1.5 * largest) << scale;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, FitBlocksTest,
                         ::testing::ValuesIn(TestedBlockFormats()),
                         [](const auto& tested) {
                           return NameOf(tested.param);
                         });

}  // namespace
}  // namespace sluice::kernels
