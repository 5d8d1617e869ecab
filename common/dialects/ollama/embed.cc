#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/ollama/handlers.h"
#include "common/dialects/ollama/models.h"
#include "common/serving/embeddings.h"
#include "common/serving/fields.h"
#include "common/serving/numbers.h"
#include "common/serving/request_body.h"
#include "common/serving/served_model.h"

namespace sluice::ollama {
namespace {

constexpr std::string_view kKnownOfEmbed[] = {
    "dimensions", "input", "keep_alive", "model", "options", "truncate"};
constexpr std::string_view kKnownOfEmbeddings[] = {
    "dimensions", "keep_alive", "model", "options", "prompt", "truncate"};

int64_t Nanoseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// The texts are joined as they are: a JSON value per float would take many
// times its memory.
http::HttpResponse EmbedAnswer(const std::string& model,
                               const serving::Embeddings& embeddings) {
  std::string rows;
  for (const std::vector<float>& row : embeddings.rows) {
    rows += Cat(rows.empty() ? "" : ",", serving::FloatList(row));
  }
  http::HttpResponse response;
  response.body =
      Cat(R"({"model":)", DumpJson(model), R"(,"embeddings":[)", rows,
          R"(],"total_duration":)", Nanoseconds(embeddings.took),
          R"(,"load_duration":0,"prompt_eval_count":)",
          embeddings.prompt_tokens, "}");
  return response;
}

http::HttpResponse EmbeddingsAnswer(const serving::Embeddings& embeddings) {
  http::HttpResponse response;
  response.body = Cat(
      R"({"embedding":)",
      embeddings.rows.empty() ? "[]" : serving::FloatList(embeddings.rows[0]),
      "}");
  return response;
}

// Reads the fields that both paths have; `input` is the field of the texts. A
// request without texts loads the model, which is there.
StatusOr<serving::EmbeddingsRequest> ReadInputs(
    const serving::ServingContext& context, const Json& json,
    std::string_view input, std::span<const std::string_view> known) {
  if (context.strict_fields) {
    SLUICE_RETURN_IF_ERROR(serving::RefuseOthers(json, known));
  }
  serving::FieldReader in(json);
  const std::string name = in.String("model").value_or("");
  if (name.empty()) in.Refuse("model", "is missing");
  serving::EmbeddingsRequest out;
  out.input = input;
  out.dimensions = static_cast<size_t>(
      in.Int("dimensions", 0, serving::kMaxInt32).value_or(0));
  out.truncates = in.Bool("truncate").value_or(true);
  const Json* texts = in.Find(input);
  if (texts != nullptr && !texts->is_string() && !texts->is_array()) {
    in.Refuse(input, "must be a string or an array of strings, got ",
              serving::Describe(*texts));
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_RETURN_IF_ERROR(CheckName(context.model, name));
  if (texts == nullptr || *texts == Json("")) return out;
  if (texts->is_string()) {
    out.inputs.emplace_back(texts->get<std::string>());
    return out;
  }
  if (texts->size() > serving::kMaxEmbeddingInputs) {
    return serving::FieldError(input, "has ", texts->size(), " texts, limit ",
                               serving::kMaxEmbeddingInputs);
  }
  for (const Json& text : *texts) {
    if (!text.is_string()) {
      return serving::FieldError(input, "must have strings alone, got ",
                                 serving::Describe(text));
    }
    out.inputs.emplace_back(text.get<std::string>());
  }
  return out;
}

StatusOr<serving::EmbeddingsRequest> ParseEmbed(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  JsonBudget budget;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(http.body, budget));
  SLUICE_ASSIGN_OR_RETURN(serving::EmbeddingsRequest out,
                          ReadInputs(context, json, "input", kKnownOfEmbed));
  out.write = [model = json["model"].get<std::string>()](
                  const serving::Embeddings& embeddings) {
    return EmbedAnswer(model, embeddings);
  };
  return out;
}

// The older path: a text, and an embedding alone.
StatusOr<serving::EmbeddingsRequest> ParseEmbeddings(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  JsonBudget budget;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(http.body, budget));
  SLUICE_ASSIGN_OR_RETURN(
      serving::EmbeddingsRequest out,
      ReadInputs(context, json, "prompt", kKnownOfEmbeddings));
  if (out.inputs.size() > 1) {
    return serving::FieldError("prompt", "must be one text; /api/embed takes ",
                               "several");
  }
  out.write = EmbeddingsAnswer;
  return out;
}

}  // namespace

void AddEmbedHandlers(http::Router& router,
                      const serving::ServingContext& context) {
  router.Add("POST", "/api/embed",
             [context](std::shared_ptr<http::Exchange> on) {
               serving::RunEmbeddings(context, ParseEmbed, std::move(on));
             });
  router.Add("POST", "/api/embeddings",
             [context](std::shared_ptr<http::Exchange> on) {
               serving::RunEmbeddings(context, ParseEmbeddings, std::move(on));
             });
}

}  // namespace sluice::ollama
