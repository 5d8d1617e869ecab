#ifndef SLUICE_COMMON_TOOLS_CONVERT_CONVERT_MODEL_H_
#define SLUICE_COMMON_TOOLS_CONVERT_CONVERT_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/dtype.h"
#include "common/weights/encode_matrix.h"
#include "common/weights/importance.h"

namespace sluice {

// Matrices whose name the regular expression finds become of the type.
struct ConvertRule {
  std::string pattern;
  weights::DType type = weights::DType::kBF16;
};

struct ConvertOptions {
  // A folder of safetensors, a GGUF, or a .m of distributed-llama.
  std::string model;
  std::string out;  // is not there; a folder, NAME.gguf or NAME.m
  // Of the layers' matrices that no rule finds; none: as they are stored.
  std::optional<weights::DType> type = weights::DType::kQ4_0;
  // The first that finds a name counts. Names are those of safetensors; only
  // rules reach the embedding and the head.
  std::vector<ConvertRule> rules;
  uint64_t shard_bytes = uint64_t{4} << 30;  // aim of one file of a folder
  int threads = 0;  // that quantise; 0: one for each CPU
  // Of the columns of matrices that become blocks.
  weights::Importance importance;
  // tokenizer.ggml.pre of a folder's GGUF; empty: found by the tokenizer.
  std::string pre_tokenizer;
  // In the place of `type`: the layers' matrices of a folder that no rule finds
  // become codes and scales. Rules then say BF16 alone.
  weights::Coding coding = weights::Coding::kNone;
  // Columns with one scale, of GPTQ and AWQ; 0: the most of 128, 64 and 32 of
  // which all matrices' columns are multiples.
  int64_t group = 0;
};

// A matrix as it was written.
struct ConvertedMatrix {
  std::string name;
  weights::DType type = weights::DType::kBF16;  // unless it is coded
  uint64_t bytes = 0;
  // Length of the difference from the source's elements over their length.
  double relative_error = 0;
  weights::Coding coding = weights::Coding::kNone;

  bool is_quantised() const {
    return coding != weights::Coding::kNone ||
           weights::BlocksOf(type).has_value();
  }
  std::string_view type_name() const {
    return coding != weights::Coding::kNone ? ToString(coding) : ToString(type);
  }
};

struct ConvertReport {
  std::vector<ConvertedMatrix> matrices;
  uint64_t bytes_before = 0;  // of all tensors
  uint64_t bytes_after = 0;
  int num_files = 0;
};

// Called with the bytes written and those to write.
using ConvertProgress = std::function<void(uint64_t done, uint64_t total)>;

// Writes the model with its matrices in the types of the options, others with
// their bytes. Rows that are no whole blocks become BF16. Holds one matrix at a
// time. Writes to OUT.partial, which appears as OUT when all of it is written,
// with checksums and a report; the next run replaces what a failure leaves.
//
// A folder of safetensors becomes a folder: BF16, or blocks of any type. Q4_0
// and Q8_0 have the layout that compressed-tensors calls pack-quantized, one
// scale of F16 per 32 columns, others that of common/weights/block_tensor.h,
// which Sluice alone reads; experts that are stacked in one tensor stay MXFP4
// or become BF16; the tokenizer and the templates are copied. With a coding the
// folder is FP8's, GPTQ's or AWQ's as they are released, each element rounded
// to the nearest: embeddings, norms, routers and the head stay as they are, as
// do, in BF16, matrices without whole groups. A GGUF becomes such a folder,
// with its tokenizer, templates and stop ids; so does a .m. Its blocks stay as
// they are stored where no type is asked for. Experts become tensors of their
// own, gpt-oss' as its checkpoints have them where their types are all plain or
// all MXFP4.
//
// A GGUF becomes a GGUF of one file, with the source's metadata: F32, BF16 or
// blocks of any type. So does a folder or a .m: names, keys,
// tokenizer and order of rows are those of llama.cpp's converter. Experts
// become one tensor of three dimensions, of MXFP4 if they are unless a rule
// says another type. Norms, biases and routers become F32. Layers behind the
// last are left out.
//
// A llama, a qwen3 or a qwen3_moe becomes a .m, with NAME.t, its tokenizer,
// beside it: all matrices of one type, F32, Q4_0 or Q8_0, embedding, router and
// vectors of F32. The head is written where it is the embedding's, too.
//
// INVALID_ARGUMENT for an unknown model, a type or coding that OUT cannot have,
// a group of which a matrix has no whole number, a folder
// without a type that shall become a folder, and an `out` that is there;
// UNIMPLEMENTED for what no key of a GGUF or of a .m tells, and for experts in
// one tensor that shall be coded; RESOURCE_EXHAUSTED for a disk without the
// room.
StatusOr<ConvertReport> ConvertModel(const ConvertOptions& options,
                                     const ConvertProgress& progress);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_CONVERT_CONVERT_MODEL_H_
