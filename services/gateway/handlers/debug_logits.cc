#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/base/json.h"
#include "common/engine/engine_loop.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "common/serving/text_work.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

// The most logits of one answer, which memory holds. JSON has a lower limit: a
// text thread is busy while it writes.
constexpr size_t kMaxLogitsBytes = size_t{1} << 30;
constexpr size_t kMaxJsonLogitsBytes = size_t{64} << 20;

// One prompt's logits, [positions, vocabulary].
struct LogitsRows {
  std::vector<TokenId> ids;
  size_t columns = 0;
  bool binary = false;  // as application/octet-stream
  std::vector<float> values;
};

// Returns {"ids": [..], "logits": [[..], ..]}: each float in its shortest text.
std::string RowsJson(const LogitsRows& rows) {
  std::string out = "{\"ids\":" + DumpJson(Json(rows.ids)) + ",\"logits\":[";
  char text[48];
  for (size_t i = 0; i < rows.values.size(); ++i) {
    const bool row_begins = i % rows.columns == 0;
    out += row_begins ? (i == 0 ? "[" : "],[") : ",";
    const auto end = std::to_chars(text, text + sizeof(text), rows.values[i]);
    out.append(text, end.ptr);
  }
  out += "]]}";
  return out;
}

http::HttpResponse RowsResponse(const LogitsRows& rows) {
  const size_t expected = rows.ids.size() * rows.columns;
  if (rows.values.size() != expected) {
    return http::ErrorResponse(serving::ToApiError(Unavailable(
        "got ", rows.values.size(), " logits, expected ", expected)));
  }
  const bool finite =
      std::all_of(rows.values.begin(), rows.values.end(),
                  [](float value) { return std::isfinite(value); });
  if (!rows.binary && !finite) {
    return http::ErrorResponse(serving::ToApiError(
        Internal("logits are not finite; ask for application/octet-stream")));
  }
  http::HttpResponse response;
  response.headers = {{"X-Sluice-Rows", Cat(rows.ids.size())},
                      {"X-Sluice-Columns", Cat(rows.columns)}};
  if (rows.binary) {
    response.content_type = "application/octet-stream";
    response.body.resize(expected * sizeof(float));
    std::memcpy(response.body.data(), rows.values.data(), response.body.size());
  } else {
    response.body = RowsJson(rows);
  }
  return response;
}

// Collects the prompt's logits and answers at the end. A text thread writes up
// to a gigabyte of them, for which neither the engine's thread nor the loop has
// the time.
class LogitsSink : public TokenSink {
 public:
  LogitsSink(std::shared_ptr<http::Exchange> exchange, LogitsRows rows,
             const serving::TextWorkers& text)
      : exchange_(std::move(exchange)), rows_(std::move(rows)), text_(text) {
    rows_.values.reserve(rows_.ids.size() * rows_.columns);
  }

  void OnTokens(TokenEvent event) override {
    rows_.values.insert(rows_.values.end(), event.logits.begin(),
                        event.logits.end());
  }

  void OnEnd(FinalEvent event) override {
    if (event.reason == FinishReason::kError) {
      exchange_->Post([on = exchange_, status = event.status] {
        on->SendError(serving::ToApiError(status));
      });
      return;
    }
    auto rows = std::make_shared<LogitsRows>(std::move(rows_));
    const size_t bytes = rows->values.size() * sizeof(float);
    // A value takes up to 14 bytes as JSON.
    serving::RunTextWork(
        text_, exchange_, rows->binary ? 2 * bytes : 5 * bytes,
        [on = exchange_, rows] {
          const auto response =
              std::make_shared<http::HttpResponse>(RowsResponse(*rows));
          on->Post([on, response] { on->Send(std::move(*response)); });
        });
  }

 private:
  const std::shared_ptr<http::Exchange> exchange_;
  LogitsRows rows_;  // of the engine's thread
  const serving::TextWorkers text_;
};

// Returns the ids of the body's prompt: token ids, or a text to tokenize.
StatusOr<std::vector<TokenId>> ParseLogitsPrompt(
    const serving::ServingContext& context, const Json& json) {
  serving::FieldReader in(json);
  const Json* prompt = in.Find("prompt");
  if (prompt != nullptr && prompt->is_string()) {
    SLUICE_RETURN_IF_ERROR(serving::CheckText(
        "prompt", prompt->get_ref<const std::string&>().size(),
        serving::MaxTokenizeBytes(context)));
    return context.model.text->Encode(prompt->get_ref<const std::string&>(),
                                      /*special=*/true);
  }
  auto ids = in.TokenIds("prompt", context.model.vocab_size,
                         static_cast<size_t>(serving::MaxContext(context)));
  SLUICE_RETURN_IF_ERROR(in.status());
  if (!ids) return serving::FieldError("prompt", "must be a text or token ids");
  return *std::move(ids);
}

bool TakesBytes(const http::HttpRequest& request) {
  return request.Header("accept") == "application/octet-stream";
}

StatusOr<GenerateRequest> ParseLogitsRequest(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(http.body));
  if (!json.is_object()) return InvalidArgument("the body must be an object");
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> prompt,
                          ParseLogitsPrompt(context, json));
  const size_t bytes = prompt.size() * sizeof(float) *
                       static_cast<size_t>(context.model.vocab_size);
  const bool binary = TakesBytes(http);
  const size_t limit = binary ? kMaxLogitsBytes : kMaxJsonLogitsBytes;
  if (bytes > limit) {
    return serving::FieldError(
        "prompt", "its logits take ", bytes, " bytes, limit ", limit,
        binary ? "" : " (more as application/octet-stream)");
  }
  // Errors of a request without a completion name its prompt alone.
  static constexpr serving::FieldNames kNames = {.prompt = "prompt"};
  serving::GenerationFields fields(kNames);
  fields.max_tokens = 0;
  fields.temperature = 0;
  fields.logprobs = 0;
  SLUICE_ASSIGN_OR_RETURN(
      GenerateRequest request,
      serving::MakeGenerateRequest(context, fields, std::move(prompt), 0));
  request.sampling.prompt_logprobs = 0;
  request.sampling.return_logits = true;
  return request;
}

void SubmitLogits(const serving::ServingContext& context,
                  const std::shared_ptr<http::Exchange>& exchange,
                  StatusOr<GenerateRequest> request) {
  if (!request.ok()) {
    exchange->SendError(serving::ToApiError(request.status()));
    return;
  }
  request->request_id = exchange->request().request_id;
  request->client = exchange->request().client;
  LogitsRows rows;
  rows.ids = request->prompt_tokens;
  rows.columns = static_cast<size_t>(context.model.vocab_size);
  rows.binary = TakesBytes(exchange->request());
  auto sink = std::make_shared<LogitsSink>(
      exchange, std::move(rows),
      serving::TextWorkers{context.work, context.metrics});
  const auto sequence =
      context.engine.Submit(*std::move(request), std::move(sink));
  if (!sequence.ok()) {
    exchange->SendError(serving::ToApiError(sequence.status()));
    return;
  }
  exchange->OnGone([&engine = context.engine, id = *sequence](http::Gone) {
    engine.Cancel(id);
  });
}

}  // namespace

void AddDebugHandlers(http::Router& router,
                      const serving::ServingContext& context) {
  router.Add(
      "POST", "/debug/logits",
      [context](std::shared_ptr<http::Exchange> exchange) {
        serving::MakeThenUse(
            context, ParseLogitsRequest,
            [context](const std::shared_ptr<http::Exchange>& on,
                      StatusOr<GenerateRequest> request, const TraceSpan&) {
              SubmitLogits(context, on, std::move(request));
            },
            std::move(exchange));
      });
}

}  // namespace sluice::gateway
