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
#include "common/serving/infill.h"
#include "common/serving/pooling.h"
#include "common/serving/prepare.h"

namespace sluice::ollama {
namespace {

constexpr std::string_view kLatest = ":latest";
// Of a model that is never unloaded.
constexpr std::string_view kNever = "9999-12-31T23:59:59Z";

// Returns where the tag of `name` begins, with its colon; the size of a name
// without a tag.
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
  if (serving::FindInfillTokens(model, "suffix").ok()) {
    capabilities.push_back("insert");
  }
  if (model.embeddings.pooling != serving::Pooling::kNone) {
    capabilities.push_back("embedding");
  }
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

}  // namespace sluice::ollama
