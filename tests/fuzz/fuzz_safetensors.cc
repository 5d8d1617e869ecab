// Any bytes as a safetensors file: refused, or a model that can be read. The
// header's length is put right, or no mutation would get past it; the bytes
// after the first NUL are the data.
#include <algorithm>
#include <cstring>

#include "common/weights/model_contents.h"
#include "tests/fuzz/model_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint64_t header =
      static_cast<uint64_t>(std::find(data, data + size, 0) - data);
  std::vector<uint8_t> bytes(sizeof(header) + size);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::copy(data, data + size, bytes.begin() + sizeof(header));
  const sluice::fuzz::MemoryFile memory(bytes.data(), bytes.size());
  auto file = sluice::weights::RandomAccessFile::Open(memory.path());
  SLUICE_CHECK(file.ok());
  auto tensors = sluice::weights::ReadSafetensorsHeader(**file);
  if (!tensors.ok()) return 0;
  sluice::weights::ModelContents contents;
  contents.tensors = *std::move(tensors);
  std::sort(
      contents.tensors.begin(), contents.tensors.end(),
      [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  contents.files.push_back(*std::move(file));
  sluice::fuzz::Exercise(sluice::weights::ModelFile(std::move(contents)));
  return 0;
}
