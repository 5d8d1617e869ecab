#ifndef SLUICE_COMMON_WEIGHTS_MODEL_FILE_H_
#define SLUICE_COMMON_WEIGHTS_MODEL_FILE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/tensor/host_weight.h"
#include "common/weights/dtype.h"

namespace sluice::weights {

class GgufMetadata;
struct ComposedTensor;
struct LocatedTensor;
struct ModelContents;
struct PieceSums;
struct WeightSums;

// A tensor by the model's own (Hugging Face) name. Dimensions are slowest
// first: a linear layer's weight is [out, in].
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  // The tensor as a matrix: columns are the last dimension, rows all the
  // others. A vector [n] is one row of n columns.
  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;
  int64_t elements() const { return rows() * cols(); }
  int64_t stored_bytes() const;
  bool operator==(const TensorInfo&) const = default;
};

// "[32, 64]".
std::string ShapeToString(const std::vector<int64_t>& shape);

// Rows [row_begin, row_end) and columns [col_begin, col_end) of a tensor
// taken as a matrix (see TensorInfo). Columns need not be multiples of a
// quantised format's block, but reading is cheapest where they are.
struct Slice {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t col_begin = 0;
  int64_t col_end = 0;

  static Slice All(const TensorInfo& tensor) {
    return {0, tensor.rows(), 0, tensor.cols()};
  }
  static Slice Rows(const TensorInfo& tensor, int64_t begin, int64_t end) {
    return {begin, end, 0, tensor.cols()};
  }
  static Slice Cols(const TensorInfo& tensor, int64_t begin, int64_t end) {
    return {0, tensor.rows(), begin, end};
  }
  int64_t elements() const {
    return (row_end - row_begin) * (col_end - col_begin);
  }
  bool operator==(const Slice&) const = default;
};

// One opened model: a Hugging Face folder (one safetensors file, or shards
// with an index) or a GGUF (one file, or a split set). Headers are read and
// checked when it is opened; tensor bytes are read, never mapped, when asked
// for, so a file that is cut short later gives DATA_LOSS and no signal.
// Const methods may be called from any thread at once.
class ModelFile {
 public:
  explicit ModelFile(ModelContents contents);  // by OpenModel
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  // What was given to OpenModel.
  const std::string& path() const;
  // Keys and meanings of config.json. Of a GGUF they are made from its
  // metadata: model_type, hidden_size, num_hidden_layers, vocab_size, ...;
  // its tensor of RoPE divisors stands as
  // rope_scaling {"rope_type": "divisors", "divisors": [...]}.
  const Json& config() const;
  // generation_config.json; {} if there is none (GGUF).
  const Json& generation_config() const;
  // The GGUF's metadata (tokenizer, chat template); null for a folder.
  const GgufMetadata* gguf() const;

  // All tensors that are stored, sorted by name.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* FindStored(std::string_view name) const;
  // Matrices that are stored as several tensors, sorted by name.
  const std::vector<ComposedTensor>& composed() const;
  // Of a matrix or another tensor of the model; null if there is none. Reading
  // by name means these.
  const TensorInfo* Find(std::string_view name) const;
  // Of all tensors that store `name`; 0 if there are none.
  uint64_t StoredBytes(std::string_view name) const;

  // Reads `slice` of tensor `name` into `out`: slice.elements() values,
  // row-major, packed. Stored types are widened exactly to F32; ReadBf16
  // rounds wider ones to nearest even and copies BF16 as it is. llama's q and
  // k rows come in Hugging Face's order whatever the file's. NOT_FOUND for an
  // unknown name, INVALID_ARGUMENT for a slice outside the tensor, DATA_LOSS
  // if the file ends early.
  Status ReadF32(std::string_view name, const Slice& slice, float* out) const;
  Status ReadBf16(std::string_view name, const Slice& slice,
                  uint16_t* out) const;
  // Reads `slice` of a matrix as weights of type `to.type`, into rows [row, row
  // + the slice's) of `to`, which has the slice's columns: F32, BF16, the type
  // of the stored blocks, or blocks that kernels::StoreBlocks makes. Columns
  // begin and end at blocks. Errors as above.
  Status ReadMatrix(std::string_view name, const Slice& slice, int64_t row,
                    HostWeight& to) const;
  // `size` bytes at `offset` of a stored tensor, as they are stored and in the
  // file's order.
  Status ReadStoredBytes(std::string_view name, uint64_t offset, size_t size,
                         uint8_t* out) const;
  // The first min(limit, all) of them, not checked against sums.
  StatusOr<std::string> ReadStoredPrefix(std::string_view name,
                                         int64_t limit) const;
  // Path of the file that has the tensor.
  StatusOr<std::string> FileOf(std::string_view name) const;

  // The path of the checksums of the model's tensors, if there are any
  // (weight_sums.h).
  std::string sums_path() const;
  // Checks every piece of a tensor at its first read from now on: DATA_LOSS,
  // naming tensor and file, for a piece that differs. Requires sums of all
  // tensors, in their order and sizes. Call it before other threads read.
  void CheckAgainst(const WeightSums& sums);

  // Bytes of tensor data read so far, by all threads.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  const ComposedTensor* FindComposed(std::string_view name) const;
  template <typename Out>
  Status Read(std::string_view name, const Slice& slice, Out* out) const;
  // Of a tensor of contents_; null: none.
  const PieceSums* SumsOf(const LocatedTensor& tensor) const;

  const std::unique_ptr<const ModelContents> contents_;
  std::vector<TensorInfo> infos_;
  std::vector<PieceSums> sums_;  // of every tensor, or none
  mutable std::atomic<uint64_t> bytes_read_ = 0;
};

// Gives an opened GGUF its config and its tensors the model's names, which are
// the family's business (common/model_config/open_model.h).
using GgufTranslator = std::function<Status(ModelContents& contents)>;

// Opens `path`: a model folder, a .gguf file (of a split set: its first
// file), a folder that holds one GGUF model and no config.json, or a lone
// .safetensors file (its config() is {}). Every
// header byte is untrusted: INVALID_ARGUMENT names file, tensor, limit and
// value; NOT_FOUND names a missing file. Without a translator a GGUF has its
// tensors' own names and no config.
StatusOr<std::unique_ptr<ModelFile>> OpenModel(
    const std::string& path, const GgufTranslator& translate = {});

// What tells two models apart, compared at the handshake.
struct ModelDigest {
  std::array<uint8_t, 32> bytes{};
  std::string Hex() const;
  bool operator==(const ModelDigest&) const = default;
};

// SHA-256 over the config (keys sorted) and every tensor's name, dtype,
// shape and first 4 KiB of stored bytes.
StatusOr<ModelDigest> ComputeIdentity(const ModelFile& model);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_MODEL_FILE_H_
