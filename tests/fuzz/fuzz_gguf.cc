// Any bytes as a GGUF file: refused, or a model that can be read.
#include "common/model_config/open_model.h"
#include "tests/fuzz/model_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sluice::fuzz::MemoryFile file(data, size);
  const auto model = sluice::OpenModel(file.path());
  if (model.ok()) sluice::fuzz::Exercise(**model);
  return 0;
}
