#include "common/model_config/config_difference.h"

#include "common/base/cat.h"

namespace sluice {
namespace {

// Returns what differs between two layers; empty: nothing.
const char* LayerDifference(const LayerConfig& a, const LayerConfig& b) {
  if (a == b) return "";
  if (a.is_sparse() != b.is_sparse()) return "kind (dense or sparse)";
  if (a.attention.window != b.attention.window) return "attention window";
  if (a.attention.rope != b.attention.rope) return "RoPE";
  if (a.attention.scale != b.attention.scale) return "scale of attention";
  if (!(a.attention == b.attention)) return "attention's biases or norms";
  return a.moe == b.moe ? "norms or MLP" : "experts";
}

}  // namespace

std::string DifferenceOf(const ModelConfig& wanted, const ModelConfig& made) {
  if (made.num_layers() != wanted.num_layers()) return "num_hidden_layers";
  for (size_t i = 0; i < made.layers.size(); ++i) {
    const std::string part = LayerDifference(wanted.layers[i], made.layers[i]);
    if (!part.empty()) return Cat("layer ", i, "'s ", part);
  }
  if (made.embedding_scale != wanted.embedding_scale) {
    return "embedding's scale";
  }
  if (made.logit_scale != wanted.logit_scale ||
      made.logit_soft_cap != wanted.logit_soft_cap) {
    return "scale or cap of logits";
  }
  if (made.tie_word_embeddings != wanted.tie_word_embeddings) {
    return "tie_word_embeddings";
  }
  return made.vocab_size != wanted.vocab_size ? "vocab_size" : "";
}

}  // namespace sluice
