#ifndef SLUICE_COMMON_WEIGHTS_ENCODE_MATRIX_H_
#define SLUICE_COMMON_WEIGHTS_ENCODE_MATRIX_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/model_file.h"
#include "common/weights/quantize.h"
#include "kernels/context.h"

namespace sluice::weights {

// The layouts of checkpoints whose matrices are several tensors.
enum class Coding : uint8_t {
  kNone,
  kFp8,   // E4M3 with a scale per 128 rows and columns, as DeepSeek's
  kGptq,  // words of four bits, symmetric, checkpoint_format "gptq"
  kAwq,   // words of four bits with zero points, version "gemm"
};
// "FP8", "GPTQ", "AWQ".
std::string_view ToString(Coding coding);

// Rows and columns of one scale of FP8.
inline constexpr int64_t kFp8Block = 128;

// How a matrix is coded.
struct MatrixCoding {
  Coding coding = Coding::kNone;
  int64_t group = 128;  // columns with one scale, of GPTQ and AWQ
};

// Whether a matrix of this shape has the coding: GPTQ's and AWQ's columns are
// whole groups, and their rows whole words.
bool CanEncode(const MatrixCoding& coding, int64_t rows, int64_t cols);

// Returns the file's tensors of `matrix`, whose name ends with ".weight" and
// whose shape is [rows, columns], in the order of EncodeMatrix.
std::vector<TensorInfo> TensorsOf(const TensorInfo& matrix,
                                  const MatrixCoding& coding);

// Rounds the elements of a matrix [rows, cols] to the nearest that the coding
// has, and returns the bytes of its tensors, one behind the other. Requires
// CanEncode. GPTQ and AWQ have the smallest scale of F16 with which each
// element of the group is within half a step. INVALID_ARGUMENT for an element
// that is no number, or for which no scale is large enough.
StatusOr<QuantizedElements> EncodeMatrix(const MatrixCoding& coding,
                                         int64_t rows, int64_t cols,
                                         const float* elements,
                                         kernels::Executor* executor = nullptr);

// Returns the code of F8_E4M3 nearest to `value`, ties to even, of a value
// beyond 448 that of 448; not for what is no number.
uint8_t E4m3Of(float value);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_ENCODE_MATRIX_H_
