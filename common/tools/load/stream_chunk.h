#ifndef SLUICE_COMMON_TOOLS_LOAD_STREAM_CHUNK_H_
#define SLUICE_COMMON_TOOLS_LOAD_STREAM_CHUNK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice::load {

// One event of an OpenAI stream, chat or completions.
struct StreamChunk {
  bool is_end = false;      // "[DONE]"
  bool is_finish = false;   // a finish_reason
  std::string text;         // the answer's
  bool other_text = false;  // reasoning or a tool call
  std::vector<int64_t> prompt_ids;
  std::optional<std::vector<int64_t>> ids;  // empty: no such field
  std::optional<int64_t> prompt_tokens;     // the usage's
  std::optional<int64_t> completion_tokens;
  std::optional<int64_t> cached_tokens;
  std::optional<std::string> error;  // an error event's message

  // Returns the event's tokens: its ids, else 1 for any text.
  int Tokens() const {
    if (ids) return static_cast<int>(ids->size());
    return !text.empty() || other_text ? 1 : 0;
  }
};

// INVALID_ARGUMENT for data that is no JSON object.
StatusOr<StreamChunk> ParseStreamChunk(std::string_view data);

// The same; an error event is UNAVAILABLE with the server's message.
StatusOr<StreamChunk> ParseGoodChunk(std::string_view data);

}  // namespace sluice::load

#endif  // SLUICE_COMMON_TOOLS_LOAD_STREAM_CHUNK_H_
