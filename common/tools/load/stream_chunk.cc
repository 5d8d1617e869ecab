#include "common/tools/load/stream_chunk.h"

#include "common/base/json.h"
#include "common/base/json_member.h"

namespace sluice::load {
namespace {

void AppendIds(const Json& choice, const char* key, std::vector<int64_t>& ids) {
  for (const Json& id : FindList(choice, key)) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
}

void ReadChoice(const Json& choice, StreamChunk& out) {
  out.text += FindText(choice, "text");
  if (const Json* delta = FindMember(choice, "delta")) {
    out.text += FindText(*delta, "content");
    out.other_text = out.other_text ||
                     !FindText(*delta, "reasoning_content").empty() ||
                     !FindText(*delta, "reasoning").empty() ||
                     FindMember(*delta, "tool_calls") != nullptr;
  }
  if (FindMember(choice, "finish_reason") != nullptr) out.is_finish = true;
  AppendIds(choice, "prompt_token_ids", out.prompt_ids);
  if (FindMember(choice, "token_ids") == nullptr) return;
  if (!out.ids) out.ids.emplace();
  AppendIds(choice, "token_ids", *out.ids);
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
    out.error = FindText(*error, "message");
    if (out.error->empty()) out.error = DumpJson(*error);
    return out;
  }
  for (const Json& choice : FindList(json, "choices")) ReadChoice(choice, out);
  if (const Json* usage = FindMember(json, "usage")) ReadUsage(*usage, out);
  return out;
}

StatusOr<StreamChunk> ParseGoodChunk(std::string_view data) {
  auto chunk = ParseStreamChunk(data);
  if (chunk.ok() && chunk->error) return Unavailable(*chunk->error);
  return chunk;
}

}  // namespace sluice::load
