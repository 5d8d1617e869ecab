#include "common/dialects/ollama/models.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/ollama/answer.h"
#include "common/http/sha256.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"

namespace sluice::ollama {
namespace {

constexpr std::string_view kLatest = ":latest";
// Of a model that is never unloaded.
constexpr std::string_view kNever = "9999-12-31T23:59:59Z";

// Returns where the tag of `name` begins, with its colon; its size: no tag.
size_t TagBegin(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t colon = name.rfind(':');
  const bool has_tag =
      colon != name.npos && (slash == name.npos || colon > slash);
  return has_tag ? colon : name.size();
}

bool Means(std::string_view asked, std::string_view served) {
  if (asked == served) return true;
  const size_t tag = TagBegin(asked);
  if (tag < asked.size() && asked.substr(tag) != kLatest) return false;
  return asked.substr(0, tag) == served.substr(0, TagBegin(served));
}

std::string WithTag(const std::string& name) {
  return TagBegin(name) < name.size() ? name : Cat(name, kLatest);
}

// Clients show the first digits of a SHA-256.
std::string Digest(const serving::ServedModel& model) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte :
       http::Sha256(Cat("sluice model ", model.digest, " ", model.name))) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

std::string Family(const serving::ServedModel& model) {
  const auto config = ParseJson(model.config);
  if (!config.ok() || !config->is_object()) return "";
  const auto type = config->find("model_type");
  return type != config->end() && type->is_string() ? type->get<std::string>()
                                                    : "";
}

Json Details(const serving::ServedModel& model) {
  const std::string family = Family(model);
  return {{"parent_model", ""},
          {"format", model.root.ends_with(".gguf") ? "gguf" : "safetensors"},
          {"family", family},
          {"families", family.empty() ? Json::array() : Json::array({family})},
          {"parameter_size", ""},
          {"quantization_level", ""}};
}

std::string LoadTime(const serving::ServedModel& model) {
  return TimeText(std::chrono::system_clock::time_point(
      std::chrono::seconds(model.created)));
}

// Returns the members that /api/tags and /api/ps share, for each name.
template <typename Add>
Json Entries(const serving::ServedModel& model, const Add& add) {
  Json list = Json::array();
  const auto push = [&](const std::string& name) {
    Json entry{{"name", WithTag(name)},
               {"model", WithTag(name)},
               {"size", 0},
               {"digest", Digest(model)},
               {"details", Details(model)}};
    add(entry);
    list.push_back(std::move(entry));
  };
  push(model.name);
  for (const std::string& alias : model.aliases) push(alias);
  return {{"models", std::move(list)}};
}

// Sampling that differs from no change at all, as lines of a Modelfile.
std::string Parameters(const serving::ServedModel& model) {
  const serving::SamplingDefaults& defaults = model.defaults;
  std::string text = Cat("temperature ", defaults.temperature);
  const auto add = [&text](std::string_view name, auto value, auto neutral) {
    if (value != neutral) text += Cat("\n", name, " ", value);
  };
  add("top_p", defaults.top_p, 1.0f);
  add("top_k", defaults.top_k, 0);
  add("min_p", defaults.min_p, 0.0f);
  add("repeat_penalty", defaults.repetition_penalty, 1.0f);
  return text;
}

// The marks of families of models around a text with a hole.
struct InfillMarks {
  std::string_view prefix;
  std::string_view suffix;
  std::string_view middle;
};
constexpr InfillMarks kMarks[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},  // StarCoder, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},  // SantaCoder
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                    // CodeLlama
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},  // DeepSeek
};

// Returns the tokens of prefix, suffix and middle.
std::optional<std::array<TokenId, 3>> FindMarks(
    const serving::ModelText& text) {
  for (const InfillMarks& marks : kMarks) {
    const auto prefix = text.FindSpecial(marks.prefix);
    const auto suffix = text.FindSpecial(marks.suffix);
    const auto middle = text.FindSpecial(marks.middle);
    if (prefix && suffix && middle) return {{*prefix, *suffix, *middle}};
  }
  return std::nullopt;
}

}  // namespace

Status CheckName(const serving::ServedModel& model, std::string_view name) {
  if (model.any_name || Means(name, model.name)) return OkStatus();
  for (const std::string& alias : model.aliases) {
    if (Means(name, alias)) return OkStatus();
  }
  return serving::WithCode(
      serving::WithParam(
          NotFound("model '", name.substr(0, 200), "' not found"), "model"),
      "model_not_found");
}

Json TagsJson(const serving::ServedModel& model) {
  return Entries(
      model, [&model](Json& entry) { entry["modified_at"] = LoadTime(model); });
}

Json RunningJson(const serving::ServingContext& context) {
  return Entries(context.model, [&context](Json& entry) {
    entry["expires_at"] = std::string(kNever);
    entry["size_vram"] = 0;
    entry["context_length"] = serving::MaxContext(context);
  });
}

Json ShownJson(const serving::ServingContext& context) {
  const serving::ServedModel& model = context.model;
  const std::string family = Family(model);
  const OutputFormat format = model.text->output_format();
  Json capabilities = Json::array({"completion"});
  if (format.tools != ToolFormat::kNone) capabilities.push_back("tools");
  if (format.reasoning != ReasoningFormat::kNone) {
    capabilities.push_back("thinking");
  }
  if (CanInfill(*model.text)) capabilities.push_back("insert");
  // Clients look for "ARCHITECTURE.context_length".
  const std::string architecture = family.empty() ? "unknown" : family;
  return {
      {"license", ""},
      {"modelfile", ""},
      {"parameters", Parameters(model)},
      {"template", model.text->info().chat_template},
      {"details", Details(model)},
      {"model_info",
       {{"general.architecture", architecture},
        {"general.basename", model.name},
        {Cat(architecture, ".context_length"), serving::MaxContext(context)},
        {Cat(architecture, ".vocab_size"), model.vocab_size}}},
      {"capabilities", std::move(capabilities)},
      {"modified_at", LoadTime(model)}};
}

bool CanInfill(const serving::ModelText& text) {
  return FindMarks(text).has_value();
}

StatusOr<std::vector<TokenId>> EncodeInfill(const serving::ModelText& text,
                                            const OllamaRequest& request) {
  const auto marks = FindMarks(text);
  if (!marks) {
    return serving::WithCode(
        serving::FieldError("suffix", "the model's vocabulary has no tokens ",
                            "for a text with a hole"),
        "unsupported_parameter");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto prefix, text.EncodePlain(request.prompt));
  SLUICE_ASSIGN_OR_RETURN(const auto suffix, text.EncodePlain(request.suffix));
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          text.Encode("", /*special=*/true));  // BOS, if any
  tokens.push_back((*marks)[0]);
  tokens.insert(tokens.end(), prefix.begin(), prefix.end());
  tokens.push_back((*marks)[1]);
  tokens.insert(tokens.end(), suffix.begin(), suffix.end());
  tokens.push_back((*marks)[2]);
  return tokens;
}

}  // namespace sluice::ollama
