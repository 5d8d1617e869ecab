#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_PARSE_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_PARSE_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/serving/request.h"

namespace sluice::messages {

struct MessagesRequest {
  serving::ChatRequest chat;    // without its model: any name is served
  std::string model;            // as the client calls it; empty: not given
  bool omits_thinking = false;  // thinking blocks have no text
};

struct ParseOptions {
  int vocab_size = 0;   // bounds token ids
  bool strict = false;  // refuses unknown fields
  bool counts = false;  // of count_tokens: max_tokens may be absent
};

// Parses a body. INVALID_ARGUMENT, with the field as param, for malformed JSON,
// wrong types and values out of range; null counts as absent. The messages of
// the errors are "FIELD: TEXT".
StatusOr<MessagesRequest> ParseMessagesRequest(std::string_view body,
                                               const ParseOptions& options);

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_PARSE_H_
