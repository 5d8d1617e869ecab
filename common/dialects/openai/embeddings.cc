#include "common/serving/embeddings.h"

#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/openai/handlers.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/fields.h"
#include "common/serving/numbers.h"
#include "common/serving/request_body.h"
#include "common/serving/served_model.h"

namespace sluice::openai {
namespace {

constexpr std::string_view kKnown[] = {
    "add_special_tokens",     "dimensions", "encoding_format", "input", "model",
    "truncate_prompt_tokens", "user"};

// Returns the values as the text of their bytes, little-endian.
std::string Base64Of(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);
  return absl::Base64Escape({reinterpret_cast<const char*>(values.data()),
                             values.size() * sizeof(float)});
}

// Writes the text at once: a JSON value per float would take many times its
// memory.
http::HttpResponse Answer(const std::string& model, bool as_base64,
                          const serving::Embeddings& embeddings) {
  std::string data;
  for (size_t i = 0; i < embeddings.rows.size(); ++i) {
    const std::vector<float>& row = embeddings.rows[i];
    data += Cat(
        i == 0 ? "" : ",", R"({"object":"embedding","index":)", i,
        R"(,"embedding":)",
        as_base64 ? Cat("\"", Base64Of(row), "\"") : serving::FloatList(row),
        "}");
  }
  const Json usage = {{"prompt_tokens", embeddings.prompt_tokens},
                      {"total_tokens", embeddings.prompt_tokens}};
  http::HttpResponse response;
  response.body = Cat(R"({"object":"list","data":[)", data, R"(],"model":)",
                      DumpJson(model), R"(,"usage":)", DumpJson(usage), "}");
  return response;
}

StatusOr<serving::EmbeddingsRequest> ParseEmbeddingsRequest(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  JsonBudget budget;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(http.body, budget));
  if (context.strict_fields) {
    SLUICE_RETURN_IF_ERROR(serving::RefuseOthers(json, kKnown));
  }
  serving::FieldReader in(json);
  serving::EmbeddingsRequest out;
  out.input = "input";
  out.model = in.String("model").value_or("");
  out.dimensions = static_cast<size_t>(
      in.Int("dimensions", 1, serving::kMaxInt32).value_or(0));
  out.adds_special_tokens = in.Bool("add_special_tokens").value_or(true);
  // As of completions: -1 keeps as many as fit.
  out.truncates = in.Int("truncate_prompt_tokens", -1, -1).has_value();
  const std::string encoding = in.String("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64") {
    in.Refuse("encoding_format", "must be \"float\" or \"base64\"");
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_ASSIGN_OR_RETURN(
      out.inputs,
      ParsePrompts(in.Find(out.input), out.input, context.model.vocab_size,
                   serving::kMaxEmbeddingInputs));
  out.write = [model = context.model.name, as_base64 = encoding == "base64"](
                  const serving::Embeddings& embeddings) {
    return Answer(model, as_base64, embeddings);
  };
  return out;
}

}  // namespace

void AddEmbeddingsHandler(http::Router& router,
                          const serving::ServingContext& context) {
  router.Add(
      "POST", "/v1/embeddings", [context](std::shared_ptr<http::Exchange> on) {
        serving::RunEmbeddings(context, ParseEmbeddingsRequest, std::move(on));
      });
}

}  // namespace sluice::openai
