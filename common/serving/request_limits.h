#ifndef SLUICE_COMMON_SERVING_REQUEST_LIMITS_H_
#define SLUICE_COMMON_SERVING_REQUEST_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace sluice::serving {

// Limits of one request, in any dialect.
inline constexpr size_t kMaxMessages = 4096;
inline constexpr size_t kMaxContentParts = 1024;
inline constexpr size_t kMaxTools = 512;
inline constexpr size_t kMaxToolNameBytes = 128;
inline constexpr size_t kMaxToolCalls = 512;  // per message
// Of a message's name, a call's id and function, and a result's call id.
inline constexpr size_t kMaxNameBytes = 128;
// Of any object in a body and in the arguments of its calls. Schemas have
// patterns as keys.
inline constexpr size_t kMaxKeyBytes = 512;
inline constexpr size_t kMaxStopStrings = 1024;  // a server may allow fewer
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr size_t kMaxAllStopBytes = 4096;  // of a request, together
inline constexpr size_t kMaxChoices = 128;        // over all prompts
inline constexpr size_t kMaxCacheSaltBytes = 256;
// Without the model's own end tokens.
inline constexpr size_t kMaxClientStopTokenIds = 128;
inline constexpr size_t kMaxAllowedTokenIds = size_t{1} << 16;
inline constexpr size_t kMaxBadWords = 128;
inline constexpr int64_t kMaxPingSeconds = 3600;
// Of a word such as an effort.
inline constexpr size_t kMaxWordBytes = 32;

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_LIMITS_H_
