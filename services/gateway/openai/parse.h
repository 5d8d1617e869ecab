#ifndef SLUICE_SERVICES_GATEWAY_OPENAI_PARSE_H_
#define SLUICE_SERVICES_GATEWAY_OPENAI_PARSE_H_

#include <string_view>

#include "common/base/status.h"
#include "services/gateway/openai/request.h"

namespace sluice::gateway {

// Limits on what one request may bring.
inline constexpr size_t kMaxMessages = 4096;
inline constexpr size_t kMaxContentParts = 1024;
inline constexpr size_t kMaxPrompts = 128;
inline constexpr size_t kMaxStopStrings = 4;
inline constexpr size_t kMaxStopBytes = 1024;

// Body bytes to a request. INVALID_ARGUMENT with the field as param (see
// error.h) for malformed JSON, wrong types, values out of range, and known
// fields that are not built unless their value changes nothing. Unknown
// fields are ignored; null counts as absent. `vocab_size` bounds token ids.
StatusOr<ChatRequest> ParseChatRequest(std::string_view body, int vocab_size);
StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                   int vocab_size);
StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body);
StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body,
                                                   int vocab_size);

// The `messages` field, checked and normalised as ChatRequest says.
StatusOr<Json> ParseMessages(const Json& messages);

// INVALID_ARGUMENT naming the first known but unbuilt field of `object` whose
// value would change the answer.
Status RefuseUnbuiltFields(const Json& object, bool chat);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_OPENAI_PARSE_H_
