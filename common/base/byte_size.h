#ifndef SLUICE_COMMON_BASE_BYTE_SIZE_H_
#define SLUICE_COMMON_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice {

// Parses a positive number of bytes, with K, M, G or T for powers of 1024.
// INVALID_ARGUMENT for other text and for 2^62 and more.
StatusOr<uint64_t> ParseBytes(std::string_view text);

// Parses a list of sizes with commas between them; empty for an empty text.
// Errors as ParseBytes.
StatusOr<std::vector<uint64_t>> ParseBytesList(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_BYTE_SIZE_H_
