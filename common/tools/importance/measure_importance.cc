#include "common/tools/importance/measure_importance.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "common/model_config/open_model.h"
#include "common/stage/stage.h"
#include "common/tools/importance/column_squares.h"

namespace sluice {
namespace {

// Computes one chunk as a sequence of its own, in the stage's first blocks.
void RunChunk(Stage& stage, int64_t number, std::span<const TokenId> tokens) {
  Stage::SequenceState state;
  state.num_prompt_tokens = static_cast<int32_t>(tokens.size());
  state.tokens.assign(tokens.begin(), tokens.end());
  std::vector<BlockId> blocks;
  for (size_t at = 0; at < tokens.size(); at += kBlockTokens) {
    blocks.push_back(BlockId(static_cast<int32_t>(blocks.size())));
  }
  state.blocks.assign(static_cast<size_t>(stage.info().limits.num_kv_groups),
                      blocks);
  Chunk chunk;
  chunk.sequence = SequenceId(static_cast<uint64_t>(number) + 1);
  chunk.tokens = state.tokens;
  HiddenStates out;
  std::vector<SequenceResult> results;
  stage.Run({{&chunk, &state}}, {}, out, results);
}

std::vector<float> MeansOf(const ColumnSquares& squares) {
  std::vector<float> means;
  means.reserve(squares.sums.size());
  for (const double sum : squares.sums) {
    means.push_back(
        static_cast<float>(sum / static_cast<double>(squares.rows)));
  }
  return means;
}

// Gives each tensor of a weight the importance of the weight's columns.
weights::Importance ByName(const ModelConfig& config,
                           const weights::ModelFile& model,
                           const SquaresByWeight& squares) {
  weights::Importance named;
  const ExpertStorage storage = ExpertStorageOf(config, model);
  for (const auto& [key, sums] : squares) {
    for (const WeightRows& weight : WeightsOf(config, key.layer, storage)) {
      if (weight.place != key.place) continue;
      for (const TensorRow* row : weight.rows) {
        const std::string name = NameOf(*row, key.layer, key.expert);
        const bool is_stacked = row->cut == RankCut::kExperts;
        named[is_stacked && !row->per_expert()
                  ? weights::StackedName(name, key.expert)
                  : name] = MeansOf(sums);
      }
    }
  }
  return named;
}

}  // namespace

StatusOr<weights::Importance> MeasureImportance(
    const std::string& model, std::span<const TokenId> tokens,
    const ImportanceOptions& options) {
  if (tokens.empty()) return InvalidArgument("importance: the text is empty");
  SLUICE_ASSIGN_OR_RETURN(const auto file, OpenModel(model));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(file->config()));
  for (const TokenId token : tokens) {
    if (token >= 0 && token < config.vocab_size) continue;
    return InvalidArgument("importance: token ", token,
                           " is not in the vocabulary of ", config.vocab_size);
  }
  for (const LayerConfig& layer : config.layers) {
    // What a product reads is told by the operations of attention.
    if (layer.attention.present && !layer.state.present()) continue;
    return Unimplemented("importance: model_type '", config.model_type,
                         "' has layers with a state or without attention, for "
                         "which it is not measured yet");
  }
  SquaresByWeight squares;
  StageOptions stage_options;
  stage_options.model_path = model;
  stage_options.threads = options.threads;
  stage_options.max_context =
      std::min(options.context, config.max_position_embeddings);
  stage_options.max_step_tokens = stage_options.max_context;
  stage_options.max_sequences = 1;
  stage_options.kv_blocks =
      (stage_options.max_context + kBlockTokens - 1) / kBlockTokens;
  stage_options.make_backends = RecordingBackends(&squares);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Stage> stage,
                          Stage::Load(stage_options));
  const auto most = static_cast<size_t>(stage_options.max_context);
  for (size_t done = 0; done < tokens.size(); done += most) {
    const size_t count = std::min(most, tokens.size() - done);
    RunChunk(*stage, static_cast<int64_t>(done), tokens.subspan(done, count));
    if (options.progress) {
      options.progress(static_cast<int64_t>(done + count),
                       static_cast<int64_t>(tokens.size()));
    }
  }
  return ByName(config, *file, squares);
}

}  // namespace sluice
