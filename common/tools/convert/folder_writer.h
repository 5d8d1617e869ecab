#ifndef SLUICE_COMMON_TOOLS_CONVERT_FOLDER_WRITER_H_
#define SLUICE_COMMON_TOOLS_CONVERT_FOLDER_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/encode_matrix.h"
#include "common/weights/model_file.h"
#include "common/weights/safetensors_writer.h"

namespace sluice {

// A tensor of the model and how a folder's safetensors have it.
struct FolderTensor {
  weights::TensorInfo info;  // the model's name and shape, the written type
  bool is_matrix = false;    // is named in the report
  // Of a matrix that is appended in a coding; `info` has the type that its
  // elements have before they are coded.
  weights::MatrixCoding coding = {};

  bool is_coded() const { return coding.coding != weights::Coding::kNone; }
  // The file's tensors. A matrix of Q4_0 or Q8_0 is compressed-tensors' words,
  // scales and shape; stacked MXFP4 is gpt-oss' blocks and scales; other blocks
  // are bytes (common/weights/block_tensor.h).
  std::vector<weights::TensorInfo> stored() const;
  uint64_t bytes() const;
};

// Gives the tensors that shall be coded their group: the options', or the most
// columns that all of them have whole groups of. Others become BF16.
// INVALID_ARGUMENT for the options' group that does not fit, and where nothing
// is coded; UNIMPLEMENTED for a tensor of several matrices.
Status ChooseCodings(const ConvertOptions& options,
                     std::vector<FolderTensor>& tensors);

// Returns what config.json's quantization_config says of a folder whose
// matrices have the options' coding.
Json CodedQuantisation(const ConvertOptions& options,
                       const std::vector<FolderTensor>& tensors);

// Writes a folder of sharded safetensors to OUT.partial, tensor by tensor, and
// gives it its name at the end. Used by one thread.
class FolderWriter {
 public:
  // Both must outlive the writer.
  FolderWriter(const ConvertOptions& options, const ConvertProgress& progress);

  // Where the other files go.
  const std::string& folder() const { return folder_; }

  // Makes the folder. Tensors that shall be coded get the group that fits all,
  // and those without whole groups become BF16 (ChooseCodings).
  // RESOURCE_EXHAUSTED if the disk lacks the room.
  Status Start(std::vector<FolderTensor> tensors, uint64_t bytes_before);
  // Appends all elements of a tensor and returns its relative error.
  using Fill =
      std::function<StatusOr<double>(const FolderTensor& tensor, size_t index)>;
  // Calls `fill` for each tensor in its place.
  Status Write(const Fill& fill);
  // The next elements of the tensor that is filled, whole blocks, or bytes of
  // EncodeMatrix.
  Status Append(const void* bytes, size_t size);
  // Writes config.json with what its quantization_config says.
  Status WriteConfig(Json config) const;
  // Writes report and checksums and gives the folder its name.
  StatusOr<ConvertReport> Finish();

 private:
  std::string ShardName(size_t shard) const;
  Status WriteTensor(size_t index, const Fill& fill);
  Status AppendBlocks(const uint8_t* blocks, int64_t count);
  Status Put(const void* bytes, size_t size);
  Json Quantisation() const;

  const ConvertOptions& options_;
  const ConvertProgress& progress_;
  const std::string folder_;
  std::vector<FolderTensor> tensors_;
  std::vector<size_t> shards_;  // their first tensors
  std::unique_ptr<weights::SafetensorsWriter> shard_;
  const FolderTensor* filled_ = nullptr;
  std::string scales_;  // of `filled_`, written behind its codes
  uint64_t done_ = 0;
  ConvertReport report_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_CONVERT_FOLDER_WRITER_H_
