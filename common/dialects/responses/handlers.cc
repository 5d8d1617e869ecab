#include "common/dialects/responses/handlers.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/dialects/responses/stored.h"
#include "common/serving/answer_start.h"
#include "common/serving/answer_store.h"
#include "common/serving/prepare.h"
#include "common/serving/prepare_chat.h"
#include "common/serving/served_model.h"

namespace sluice::responses {
namespace {

StatusOr<ResponsesRequest> Parse(const serving::ServingContext& context,
                                 const http::HttpRequest& http) {
  ReadOptions options;
  options.vocab_size = context.model.vocab_size;
  options.strict = context.strict_fields;
  std::optional<ReferencedItems> referenced;
  if (context.answers != nullptr) {
    referenced.emplace(*context.answers, http);
    options.item = [&](std::string_view id, JsonBudget& budget) {
      return referenced->Take(id, budget);
    };
    options.previous = [&](std::string_view id,
                           JsonBudget& budget) -> StatusOr<Json> {
      // The work was given its thread and its memory by this id.
      if (id != PreviousIdOf(http.body)) {
        return NotFound("must have no escapes in its name and value");
      }
      return ItemsBehind(*context.answers, http.tenant, id, budget);
    };
  }
  return ParseRequest(http.body, options);
}

// Custom tools that take any text need no grammar where a model has none.
void FreeCustomTools(const ToolNames& names, serving::ToolFields& fields) {
  for (size_t i = 0; i < fields.tools.size(); ++i) {
    const auto named = names.find(
        fields.tools[i]["function"]["name"].get_ref<const std::string&>());
    if (named != names.end() && named->second.is_custom &&
        fields.held[i].empty()) {
      fields.strict[i].reset();
    }
  }
}

// Returns AnswerTerms::keep. What is too long to be read again is not kept; of
// a stream that is resumed its first connection keeps the response, so that a
// deleted one stays deleted.
std::function<bool(const std::string&, const Json&)> KeepIn(
    serving::AnswerStore& store, const http::HttpRequest& http,
    std::string items) {
  if (!http.Header(serving::kLastEventIdHeader).empty()) {
    return [&store, tenant = http.tenant](const std::string& id, const Json&) {
      return store.Find(tenant, id).ok();
    };
  }
  constexpr size_t kMaxBytes = JsonLimits{}.max_bytes;
  if (items.size() > kMaxBytes) return nullptr;
  return [&store, tenant = http.tenant, items = std::move(items)](
             const std::string& id, const Json& response) {
    std::string text = DumpJson(response);
    return text.size() <= kMaxBytes &&
           store.Put(tenant, id, {std::move(text), items});
  };
}

StatusOr<serving::PreparedRequest> Prepare(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(ResponsesRequest request, Parse(context, http));
  if (context.model.grammars == nullptr) {
    FreeCustomTools(request.names, request.chat.tools);
  }
  AnswerTerms terms{std::move(request.names), std::move(request.echo),
                    request.tells_summary};
  if (context.answers != nullptr && request.store) {
    terms.keep = KeepIn(*context.answers, http, DumpJson(request.items));
  }
  const auto make_format = [&terms](const serving::ModelText& text,
                                    const serving::AnswerInfo& info) {
    return MakeResponseFormat(text, info, std::move(terms));
  };
  return serving::PrepareChat(context, http, request.chat,
                              {kPath, "resp_", "call_", make_format});
}

StatusOr<http::HttpResponse> CountTokens(const serving::ServingContext& context,
                                         const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(const ResponsesRequest request, Parse(context, http));
  SLUICE_RETURN_IF_ERROR(
      serving::CheckModel(context.model, "model", request.chat.fields.model));
  const serving::ChatRequest& chat = request.chat;
  SLUICE_RETURN_IF_ERROR(serving::CheckHistory(
      *chat.fields.names, chat.messages, chat.tools.tools, context.limits));
  SLUICE_ASSIGN_OR_RETURN(const serving::RequestTerms terms,
                          serving::ReadTerms(http));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<TokenId> prompt,
      serving::EncodeChatPrompt(context, chat, serving::UnixSeconds(),
                                terms.deadline));
  http::HttpResponse response;
  response.body = DumpJson(
      {{"object", "response.input_tokens"}, {"input_tokens", prompt.size()}});
  return response;
}

}  // namespace

void RunResponse(const serving::ServingContext& context,
                 std::shared_ptr<http::Exchange> exchange) {
  const size_t behind = BytesBehind(context, exchange->request());
  serving::PrepareAndRun(context, Prepare, std::move(exchange), behind);
}

void AddOtherHandlers(http::Router& router,
                      const serving::ServingContext& context) {
  router.Add("POST", "/v1/responses/input_tokens",
             [context](std::shared_ptr<http::Exchange> on) {
               const size_t behind = BytesBehind(context, on->request());
               serving::AnswerOffLoop(context, CountTokens, std::move(on),
                                      behind);
             });
  AddStoredHandlers(router, context);
}

bool IsSpoken(const http::HttpRequest& request) {
  return request.path == kPath || request.path.starts_with("/v1/responses/");
}

}  // namespace sluice::responses
