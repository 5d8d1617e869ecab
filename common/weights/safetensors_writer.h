#ifndef SLUICE_COMMON_WEIGHTS_SAFETENSORS_WRITER_H_
#define SLUICE_COMMON_WEIGHTS_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/weights/model_file.h"

namespace sluice::weights {

// Writes one safetensors file: the header first, then the tensors' bytes in
// the order of the header. Used by one thread.
class SafetensorsWriter {
 public:
  // UNAVAILABLE names the file where it cannot be written.
  static StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<TensorInfo>& tensors);

  // The next bytes, of whichever tensor they are.
  Status Append(const void* bytes, size_t size);
  // Requires that all bytes of the header's tensors were appended.
  Status Close();

 private:
  explicit SafetensorsWriter(std::string path);
  Status Check();

  const std::string path_;
  std::ofstream out_;
  uint64_t missing_ = 0;  // bytes
};

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_SAFETENSORS_WRITER_H_
