#ifndef SLUICE_COMMON_WEIGHTS_GGUF_WRITER_H_
#define SLUICE_COMMON_WEIGHTS_GGUF_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_file.h"

namespace sluice::weights {

// Writes one GGUF file of version 3: metadata and the list of tensors first,
// then the tensors' bytes in the list's order. Used by one thread.
class GgufWriter {
 public:
  // Aligns tensors to the metadata's general.alignment, else to 32 bytes.
  // INVALID_ARGUMENT for a tensor of a type that GGUF has no id for,
  // UNAVAILABLE names the file where it cannot be written.
  static StatusOr<std::unique_ptr<GgufWriter>> Create(
      const std::string& path, const GgufMetadata& metadata,
      const std::vector<TensorInfo>& tensors);

  // Writes the next bytes of the next tensor, none of the one behind it.
  Status Append(const void* bytes, size_t size);
  // Requires that all bytes of all tensors were appended.
  Status Close();

 private:
  explicit GgufWriter(std::string path);
  // Writes zeros up to the next multiple of the alignment.
  Status Pad();

  const std::string path_;
  std::ofstream out_;
  uint64_t alignment_ = 32;
  uint64_t position_ = 0;
  std::vector<uint64_t> missing_;  // bytes, by tensor
  size_t next_ = 0;                // tensor
};

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_GGUF_WRITER_H_
