#ifndef SLUICE_TESTS_KERNELS_CUDA_FAST_TILED_WEIGHTS_H_
#define SLUICE_TESTS_KERNELS_CUDA_FAST_TILED_WEIGHTS_H_

#include <cuda_device/device.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/block_pack.h"
#include "kernels/cuda/fast/products.h"
#include "kernels/cuda/fast/weight_layout.h"
#include "kernels/matmul.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/cuda/fast/tile_reference.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {

// Weights in tiles, and what fast/products.h says of products with them.

inline float Bf16(float value) {
  const uint32_t pair = PackPair(value, 0);
  return BitCast<float>(pair << 16);
}

// A weight's tiles at a 64-byte address, and its elements.
class TileWeight {
 public:
  explicit TileWeight(const WeightView& view) : view_(view) {
    const int64_t bytes = TileBytes(view.type, view.rows, view.cols);
    bytes_.resize(static_cast<size_t>(bytes) / sizeof(Line) + 1);
    PackTilesPlainly(view, reinterpret_cast<uint8_t*>(bytes_.data()));
  }
  WeightView view() const {
    return {bytes_.data(), view_.type, view_.rows, view_.cols};
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  WeightView view_;
  std::vector<Line> bytes_;
};

// Random elements of a type with tiles, as floats, and each run's scale, or of
// types in units the scale and the minimum of each sixteen columns.
struct TiledWeights {
  TiledWeights(WeightType type, uint64_t seed, int64_t rows, int64_t cols) {
    const int64_t n = rows * cols;
    if (type == WeightType::kBf16) {
      values = RandomBf16(seed, n);
      plain.emplace(type, rows, cols, values);
      tiles.emplace(plain->view());
      return;
    }
    if (IsInUnits(type)) {
      MakeUnits(type, seed, rows, cols);
      return;
    }
    scales.resize(static_cast<size_t>(n / kRunCols));
    if (type == WeightType::kE4m3 || type == WeightType::kE4m3Wide) {
      coded.emplace(type, seed, rows, cols);
      values = coded->values();
      tiles.emplace(coded->view());
      const auto* const bytes = static_cast<const uint8_t*>(coded->view().data);
      const auto runs = static_cast<size_t>(RunLayoutOf(type).runs);
      for (size_t i = 0; i < scales.size(); ++i) {
        scales[i] = BitCast<float>(LoadWord(
            bytes + i / runs * static_cast<size_t>(StoredBytes(type))));
      }
      return;
    }
    const BlockFormat format = FormatOfType(type);
    stored = RandomBlockRows(format, seed, rows, cols);
    values.resize(static_cast<size_t>(n));
    WidenBlocks(format, stored.data(), n / kRunCols, values.data());
    const auto bytes =
        static_cast<size_t>(kBlockLayouts[static_cast<int>(format)].bytes);
    for (size_t i = 0; i < scales.size(); ++i) {
      const uint8_t* const block = stored.data() + i * bytes;
      scales[i] = type == WeightType::kMxfp4
                      ? std::ldexp(1.0f, static_cast<int>(block[0]) - 127)
                      : F16At(block);
    }
    tiles.emplace(WeightView{stored.data(), type, rows, cols});
  }
  void MakeUnits(WeightType type, uint64_t seed, int64_t rows, int64_t cols) {
    const BlockFormat format = FormatOfType(type);
    const int64_t elements = BlockElements(format);
    stored = RandomBlockRows(format, seed, rows, cols);
    const int64_t blocks = rows * cols / elements;
    values.resize(static_cast<size_t>(rows * cols));
    WidenBlocks(format, stored.data(), blocks, values.data());
    for (int64_t b = 0; b < blocks; ++b) {
      const BlockNumbers numbers =
          ReadBlock(format, stored.data() + b * BlockBytes(format));
      has_minima = numbers.has_minima;
      for (int64_t k = 0; k < elements; ++k) {
        codes.push_back(numbers.code[k]);
        if (k % 16 != 0) continue;
        scales.push_back(numbers.scale *
                         static_cast<float>(numbers.sub_scale[k / 16]));
        minima.push_back(numbers.minimum *
                         static_cast<float>(numbers.sub_minimum[k / 16]));
      }
    }
    // Columns that one scale belongs to.
    part = type == WeightType::kQ2K || type == WeightType::kQ3K ||
                   type == WeightType::kQ6K
               ? 16
               : 32;
    tiles.emplace(WeightView{stored.data(), type, rows, cols});
  }
  WeightView view() const { return tiles->view(); }
  // A code as operand A has it.
  double CodeOf(int64_t i) const {
    if (scales.empty()) return values[i];
    const float scale = scales[i / kRunCols];
    if (scale == 0.0f) return 0;
    const double code = double{values[i]} / double{scale};
    // E4M3's products are rounded; 2^-8 of a code is a multiple of 2^-17.
    return coded.has_value() ? std::nearbyint(code * 0x1p17) * 0x1p-17 : code;
  }
  std::vector<float> values;
  std::vector<float> scales;
  std::vector<uint8_t> stored;
  // Of types in units.
  std::vector<int> codes;
  std::vector<float> minima;
  bool has_minima = false;
  int part = 0;
  std::optional<OwnedWeight> plain;
  std::optional<CodedWeight> coded;
  std::optional<TileWeight> tiles;
};

// The emulated instruction's sum of a step of 16 columns from k on, onto `sum`:
// of x times what `weight` has for a column.
template <typename Weight>
float TileStepOf(const float* x, int64_t k, float sum, const Weight& weight) {
  double exact = static_cast<double>(sum);
  for (int i = 0; i < 16; ++i) {
    const int64_t c = k + i % 8 / 2 * 4 + i / 8 * 2 + i % 2;
    exact += weight(c) * static_cast<double>(Bf16(x[c]));
  }
  return static_cast<float>(exact);
}

// One leaf of a type in units, as fast/products.h says.
inline float UnitLeafOf(const TiledWeights& w, const float* x, int64_t row,
                        int64_t begin, int64_t end) {
  const int64_t first = row * w.view().cols;
  float sum = 0;
  for (int64_t k = begin; k < end; k += w.part) {
    float product = 0;
    float total = 0;
    for (int64_t c = k; c < k + w.part; c += 16) {
      product = TileStepOf(x, c, product, [&](int64_t column) {
        return static_cast<double>(w.codes[first + column]);
      });
      total = TileStepOf(x, c, total, [](int64_t) { return 1.0; });
    }
    sum = std::fma(product, w.scales[(first + k) / 16], sum);
    if (w.has_minima) sum = std::fma(total, w.minima[(first + k) / 16], sum);
  }
  return sum;
}

// One leaf as fast/products.h says, with the emulated instruction's sums.
inline float TileLeafOf(const TiledWeights& w, const float* x, int64_t row,
                        int64_t begin, int64_t end) {
  if (w.part != 0) return UnitLeafOf(w, x, row, begin, end);
  const int64_t cols = w.view().cols;
  const bool in_runs = !w.scales.empty();
  float sum = 0;
  float part = 0;
  for (int64_t k = begin; k < end; k += 16) {
    double exact = static_cast<double>(in_runs ? part : sum);
    // The lanes' columns: 4t, 4t + 1 of all lanes, then 4t + 2, 4t + 3.
    for (int i = 0; i < 16; ++i) {
      const int64_t c = k + i % 8 / 2 * 4 + i / 8 * 2 + i % 2;
      if (c >= end) continue;
      exact += w.CodeOf(row * cols + c) * static_cast<double>(Bf16(x[c]));
    }
    if (!in_runs) {
      sum = static_cast<float>(exact);
      continue;
    }
    part = static_cast<float>(exact);
    if ((k - begin) % kRunCols == 0) continue;
    sum = std::fma(part, w.scales[(row * cols + k) / kRunCols], sum);
    part = 0;
  }
  return sum;
}

inline float TileElementOf(const TiledWeights& w, const float* x, int64_t row,
                           const std::vector<int32_t>& bounds,
                           const TreeNode& node) {
  return ReduceTree(
      node.begin, node.end,
      [&](int32_t s) {
        return TileLeafOf(w, x, row, bounds[s], bounds[s + 1]);
      },
      [](float a, float b) { return a + b; });
}

inline std::vector<int32_t> LeavesOf(int64_t cols, int unit = kRunCols) {
  const ProductLeaves leaves(cols, unit);
  return {leaves.bounds, leaves.bounds + leaves.count + 1};
}

// Memory as a product takes it, kept until the next one.
class KeptMemory {
 public:
  TileMemory memory() {
    return [this](int64_t bytes) -> void* {
      lines_.assign(static_cast<size_t>(bytes) / sizeof(Line) + 1, Line());
      std::memset(lines_.data(), 0xFF, lines_.size() * sizeof(Line));
      return lines_.data();
    };
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_KERNELS_CUDA_FAST_TILED_WEIGHTS_H_
