#ifndef SLUICE_COMMON_BASE_BYTE_SIZE_H_
#define SLUICE_COMMON_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice {

// A positive number of bytes; K, M, G or T behind it are powers of 1024.
// INVALID_ARGUMENT for anything else and for 2^62 and more.
StatusOr<uint64_t> ParseBytes(std::string_view text);

// The sizes of a list with commas between them; none for an empty text. Errors
// as ParseBytes.
StatusOr<std::vector<uint64_t>> ParseBytesList(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_BYTE_SIZE_H_
