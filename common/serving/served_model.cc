#include "common/serving/served_model.h"

#include <algorithm>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/model_config/config_report.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/stop_ids.h"
#include "common/serving/answer_start.h"
#include "common/serving/loaded_text.h"
#include "common/serving/request_grammar.h"
#include "common/text/tokenizer.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_file.h"
#include "common/weights/model_name.h"

namespace sluice::serving {
namespace {

// Returns the ids of config.json, generation_config.json and the tokenizer.
std::vector<TokenId> EosIds(const weights::ModelFile& file,
                            const Tokenizer& tokenizer, int vocab_size) {
  for (const Json* config : {&file.config(), &file.generation_config()}) {
    for (const std::string& id : IdsOfNoToken(*config, vocab_size)) {
      LogWarning(id, ": it is taken for none");
    }
  }
  std::vector<TokenId> ids =
      StopIds(file.config(), file.generation_config(), vocab_size);
  for (const TokenId id : tokenizer.eos_ids()) {
    if (id >= 0 && id < vocab_size) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Reads the ids of a GGUF's keys, those of older files, too.
void ReadInfillIds(const weights::GgufMetadata& metadata, ServedModel& model) {
  static constexpr std::pair<const char*, const char*> kKeys[] = {
      {"prefix_token_id", "fim_pre"},  {"suffix_token_id", "fim_suf"},
      {"middle_token_id", "fim_mid"},  {"fim_pre_token_id", "fim_pre"},
      {"fim_suf_token_id", "fim_suf"}, {"fim_mid_token_id", "fim_mid"},
      {"fim_pad_token_id", "fim_pad"}, {"fim_rep_token_id", "fim_rep"},
      {"fim_sep_token_id", "fim_sep"}};
  for (const auto& [key, name] : kKeys) {
    const std::string whole = Cat("tokenizer.ggml.", key);
    if (!metadata.Has(whole)) continue;
    const StatusOr<int64_t> id = metadata.Int(whole);
    if (!id.ok() || *id < 0 || *id >= model.vocab_size) {
      LogWarning(whole, ": it is taken for none");
      continue;
    }
    model.infill_ids[name] = static_cast<TokenId>(*id);
  }
}

void CountTensors(const weights::ModelFile& file, ServedModel& model) {
  for (const weights::TensorInfo& tensor : file.tensors()) {
    model.num_params += tensor.elements();
    model.tensor_bytes += tensor.stored_bytes();
  }
}

}  // namespace

StatusOr<ServedModel> LoadServedModel(
    const std::string& path, const std::string& name,
    const std::string& tool_format, const std::string& reasoning_format,
    const GrammarCompiler::Options& grammars) {
  SLUICE_ASSIGN_OR_RETURN(const auto file, OpenModel(path));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(file->config()));
  ServedModel model;
  model.name = name.empty() ? weights::ModelName(*file) : name;
  model.root = path;
  model.created = UnixSeconds();
  model.vocab_size = config.vocab_size;
  model.max_positions = config.max_position_embeddings;
  model.hidden_size = static_cast<int>(config.hidden_size);
  model.embeddings = ReadEmbeddingRule(*file);
  CountTensors(*file, model);
  if (file->gguf() != nullptr) ReadInfillIds(*file->gguf(), model);
  SLUICE_ASSIGN_OR_RETURN(model.defaults,
                          ParseSamplingDefaults(file->generation_config()));
  SLUICE_ASSIGN_OR_RETURN(
      auto text, LoadedText::Load(path, {tool_format, reasoning_format}));
  const OutputFormat format = text->output_format();
  LogInfo("output: tool calls ", ToolFormatName(format.tools), ", reasoning ",
          ReasoningFormatName(format.reasoning));
  model.eos_ids = EosIds(*file, text->tokenizer(), config.vocab_size);
  SLUICE_ASSIGN_OR_RETURN(const weights::ModelDigest digest,
                          weights::ComputeIdentity(*file));
  model.digest = digest.Hex();
  if (file->computed().has_value()) model.config = file->computed()->config;
  LogUnreadKeys(*file);
  AddGrammars(text->tokenizer(), grammars, model);
  model.text = std::move(text);
  return model;
}

}  // namespace sluice::serving
