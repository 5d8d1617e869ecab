#ifndef SLUICE_COMMON_WEIGHTS_MODEL_FILE_H_
#define SLUICE_COMMON_WEIGHTS_MODEL_FILE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  std::string unknown_dtype = {};  // the file's word for kUnknown

  // The type's name for people.
  std::string type_name() const;
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

// What reading bytes that an outline (safetensors_outline.h) does not have
// does.
enum class OutlineReads : uint8_t {
  kRefuse,  // FAILED_PRECONDITION
  // The tensor's beginning again and again, each time turned: weights by which
  // speed can be measured, and no model.
  kRepeat,
};

// Rows [row_begin, row_end) and columns [col_begin, col_end) of a tensor as a
// matrix (see TensorInfo). Columns need not be multiples of a quantised
// format's block, but reads are cheapest if they are.
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

// The part of a model's files that a cluster computes with.
struct ComputedParts {
  std::string config;                    // keys and values, in one order
  std::vector<std::string> tensors;      // by stored name, sorted
  std::vector<std::string> unread_keys;  // that no reader knows, sorted
};

// One opened model: a Hugging Face folder (one safetensors file, or shards with
// an index), a GGUF (one file, or a split set) or a model of distributed-llama.
// Opening reads and checks the headers. Tensor bytes are read on demand, never
// mapped, so a file that is cut short later gives DATA_LOSS and no signal. Any
// thread may call const methods.
class ModelFile {
 public:
  explicit ModelFile(ModelContents contents);  // by OpenModel
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  // The path given to OpenModel.
  const std::string& path() const;
  // The keys and meanings of config.json, for a GGUF made from its metadata:
  // model_type, hidden_size, num_hidden_layers, vocab_size, ...; a GGUF's
  // tensor of RoPE divisors becomes rope_scaling {"rope_type": "divisors",
  // "divisors": [...]}.
  const Json& config() const;
  // generation_config.json; {} if there is none (GGUF).
  const Json& generation_config() const;
  // The GGUF's metadata (tokenizer, chat template); null for other models.
  const GgufMetadata* gguf() const;

  // All stored tensors, sorted by name.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* FindStored(std::string_view name) const;
  // Returns what an index says of a tensor that is in no shard: "the index has
  // it in 'a.safetensors', which is not there"; empty for another tensor.
  std::string WhyAbsent(std::string_view name) const;
  // Matrices that are stored as several tensors, sorted by name.
  const std::vector<ComposedTensor>& composed() const;
  // Returns a matrix or another tensor of the model; null if there is none. All
  // reads by name are of these.
  const TensorInfo* Find(std::string_view name) const;
  // Returns the bytes of all tensors that store `name`; 0 if there are none.
  uint64_t StoredBytes(std::string_view name) const;

  // Reads `slice` of tensor `name` into `out`: slice.elements() values,
  // row-major, packed. Stored types are widened exactly to F32; ReadBf16 rounds
  // wider ones to nearest even and copies BF16 unchanged. llama's q and k rows
  // come in Hugging Face's order for any file. NOT_FOUND for an unknown name,
  // INVALID_ARGUMENT for a slice outside the tensor, DATA_LOSS if the file ends
  // early.
  Status ReadF32(std::string_view name, const Slice& slice, float* out) const;
  Status ReadBf16(std::string_view name, const Slice& slice,
                  uint16_t* out) const;
  // Reads `slice` of a matrix as weights of type `to.type`, into rows [row, row
  // + the slice's) of `to`, which has the slice's columns: F32, BF16, the type
  // of the stored blocks, or blocks that kernels::StoreBlocks makes. Columns
  // begin and end at blocks. Errors as above.
  Status ReadMatrix(std::string_view name, const Slice& slice, int64_t row,
                    HostWeight& to) const;
  // Reads whole rows of a tensor or matrix as they are stored, blocks or
  // elements, in the order of ReadF32. Errors as above.
  Status ReadStoredRows(std::string_view name, const Slice& rows,
                        std::byte* out) const;
  // Reads `size` bytes at `offset` of a stored tensor, in the file's order.
  Status ReadStoredBytes(std::string_view name, uint64_t offset, size_t size,
                         uint8_t* out) const;
  // Returns the first min(limit, all) stored bytes, not checked against sums.
  // `limit` is at most kIdentityBytes.
  StatusOr<std::string> ReadStoredPrefix(std::string_view name,
                                         int64_t limit) const;
  // Returns the path of the tensor's file.
  StatusOr<std::string> FileOf(std::string_view name) const;

  // Returns the path of the checksums of the model's tensors, if there are any
  // (weight_sums.h).
  std::string sums_path() const;
  // Checks every piece of a tensor at its first read from now on: DATA_LOSS
  // names tensor and file of a piece that differs. Requires sums of all
  // tensors, in their order and sizes. Call it before other threads read.
  void CheckAgainst(const WeightSums& sums);
  // DigestOf the sums that reads are checked against; "" without sums.
  const std::string& sums_digest() const { return sums_digest_; }

  // Sets the part of the files that the model's identity covers: without it,
  // all. Call it before other threads read.
  void SetComputed(ComputedParts parts) { computed_ = std::move(parts); }
  const std::optional<ComputedParts>& computed() const { return computed_; }

  // Sets what becomes of reads beyond outlines; kRefuse is the default. Call it
  // before other threads read.
  void SetOutlineReads(OutlineReads reads) { outlines_ = reads; }

  // Bytes of tensor data read so far, by all threads.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  const ComposedTensor* FindComposed(std::string_view name) const;
  template <typename Out>
  Status Read(std::string_view name, const Slice& slice, Out* out) const;
  Status ReadComposedAs(const ComposedTensor& composed, const Slice& slice,
                        DType as, std::byte* out) const;
  // Returns null for a tensor without sums.
  const PieceSums* SumsOf(const LocatedTensor& tensor) const;

  const std::unique_ptr<const ModelContents> contents_;
  std::vector<TensorInfo> infos_;
  std::vector<PieceSums> sums_;  // of every tensor, or none
  std::string sums_digest_;
  OutlineReads outlines_ = OutlineReads::kRefuse;
  std::optional<ComputedParts> computed_;
  mutable std::atomic<uint64_t> bytes_read_ = 0;
};

// Gives an opened GGUF its config and its tensors the model's names, by its
// family (common/model_config/open_model.h). Of a model of distributed-llama it
// makes the list of tensors, too.
using GgufTranslator = std::function<Status(ModelContents& contents)>;

// Opens `path`: a model folder, a .gguf file (of a split set: its first file),
// a .m file of distributed-llama, a folder with one such model and no
// config.json, or a lone .safetensors file (its config() is {}). Every header
// byte is untrusted: INVALID_ARGUMENT names file, tensor, limit and value;
// NOT_FOUND names a missing file. Without a translator a GGUF has its tensors'
// own names and no config, and a .m file no tensors.
StatusOr<std::unique_ptr<ModelFile>> OpenModel(
    const std::string& path, const GgufTranslator& translate = {});

// The bytes of every tensor that identity looks at.
inline constexpr int64_t kIdentityBytes = 4096;

// A digest that tells two models apart at the handshake.
struct ModelDigest {
  std::array<uint8_t, 32> bytes{};
  std::string Hex() const;
  bool operator==(const ModelDigest&) const = default;
};

// SHA-256 over the config's keys and tensors that the model computes with
// (ModelFile::computed), of each tensor its name, dtype, shape and first 4 KiB
// of stored bytes.
StatusOr<ModelDigest> ComputeIdentity(const ModelFile& model);
// The same over all of the config and all tensors: the identity of earlier
// versions, which lists of sums may have.
StatusOr<ModelDigest> WholeIdentity(const ModelFile& model);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_MODEL_FILE_H_
