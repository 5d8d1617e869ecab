#include "common/weights/block_tensor.h"

#include <algorithm>
#include <limits>
#include <string>

#include "common/weights/extent.h"
#include "common/weights/file.h"

namespace sluice::weights {
namespace {

// "_q4_k".
std::string SuffixOf(DType type) {
  std::string suffix = Cat("_", type);
  for (char& c : suffix) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return suffix;
}

}  // namespace

TensorInfo BytesOfBlocks(const TensorInfo& blocks) {
  const BlockSize size = BlockSizeOf(blocks.dtype);
  TensorInfo stored = {blocks.name + SuffixOf(blocks.dtype), DType::kU8,
                       blocks.shape};
  stored.shape.back() = stored.shape.back() / size.elements * size.bytes;
  return stored;
}

StatusOr<TensorInfo> BlocksOfBytes(const TensorInfo& stored) {
  if (stored.dtype != DType::kU8 || stored.shape.size() < 2) return stored;
  for (int i = 0; i < kernels::kNumBlockFormats; ++i) {
    const auto type = static_cast<DType>(static_cast<int>(DType::kQ8_0) + i);
    const std::string suffix = SuffixOf(type);
    if (!stored.name.ends_with(suffix)) continue;
    const BlockSize size = BlockSizeOf(type);
    const int64_t bytes = stored.shape.back();
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if (bytes % size.bytes != 0 || bytes / size.bytes > kMost / size.elements) {
      return InvalidArgument("tensor ", Quoted(stored.name), " has rows of ",
                             bytes, " bytes, expected a multiple of the ",
                             size.bytes, " of a block of ", type);
    }
    TensorInfo blocks = {
        stored.name.substr(0, stored.name.size() - suffix.size()), type,
        stored.shape};
    blocks.shape.back() = bytes / size.bytes * size.elements;
    const auto counted = CountElements(blocks.shape);
    if (!counted.ok()) {
      return Annotate(counted.status(), "tensor ", Quoted(stored.name));
    }
    return blocks;
  }
  return stored;
}

}  // namespace sluice::weights
