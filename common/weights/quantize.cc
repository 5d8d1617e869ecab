#include "common/weights/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/weights/dequantize.h"
#include "kernels/block_store.h"

namespace sluice::weights {
namespace {

double RelativeError(const float* from, const float* to, int64_t count) {
  double difference = 0;
  double length = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double a = from[i];
    difference += (a - to[i]) * (a - to[i]);
    length += a * a;
  }
  return length > 0 ? std::sqrt(difference / length) : 0;
}

}  // namespace

bool CanQuantize(DType dtype) {
  const auto format = BlocksOf(dtype);
  return dtype == DType::kF32 || dtype == DType::kBF16 ||
         (format.has_value() && kernels::CanStore(*format));
}

QuantizedElements Quantize(DType dtype, const float* elements, int64_t count) {
  SLUICE_CHECK(CanQuantize(dtype));
  const BlockSize block = BlockSizeOf(dtype);
  SLUICE_CHECK(count % block.elements == 0);
  const int64_t blocks = count / block.elements;
  QuantizedElements made;
  made.bytes = Buffer(static_cast<size_t>(blocks * block.bytes));
  if (dtype == DType::kF32) {
    std::memcpy(made.bytes.data(), elements, made.bytes.size());
    return made;
  }
  if (dtype == DType::kBF16) {
    std::transform(elements, elements + count, made.bytes.as<uint16_t>(),
                   F32ToBf16);
  } else {
    kernels::StoreBlocks(*BlocksOf(dtype), elements, blocks,
                         made.bytes.as<uint8_t>());
  }
  Buffer back(sizeof(float) * static_cast<size_t>(count));
  DequantizeToF32(dtype, made.bytes.as<uint8_t>(), blocks, back.as<float>());
  made.relative_error = RelativeError(elements, back.as<float>(), count);
  return made;
}

}  // namespace sluice::weights
