#include "services/cli/bench/stream_chunk.h"

#include <algorithm>

#include "common/base/json.h"
#include "services/cli/json_member.h"

namespace sluice::cli {
namespace {

std::optional<int64_t> FindInt(const Json& json, const char* key) {
  const Json* found = FindMember(json, key);
  if (found == nullptr || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

bool HasText(const Json& json, const char* key) {
  const Json* found = FindMember(json, key);
  return found != nullptr && found->is_string() &&
         !found->get_ref<const std::string&>().empty();
}

void ReadChoice(const Json& choice, StreamChunk& out) {
  if (HasText(choice, "text")) out.has_text = true;
  if (const Json* delta = FindMember(choice, "delta")) {
    for (const char* key : {"content", "reasoning_content", "reasoning"}) {
      if (HasText(*delta, key)) out.has_text = true;
    }
    if (FindMember(*delta, "tool_calls") != nullptr) out.has_text = true;
  }
  if (FindMember(choice, "finish_reason") != nullptr) out.is_finish = true;
  const Json* ids = FindMember(choice, "token_ids");
  if (ids != nullptr && ids->is_array()) {
    out.token_ids = std::max(out.token_ids, 0) + static_cast<int>(ids->size());
  }
}

void ReadUsage(const Json& usage, StreamChunk& out) {
  out.prompt_tokens = FindInt(usage, "prompt_tokens");
  out.completion_tokens = FindInt(usage, "completion_tokens");
  if (const Json* details = FindMember(usage, "prompt_tokens_details")) {
    out.cached_tokens = FindInt(*details, "cached_tokens");
  }
}

}  // namespace

StatusOr<StreamChunk> ParseStreamChunk(std::string_view data) {
  StreamChunk out;
  if (data == "[DONE]") {
    out.is_end = true;
    return out;
  }
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(data));
  if (!json.is_object()) return InvalidArgument("an event is no JSON object");
  if (const Json* error = FindMember(json, "error")) {
    const Json* message = FindMember(*error, "message");
    out.error = message != nullptr && message->is_string()
                    ? message->get<std::string>()
                    : DumpJson(*error);
    return out;
  }
  const Json* choices = FindMember(json, "choices");
  if (choices != nullptr && choices->is_array()) {
    for (const Json& choice : *choices) ReadChoice(choice, out);
  }
  if (const Json* usage = FindMember(json, "usage")) ReadUsage(*usage, out);
  return out;
}

}  // namespace sluice::cli
