#ifndef SLUICE_TESTS_WEIGHTS_QUANTISED_MATRIX_H_
#define SLUICE_TESTS_WEIGHTS_QUANTISED_MATRIX_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::testing {

// Writes a safetensors file tensor by tensor.
class SafetensorsBuilder {
 public:
  SafetensorsBuilder& Tensor(std::string_view name, std::string_view dtype,
                             const std::vector<int64_t>& shape,
                             std::string_view bytes);
  std::string Build() const;

 private:
  std::string header_;
  std::string data_;
};

// A matrix [rows, cols] of codes of `bits`, with a scale and a zero point per
// row and `group` columns. Scales have 8 significant bits, so that F16, BF16
// and F32 hold them.
struct QuantisedMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group = 32;
  int bits = 4;
  bool symmetric = true;
  std::vector<int> codes;     // [rows, cols]
  std::vector<int> zeros;     // [rows, cols / group]
  std::vector<float> scales;  // [rows, cols / group]

  int64_t groups() const { return cols / group; }
  // (code - zero point) * scale.
  float At(int64_t row, int64_t col) const;
};

// Rounds values [rows, cols]; `symmetric` puts all zero points in the middle.
QuantisedMatrix Quantised(std::span<const float> values, int64_t rows,
                          int64_t cols, int64_t group, int bits,
                          bool symmetric);

// The matrix STEM.weight as the tools write it.
enum class CheckpointKind {
  kGptq,    // the first version, with g_idx
  kGptqV2,  // zero points as they are
  kAwq,
  kPacked,     // compressed-tensors' pack-quantized, scales of BF16
  kInt8,       // compressed-tensors' int-quantized, scales of BF16
  kF8Channel,  // compressed-tensors' float-quantized: codes are E4M3
  kF8Blocks,   // one scale per 128 rows and columns: that of the first element
};
void AddQuantised(CheckpointKind kind, std::string_view stem,
                  const QuantisedMatrix& matrix, SafetensorsBuilder& to);
// config.json's quantization_config of such matrices.
std::string QuantisationConfig(CheckpointKind kind,
                               const QuantisedMatrix& matrix);

// The value of an F8_E4M3 code.
float E4m3Value(int code);

// The F16 of a value that is one and has no subnormal.
uint16_t F16Of(float value);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_WEIGHTS_QUANTISED_MATRIX_H_
