#ifndef SLUICE_COMMON_WEIGHTS_SAFETENSORS_OUTLINE_H_
#define SLUICE_COMMON_WEIGHTS_SAFETENSORS_OUTLINE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice::weights {

// A shard's outline stands in its place where its tensors are not needed:
// SHARD.outline has the shard's header and, in the order of their bytes, the
// first kIdentityBytes of each tensor, vectors whole. So identity, byte counts
// and composed matrices are the same as with the shard. A tensor's other bytes
// cannot be read.
inline constexpr char kOutlineSuffix[] = ".outline";

// A run of bytes of a shard.
struct ShardBytes {
  uint64_t begin = 0;
  uint64_t size = 0;
};

// Returns the bytes behind the header that an outline has, in order. `header`:
// the text between the length and the data; `name` is for messages.
// INVALID_ARGUMENT for a header that is none, or says another size than
// `file_bytes`.
StatusOr<std::vector<ShardBytes>> OutlineOf(const std::string& name,
                                            const std::string& header,
                                            uint64_t file_bytes);

// The longest header that is read.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_SAFETENSORS_OUTLINE_H_
