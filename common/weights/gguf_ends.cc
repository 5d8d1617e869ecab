#include "common/weights/gguf_ends.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace sluice::weights {
namespace {

constexpr std::string_view kEnds[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>",
    "<|call|>", "<|end_of_text|>", "<|endoftext|>", "<|end_of_turn|>",
    "<end_of_turn>", "<turn|>", "<end_of_utterance>", "<EOT>", "_<EOT>",
    "[EOT]", "[EOS]", "<|END_OF_TURN_TOKEN|>",
    // DeepSeek's "<|end_of_sentence|>", with wide bars and low blocks.
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

constexpr int64_t kNormal = 1;  // a token's type

}  // namespace

bool EndsATurn(std::string_view text) {
  return std::find(std::begin(kEnds), std::end(kEnds), text) != std::end(kEnds);
}

std::vector<int64_t> EndsByText(const GgufMetadata& metadata) {
  std::vector<int64_t> ids;
  const auto* tokens = metadata.Find("tokenizer.ggml.tokens");
  const auto* kinds = metadata.Find("tokenizer.ggml.token_type");
  if (tokens == nullptr || kinds == nullptr) return ids;
  const auto* texts = std::get_if<std::vector<std::string>>(&tokens->value);
  const auto* types = std::get_if<std::vector<int64_t>>(&kinds->value);
  if (texts == nullptr || types == nullptr) return ids;
  // Harmony's <|end|> ends a message, and another one follows.
  const bool is_harmony =
      std::find(texts->begin(), texts->end(), "<|return|>") != texts->end();
  for (size_t id = 0; id < std::min(texts->size(), types->size()); ++id) {
    const std::string& text = (*texts)[id];
    if ((*types)[id] == kNormal || !EndsATurn(text)) continue;
    if (is_harmony && text == "<|end|>") continue;
    ids.push_back(static_cast<int64_t>(id));
  }
  return ids;
}

}  // namespace sluice::weights
