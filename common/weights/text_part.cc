#include "common/weights/text_part.h"

#include "common/base/json.h"

namespace sluice::weights {
namespace {

bool Has(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && !found->is_null();
}

}  // namespace

Json TextPartOf(const Json& config) {
  if (!config.is_object() || !Has(config, "text_config") ||
      !config["text_config"].is_object() || Has(config, "hidden_size")) {
    return config;
  }
  Json part = config["text_config"];
  for (const char* key :
       {"architectures", "eos_token_id", "bos_token_id", "pad_token_id",
        "quantization_config", "tie_word_embeddings", "torch_dtype", "dtype",
        "transformers_version", "_name_or_path"}) {
    if (Has(config, key) && !Has(part, key)) part[key] = config[key];
  }
  if (!Has(part, "model_type")) {
    part["model_type"] = config.value("model_type", Json());
  }
  return part;
}

}  // namespace sluice::weights
