#ifndef SLUICE_COMMON_HTTP_SHA256_H_
#define SLUICE_COMMON_HTTP_SHA256_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice::http {

// Returns the SHA-256 of `text`. Any thread.
std::array<uint8_t, 32> Sha256(std::string_view text);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_SHA256_H_
