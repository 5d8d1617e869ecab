#include "tests/kernels/kernel_tester.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/tensor/weight_format.h"

namespace sluice::kernels {
namespace {

constexpr float kMark = 12345.75f;

// SplitMix64: a bijection of a counter, so every seed gives all values.
uint64_t Mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<Isa> AvailableIsas() {
  std::vector<Isa> isas;
  for (Isa isa : kAllIsas) {
    if (HasIsa(isa)) isas.push_back(isa);
  }
  return isas;
}

std::vector<float> RandomFloats(uint64_t seed, int64_t n, float scale) {
  std::vector<float> values(static_cast<size_t>(n));
  uint64_t state = Mix(seed);
  for (float& value : values) {
    const auto bits = static_cast<int32_t>(Mix(state++) >> 40);  // 24 bits
    value = static_cast<float>(bits - (1 << 23)) * 0x1p-23f * scale;
  }
  return values;
}

std::vector<float> RandomBf16(uint64_t seed, int64_t n, float scale) {
  std::vector<float> values = RandomFloats(seed, n, scale);
  for (float& value : values) {
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000u);
  }
  return values;
}

OwnedWeight::OwnedWeight(WeightType type, int64_t rows, int64_t cols,
                         const std::vector<float>& values)
    : type_(type), rows_(rows), cols_(cols) {
  SLUICE_CHECK(static_cast<int64_t>(values.size()) == rows * cols);
  const size_t size = FormatOf(type).bytes(1);
  bytes_.resize(values.size() * size + 64);
  start_ = (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    if (type == WeightType::kF32) {
      std::memcpy(bytes_.data() + start_ + i * 4, &bits, 4);
    } else {
      SLUICE_CHECK((bits & 0xFFFF) == 0);
      const auto upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(bytes_.data() + start_ + i * 2, &upper, 2);
    }
  }
}

CodedWeight::CodedWeight(WeightType type, uint64_t seed, int64_t rows,
                         int64_t cols, const std::vector<float>& scales)
    : type_(type), rows_(rows), cols_(cols) {
  const WeightFormat& format = FormatOf(type);
  const int run = format.block_elements;
  SLUICE_CHECK(cols % run == 0);
  SLUICE_CHECK(static_cast<int64_t>(scales.size()) == rows * cols / run);
  bytes_.resize(format.bytes(rows * cols));
  uint8_t* to = bytes_.data();
  auto code = static_cast<uint8_t>(seed * 37);
  for (const float scale : scales) {
    const float stored = scale * 256;
    std::memcpy(to, &stored, sizeof(stored));
    to += sizeof(stored);
    for (int i = 0; i < run; ++i) {
      while ((code & 0x7f) == 0x7f) ++code;  // no number
      *to++ = code;
      const int exponent = code >> 3 & 15;
      const int mantissa = code & 7;
      const double magnitude = exponent == 0
                                   ? std::ldexp(mantissa, -9)
                                   : std::ldexp(8 + mantissa, exponent - 10);
      const double value = (code & 0x80) != 0 ? -magnitude : magnitude;
      // A product of 4 and 24 bits is exact in a double.
      values_.push_back(static_cast<float>(value * double{scale}));
      // Odd: every code comes up.
      code = static_cast<uint8_t>(code + 59);
    }
  }
}

CodedWeight::CodedWeight(WeightType type, uint64_t seed, int64_t rows,
                         int64_t cols)
    : CodedWeight(
          type, seed, rows, cols,
          RandomFloats(seed, rows * cols / FormatOf(type).block_elements,
                       0x1p-8f)) {}

WeightView OwnedWeight::view() const {
  return {.data = bytes_.data() + start_,
          .type = type_,
          .rows = rows_,
          .cols = cols_};
}

std::vector<float> OwnedWeight::values() const {
  std::vector<float> values(static_cast<size_t>(rows_ * cols_));
  const uint8_t* from = bytes_.data() + start_;
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    if (type_ == WeightType::kF32) {
      std::memcpy(&bits, from + i * 4, 4);
      values[i] = std::bit_cast<float>(bits);
    } else {
      bits = (uint32_t{from[i * 2 + 1]} << 8 | from[i * 2]) << 16;
      values[i] = std::bit_cast<float>(bits);
    }
  }
  return values;
}

OwnedMatrix::OwnedMatrix(int64_t rows, int64_t cols, int64_t pad)
    : rows_(rows),
      cols_(cols),
      stride_(cols + pad),
      floats_(static_cast<size_t>(rows * stride_), kMark) {}

OwnedMatrix::OwnedMatrix(int64_t rows, int64_t cols,
                         const std::vector<float>& values)
    : rows_(rows), cols_(cols), stride_(cols), floats_(values) {
  SLUICE_CHECK(static_cast<int64_t>(values.size()) == rows * cols);
}

Matrix OwnedMatrix::view() { return {floats_.data(), rows_, cols_, stride_}; }

ConstMatrix OwnedMatrix::view() const {
  return {floats_.data(), rows_, cols_, stride_};
}

std::vector<float> OwnedMatrix::values() const {
  std::vector<float> values;
  for (int64_t r = 0; r < rows_; ++r) {
    const float* row = floats_.data() + r * stride_;
    values.insert(values.end(), row, row + cols_);
  }
  return values;
}

bool OwnedMatrix::MarkIntact() const {
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t c = cols_; c < stride_; ++c) {
      if (floats_[static_cast<size_t>(r * stride_ + c)] != kMark) return false;
    }
  }
  return true;
}

float CanonicalDot(const float* a, const float* b, int64_t n) {
  float lanes[16] = {};
  for (int64_t k = 0; k < n; ++k) {
    lanes[k % 16] = std::fma(a[k], b[k], lanes[k % 16]);
  }
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

double DotInDouble(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += double{a[k]} * double{b[k]};
  return sum;
}

double AbsDot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += std::abs(double{a[k]} * double{b[k]});
  return sum;
}

double Gamma(int64_t n) {
  const double u = static_cast<double>(n) * 0x1p-24;
  return u / (1 - u);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace sluice::kernels
