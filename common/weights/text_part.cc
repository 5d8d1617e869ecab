#include "common/weights/text_part.h"

#include "common/base/json.h"

namespace sluice::weights {
namespace {

bool Has(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && !found->is_null();
}

bool IsTrue(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && *found == true;
}

// Models whose text part may tie its head where the whole does not.
bool TiesByText(const Json& config) {
  const auto type = config.find("model_type");
  return type != config.end() &&
         (*type == "glm4v" || *type == "qwen2_vl" || *type == "qwen2_5_vl");
}

}  // namespace

Json TextPartOf(const Json& config) {
  const bool is_flat =
      Has(config, "hidden_size") && Has(config, "num_hidden_layers");
  if (!config.is_object() || !Has(config, "text_config") ||
      !config["text_config"].is_object() || is_flat) {
    return config;
  }
  Json part = config["text_config"];
  // The head is the whole model's: its own key tells.
  constexpr const char* kTied = "tie_word_embeddings";
  if (Has(config, kTied) && !(TiesByText(config) && IsTrue(part, kTied))) {
    part[kTied] = config[kTied];
  }
  for (const char* key : {"architectures", "eos_token_id", "bos_token_id",
                          "pad_token_id", "quantization_config", "torch_dtype",
                          "dtype", "transformers_version", "_name_or_path"}) {
    if (Has(config, key) && !Has(part, key)) part[key] = config[key];
  }
  if (!Has(part, "model_type")) {
    part["model_type"] = config.value("model_type", Json());
  }
  return part;
}

}  // namespace sluice::weights
