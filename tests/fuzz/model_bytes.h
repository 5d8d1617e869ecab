#ifndef SLUICE_TESTS_FUZZ_MODEL_BYTES_H_
#define SLUICE_TESTS_FUZZ_MODEL_BYTES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/model_file.h"

namespace sluice::fuzz {

// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size)
      : fd_(::memfd_create("model", 0)) {
    SLUICE_CHECK(fd_ >= 0);
    SLUICE_CHECK(::write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return Cat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

// Does to an opened model what a stage does: its identity, its config, its
// tensors. Whatever the file says, none of it may crash.
inline void Exercise(const weights::ModelFile& model) {
  (void)weights::ComputeIdentity(model);
  const auto config = ParseModelConfig(model.config());
  if (config.ok()) (void)CheckTensors(*config, model);
  std::vector<float> values;
  std::vector<weights::TensorInfo> all = model.tensors();
  for (const weights::ComposedTensor& matrix : model.composed()) {
    all.push_back(matrix.info);
  }
  for (const weights::TensorInfo& info : all) {
    values.resize(static_cast<size_t>(info.elements()));
    (void)model.ReadF32(info.name, weights::Slice::All(info), values.data());
    const weights::Slice corner = {info.rows() / 2, info.rows(),
                                   info.cols() / 3, info.cols()};
    (void)model.ReadF32(info.name, corner, values.data());
  }
}

}  // namespace sluice::fuzz

#endif  // SLUICE_TESTS_FUZZ_MODEL_BYTES_H_
