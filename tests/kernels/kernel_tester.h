#ifndef SLUICE_TESTS_KERNELS_KERNEL_TESTER_H_
#define SLUICE_TESTS_KERNELS_KERNEL_TESTER_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// How gtest names a parameter of a test over instruction sets.
inline void PrintTo(Isa isa, std::ostream* out) { *out << ToString(isa); }

// Every instruction set. A test of one that this machine lacks is skipped with
// a line.
inline constexpr Isa kAllIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                   Isa::kNeon};
// Those that it has.
std::vector<Isa> AvailableIsas();

// Deterministic numbers, the same on every machine. Uniform in [-scale,
// scale), of 24 bits.
std::vector<float> RandomFloats(uint64_t seed, int64_t n, float scale = 1.0f);
// The same rounded down to BF16, still as F32.
std::vector<float> RandomBf16(uint64_t seed, int64_t n, float scale = 1.0f);

// A weight with storage of its own, 64-byte aligned, made from F32 values
// that must fit the type exactly.
class OwnedWeight {
 public:
  OwnedWeight(WeightType type, int64_t rows, int64_t cols,
              const std::vector<float>& values);
  WeightView view() const;
  // The elements, row by row.
  std::vector<float> values() const;

 private:
  WeightType type_;
  int64_t rows_;
  int64_t cols_;
  std::vector<uint8_t> bytes_;
  size_t start_ = 0;
};

// A weight of type kE4m3 or kE4m3Wide with storage of its own: every code in
// turn, from one that `seed` chooses, with a scale for each run.
class CodedWeight {
 public:
  // scales: [rows * cols / the columns of a run].
  CodedWeight(WeightType type, uint64_t seed, int64_t rows, int64_t cols,
              const std::vector<float>& scales);
  // Scales around 2^-8.
  CodedWeight(WeightType type, uint64_t seed, int64_t rows, int64_t cols);
  CodedWeight(uint64_t seed, int64_t rows, int64_t cols)
      : CodedWeight(WeightType::kE4m3, seed, rows, cols) {}
  WeightView view() const { return {bytes_.data(), type_, rows_, cols_}; }
  // The elements, row by row: code * scale, rounded once.
  const std::vector<float>& values() const { return values_; }

 private:
  WeightType type_;
  int64_t rows_;
  int64_t cols_;
  std::vector<uint8_t> bytes_;
  std::vector<float> values_;
};

// A packed matrix with storage of its own. Rows are `pad` elements longer
// than used; these hold a mark that MarkIntact looks for.
class OwnedMatrix {
 public:
  OwnedMatrix(int64_t rows, int64_t cols, int64_t pad = 0);
  OwnedMatrix(int64_t rows, int64_t cols, const std::vector<float>& values);
  Matrix view();
  ConstMatrix view() const;
  // The used elements, row by row.
  std::vector<float> values() const;
  bool MarkIntact() const;

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  std::vector<float> floats_;
};

// matmul.h's dot product, written out: the reference for bits.
float CanonicalDot(const float* a, const float* b, int64_t n);
// In double, and the sum of absolute products, which tolerances are made of.
double DotInDouble(const float* a, const float* b, int64_t n);
double AbsDot(const float* a, const float* b, int64_t n);

// Bound on the relative error of n F32 roundings in a row.
double Gamma(int64_t n);

// Equal as bits: tells +0 from -0.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace sluice::kernels

#endif  // SLUICE_TESTS_KERNELS_KERNEL_TESTER_H_
