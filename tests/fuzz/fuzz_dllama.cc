// Any bytes as a model of distributed-llama: refused, or a model that can be
// read; and as a tokenizer.
#include "common/model_config/open_model.h"
#include "common/text/vocabulary_formats.h"
#include "tests/fuzz/model_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (sluice::FromDllama(bytes).ok()) {
    SLUICE_CHECK(sluice::ChatTemplateOfDllama(bytes).ok());
    return 0;
  }
  const sluice::fuzz::MemoryFile file(data, size);
  const auto model = sluice::OpenModel(file.path());
  if (model.ok()) sluice::fuzz::Exercise(**model);
  return 0;
}
