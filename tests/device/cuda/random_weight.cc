#include "tests/device/cuda/random_weight.h"

#include <cstring>

#include "common/base/check.h"
#include "common/tensor/weight_format.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::testing {

using kernels::WeightType;

HostWeight RandomWeight(WeightType type, uint64_t seed, int64_t rows,
                        int64_t cols) {
  HostWeight weight(type, rows, cols);
  auto* const to = weight.data.as<uint8_t>();
  const int64_t n = rows * cols;
  if (!FormatOf(type).is_plain()) {
    const auto bytes =
        kernels::RandomBlockRows(BlockFormatOf(type), seed, rows, cols);
    SLUICE_CHECK(bytes.size() == weight.data.size());
    std::memcpy(to, bytes.data(), bytes.size());
    return weight;
  }
  const auto values = kernels::RandomBf16(seed, n, 0.2f);
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof(bits));
    if (type == WeightType::kF32) {
      std::memcpy(to + 4 * i, &bits, 4);
    } else if (type == WeightType::kBf16) {
      const auto upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(to + 2 * i, &upper, 2);
    } else {
      const WeightFormat& format = FormatOf(type);
      const int64_t run = i / format.block_elements;
      uint8_t* const at = to + run * format.block_bytes;
      const float scale = 1.0f + 0.25f * static_cast<float>(run % 5);
      std::memcpy(at, &scale, 4);
      const auto code = static_cast<uint8_t>((i * 89 + seed) & 255);
      at[4 + i % format.block_elements] = (code & 0x7F) == 0x7F ? 0 : code;
    }
  }
  return weight;
}

}  // namespace sluice::testing
