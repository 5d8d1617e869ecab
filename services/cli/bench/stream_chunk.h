#ifndef SLUICE_SERVICES_CLI_BENCH_STREAM_CHUNK_H_
#define SLUICE_SERVICES_CLI_BENCH_STREAM_CHUNK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice::cli {

// What one event of an OpenAI stream, chat or completions, says that a
// measurement needs.
struct StreamChunk {
  bool is_end = false;     // "[DONE]"
  bool has_text = false;   // content, reasoning or tool call
  bool is_finish = false;  // a finish_reason
  int token_ids = -1;      // how many ids it brings; -1: it has no such field
  std::optional<int64_t> prompt_tokens;  // the usage's
  std::optional<int64_t> completion_tokens;
  std::optional<int64_t> cached_tokens;
  std::optional<std::string> error;  // an error event's message

  // Tokens that this event stands for: its ids, else 1 for any text.
  int Tokens() const { return token_ids >= 0 ? token_ids : has_text ? 1 : 0; }
};

// INVALID_ARGUMENT for data that is no JSON object.
StatusOr<StreamChunk> ParseStreamChunk(std::string_view data);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_STREAM_CHUNK_H_
