#ifndef SLUICE_COMMON_SERVING_SERVED_MODEL_H_
#define SLUICE_COMMON_SERVING_SERVED_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/grammar/grammar_compiler.h"
#include "common/serving/model_text.h"
#include "common/serving/pooling.h"

namespace sluice {
class Vocabulary;
}

namespace sluice::serving {

// Sampling values for absent fields: generation_config.json's, else these.
struct SamplingDefaults {
  float temperature = 1.0f;
  float top_p = 1.0f;
  int32_t top_k = 0;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
};

// Values of wrong types or out of range are logged and left out.
// INVALID_ARGUMENT for what is no object.
StatusOr<SamplingDefaults> ParseSamplingDefaults(const Json& generation_config);

// The model that is served. Immutable after loading.
struct ServedModel {
  std::string name;                  // in requests and answers
  std::vector<std::string> aliases;  // further names in requests
  bool any_name = false;             // requests may use any name
  std::string root;                  // the path, in /v1/models
  int64_t created = 0;               // Unix time of the load
  std::unique_ptr<const ModelText> text;
  SamplingDefaults defaults;
  std::vector<TokenId> eos_ids;
  // What a GGUF's keys name by id ("fim_pre", "fim_suf", "fim_mid", "fim_pad",
  // "fim_rep", "fim_sep"): tokens by which the model fills in a gap.
  std::map<std::string, TokenId, std::less<>> infill_ids;
  int vocab_size = 0;
  int max_positions = 0;   // by config.json
  int hidden_size = 0;     // H; 0: unknown, as the next two
  int64_t num_params = 0;  // of the stored tensors, and their bytes
  int64_t tensor_bytes = 0;
  EmbeddingRule embeddings;
  std::string digest;  // of the stages' model; empty: any
  std::string config;  // that the digest covers; empty: unknown
  // Null: requests with a grammar are refused. With `vocabulary`, the
  // tokenizer's in `text`.
  std::unique_ptr<GrammarCompiler> grammars;
  const Vocabulary* vocabulary = nullptr;
};

// Reads tokenizer, template and configs of the model at `path`, no tensors.
// `name` empty: weights::ModelName. `tool_format`, `reasoning_format`: see
// ChooseOutputFormat.
StatusOr<ServedModel> LoadServedModel(
    const std::string& path, const std::string& name,
    const std::string& tool_format = "auto",
    const std::string& reasoning_format = "auto",
    const GrammarCompiler::Options& grammars = {});

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_SERVED_MODEL_H_
