#include "common/dialects/ollama/parse.h"

#include <utility>

#include "common/base/json.h"
#include "common/dialects/ollama/fields.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/request_body.h"

namespace sluice::ollama {
namespace {

constexpr serving::FieldNames kChatNames = {
    .truncate_prompt = "truncate",
    .max_tokens = "options.num_predict",
    .stop = "options.stop",
    .template_arguments = "think",
    .continues_message = "a last message of role assistant"};
constexpr serving::FieldNames kGenerateNames = [] {
  serving::FieldNames names = kChatNames;
  names.prompt = "prompt";
  return names;
}();

// Reads what both share, and counts the body.
StatusOr<OllamaRequest> ReadBoth(std::string_view body, const Json& json,
                                 const serving::RoundedNumbers& rounded,
                                 bool is_chat, bool strict,
                                 serving::FieldReader& in) {
  SLUICE_RETURN_IF_ERROR(
      CheckFields(json, is_chat ? kChat : kGenerate, strict));
  OllamaRequest out{serving::ChatRequest{
      ReadFields(in, is_chat ? kChatNames : kGenerateNames)}};
  serving::GenerationFields& fields = out.chat.fields;
  ReadThink(in, out.chat.chat_template.kwargs);
  if (ReadUnloads(in)) out.act = OllamaRequest::Act::kUnload;
  serving::HoldRounded(body, in, rounded, fields, nullptr);
  if (fields.stream) {
    fields.digest = serving::BodyDigest(json, KnownFields());
  }
  return out;
}

// The template adds the answer's beginning, or the answer goes on with a last
// message of the model's own.
void SetEnd(serving::ChatRequest& chat) {
  const Json& last = chat.messages.back();
  const bool goes_on = last["role"] == "assistant" && last["content"] != "" &&
                       !last.contains("tool_calls");
  chat.chat_template.continue_final_message = goes_on;
  chat.chat_template.add_generation_prompt = !goes_on;
}

void SetLoads(OllamaRequest& request) {
  if (request.act == OllamaRequest::Act::kAnswer) {
    request.act = OllamaRequest::Act::kLoad;
  }
}

void RefuseImages(serving::FieldReader& in) {
  const Json* images = in.Find("images");
  if (images == nullptr || (images->is_array() && images->empty())) return;
  in.Keep(serving::WithCode(
      serving::FieldError("images", "no model here reads pictures, got ",
                          serving::Describe(*images)),
      "unsupported_content"));
}

}  // namespace

StatusOr<OllamaRequest> ParseChat(std::string_view body, bool strict) {
  JsonBudget budget;
  serving::RoundedNumbers rounded;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(body, budget, &rounded));
  serving::FieldReader in(json);
  SLUICE_ASSIGN_OR_RETURN(
      OllamaRequest out,
      ReadBoth(body, json, rounded, /*is_chat=*/true, strict, in));
  out.chat.tools = ReadTools(in);
  const Json* messages = in.Find("messages");
  SLUICE_RETURN_IF_ERROR(in.status());
  if (messages == nullptr || (messages->is_array() && messages->empty())) {
    SetLoads(out);
    return out;
  }
  out.act = OllamaRequest::Act::kAnswer;
  SLUICE_ASSIGN_OR_RETURN(out.chat.messages, ParseMessages(*messages, budget));
  SetEnd(out.chat);
  return out;
}

StatusOr<OllamaRequest> ParseGenerate(std::string_view body, bool strict) {
  JsonBudget budget;
  serving::RoundedNumbers rounded;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(body, budget, &rounded));
  serving::FieldReader in(json);
  SLUICE_ASSIGN_OR_RETURN(
      OllamaRequest out,
      ReadBoth(body, json, rounded, /*is_chat=*/false, strict, in));
  out.prompt = in.String("prompt").value_or("");
  out.suffix = in.String("suffix").value_or("");
  out.is_raw = in.Bool("raw").value_or(false);
  std::string system = in.String("system").value_or("");
  RefuseImages(in);
  if (out.is_raw && !out.suffix.empty()) {
    in.Refuse("suffix", "cannot go with \"raw\": true");
  }
  const bool has_template = !out.is_raw && out.suffix.empty();
  if (!system.empty() && !has_template) {
    in.Refuse("system", "cannot go with ", out.is_raw ? "raw" : "suffix",
              ": the prompt goes to the model without a template");
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  if (out.prompt.empty() && out.suffix.empty()) {
    SetLoads(out);
    return out;
  }
  out.act = OllamaRequest::Act::kAnswer;
  if (!has_template) return out;
  Json& messages = out.chat.messages = Json::array();
  if (!system.empty()) {
    messages.push_back(serving::MakeMessage("system", std::move(system)));
  }
  messages.push_back(serving::MakeMessage("user", std::move(out.prompt)));
  SetEnd(out.chat);
  return out;
}

}  // namespace sluice::ollama
