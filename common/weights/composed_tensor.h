#ifndef SLUICE_COMMON_WEIGHTS_COMPOSED_TENSOR_H_
#define SLUICE_COMMON_WEIGHTS_COMPOSED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/weights/model_file.h"

namespace sluice::weights {

struct ModelContents;

inline constexpr int64_t kWordBits = 32;

// How the codes of a matrix [R, C] lie in their tensor; a word of kWordBits has
// n codes, the first one lowest.
enum class CodeLayout : uint8_t {
  kMxfp4,   // U8 [R, C / 32, 16] or [R, C / 2]: element 2j low in byte j
  kGptq,    // I32 [C / n, R]: n columns of a row in a word
  kAwq,     // I32 [C, R / n]: n rows of a column in a word, in AWQ's order
  kPacked,  // I32 [R, C / n]: n columns of a row in a word
  kInt8,    // I8 [R, C]
  kE4m3,    // F8_E4M3 [R, C]
  kNvfp4,   // U8 [R, C / 2]: element 2j low in byte j, of MXFP4's values
  kTiled,   // the matrix itself, with the heads of its columns tiled
};

// A matrix that a checkpoint keeps in several tensors: gpt-oss' MXFP4, GPTQ,
// AWQ, compressed-tensors, FP8 and NVFP4 with scales. An element is
// (code - zero point) * scale. A GGUF's matrix of kTiled is one tensor, its
// blocks are kept where the columns of a head are whole ones.
struct ComposedTensor {
  // The name of the matrix, its shape [.., C] and what its elements are, all of
  // them exactly: blocks where a run of 32 columns has one scale of 16 bits and
  // codes of a block's range (Q4_0, Q5_0, Q8_0, MXFP4), scaled E4M3 where the
  // run, or one of 128 columns, has one scale, else F32.
  TensorInfo info;
  CodeLayout layout = CodeLayout::kInt8;
  int32_t bits = 8;  // of a code
  // Rows and columns that have one scale and one zero point.
  int64_t scale_rows = 1;
  int64_t scale_cols = 1;
  bool zeros_less_one = false;  // GPTQ's first version stores them so
  // NVFP4: one number of the matrix by which each scale is multiplied, or
  // divided.
  std::string global;
  bool global_divides = false;
  // kTiled: groups of heads (TiledHeads), and columns of a head.
  int64_t head_groups = 0;
  int64_t head_cols = 0;
  // Tensors of the file; empty: none. `groups` tells each column's group.
  std::string codes, scales, zeros, groups;
  std::vector<std::string> unread;  // belong to the matrix, say nothing more

  std::vector<std::string> parts() const;
};

// Finds the matrices among the sorted tensors of a safetensors model, by the
// tensors' names and config.json's quantization_config, and appends them to
// contents.composed, sorted by name. INVALID_ARGUMENT names the tensor and what
// is wrong: a method, a version, bits or shapes that no matrix has.
Status ComposeTensors(ModelContents& contents);

// Reads `slice` of the matrix as `as`, which is its own dtype, F32 or BF16, or
// kScaledE4M3 of kWideE4M3, into packed rows. Columns of blocks begin and end
// at blocks. An element is rounded once to F32, and then to BF16.
// INVALID_ARGUMENT for a scale that the blocks cannot hold.
Status ReadComposed(const ModelFile& model, const ComposedTensor& tensor,
                    const Slice& slice, DType as, std::byte* out);

// The part of ReadComposed for matrices of kTiled.
Status ReadTiled(const ModelFile& model, const ComposedTensor& tensor,
                 const Slice& slice, DType as, std::byte* out);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_COMPOSED_TENSOR_H_
