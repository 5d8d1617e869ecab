// Checksums of a model's tensors, read from a file beside it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/weights/weight_sums.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto sums = sluice::weights::ParseWeightSums(text);
  if (!sums.ok()) return 0;
  const auto again =
      sluice::weights::ParseWeightSums(sluice::weights::ToText(*sums));
  if (!again.ok() || *again != *sums) std::abort();
  return 0;
}
