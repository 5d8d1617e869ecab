#include "common/weights/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/weights/dequantize.h"
#include "kernels/block_fit.h"
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

constexpr int64_t kTaskElements = int64_t{1} << 16;

// Stores blocks of F32 elements, some at a time.
void StoreAll(DType dtype, const float* elements, int64_t blocks,
              const QuantizeOptions& options, uint8_t* stored) {
  const BlockSize block = BlockSizeOf(dtype);
  const kernels::BlockFormat format = *BlocksOf(dtype);
  const bool is_fitted =
      !options.importance.empty() || !kernels::CanStore(format);
  const auto cols = static_cast<int64_t>(options.importance.size());
  const int64_t run = std::max<int64_t>(kTaskElements / block.elements, 1);
  const int64_t in_row = cols / block.elements;
  const auto store = [&](int64_t first, int64_t count) {
    const float* x = elements + first * block.elements;
    uint8_t* to = stored + first * block.bytes;
    if (!is_fitted) return kernels::StoreBlocks(format, x, count, to);
    if (cols == 0) return kernels::FitBlocks(format, x, nullptr, count, to);
    for (int64_t b = 0; b < count; ++b) {
      const int64_t col = (first + b) % in_row * block.elements;
      kernels::FitBlocks(format, x + b * block.elements,
                         options.importance.data() + col, 1,
                         to + b * block.bytes);
    }
  };
  kernels::ParallelFor(
      {options.executor}, static_cast<int>((blocks + run - 1) / run),
      [&](int i) { store(i * run, std::min(run, blocks - i * run)); });
}

// INVALID_ARGUMENT for an element that is no number.
Status CheckFinite(const float* elements, int64_t count) {
  const float* bad = std::find_if(elements, elements + count,
                                  [](float v) { return !std::isfinite(v); });
  if (bad == elements + count) return OkStatus();
  return InvalidArgument("element ", bad - elements, " of ", count, " is ",
                         *bad);
}

}  // namespace

bool CanQuantize(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 ||
         BlocksOf(dtype).has_value();
}

StatusOr<QuantizedElements> Quantize(DType dtype, const float* elements,
                                     int64_t count,
                                     const QuantizeOptions& options) {
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
    const auto cols = static_cast<int64_t>(options.importance.size());
    SLUICE_CHECK(cols == 0 ||
                 (cols % block.elements == 0 && count % cols == 0));
    if (cols > 0 || !kernels::CanStore(*BlocksOf(dtype))) {
      SLUICE_RETURN_IF_ERROR(CheckFinite(elements, count));
    }
    StoreAll(dtype, elements, blocks, options, made.bytes.as<uint8_t>());
  }
  Buffer back(sizeof(float) * static_cast<size_t>(count));
  DequantizeToF32(dtype, made.bytes.as<uint8_t>(), blocks, back.as<float>());
  made.relative_error = RelativeError(elements, back.as<float>(), count);
  return made;
}

}  // namespace sluice::weights
