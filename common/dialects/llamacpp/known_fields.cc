#include "common/dialects/llamacpp/known_fields.h"

#include <limits>
#include <vector>

#include "common/serving/plain_body.h"

namespace sluice::llamacpp {
namespace {

namespace rows = serving::rows;
using rows::Ignored;
using rows::Own;
using rows::Unbuilt;

constexpr double kFar = std::numeric_limits<float>::max();

constexpr serving::RequestField kFields[] = {
    rows::kModel.Silent(),
    Own("prompt"),
    Own("input_prefix").At(kInfill),
    Own("input_suffix").At(kInfill),
    Own("input_extra").At(kInfill),
    Own("n_predict"),
    Own("max_tokens"),
    rows::kMinTokens,
    Own("n_cmpl"),
    Own("n"),
    rows::kTemperature.Within(-kFar, 2),
    rows::kTopK.Within(-rows::kMost, rows::kMost),
    rows::kTopP,
    rows::kMinP,
    rows::kSeed,
    rows::kRepetitionPenalty.Named("repeat_penalty"),
    Own("repeat_last_n"),
    rows::kPresencePenalty,
    rows::kFrequencyPenalty,
    Own("logit_bias"),
    rows::kStop,
    rows::kIgnoreEos,
    Own("grammar").Constrains(),
    Own("json_schema").Constrains(),
    Own("n_probs"),
    rows::kStream,
    rows::kPingInterval.Silent(),
    Own("return_tokens"),
    Own("timings_per_token"),
    Own("response_fields"),
    // What is kept of a prompt, and where it runs, changes no token here.
    Ignored("cache_prompt"),
    Ignored("id_slot"),
    Ignored("n_keep"),
    Ignored("n_discard"),
    Ignored("n_cache_reuse"),
    // Parameters of samplers that are off.
    Ignored("dynatemp_exponent"),
    Ignored("dry_base"),
    Ignored("dry_allowed_length"),
    Ignored("dry_penalty_last_n"),
    Ignored("dry_sequence_breakers"),
    Ignored("xtc_threshold"),
    Ignored("mirostat_tau"),
    Ignored("mirostat_eta"),
    Unbuilt("dynatemp_range", "[0]"),
    Unbuilt("dry_multiplier", "[0]"),
    Unbuilt("xtc_probability", "[0]"),
    Unbuilt("mirostat", "[0]"),
    Unbuilt("typical_p", "[1]"),
    Unbuilt("top_n_sigma", "[0, -1]"),
    Unbuilt("samplers", "[[]]"),
    Unbuilt("min_keep", "[0, 1]"),
    Unbuilt("n_indent", "[0]"),
    Unbuilt("t_max_predict_ms", "[0, -1]"),
    Unbuilt("post_sampling_probs", "[false]"),
    Unbuilt("return_progress", "[false]"),
    Unbuilt("lora", "[[]]"),
    Unbuilt("grammar_lazy", "[false]"),
    Unbuilt("grammar_triggers", "[[]]"),
    Unbuilt("image_data", "[[]]"),
};

constexpr serving::PlainValue kPlainValues[] = {{"grammar", R"("")"}};

}  // namespace

serving::FieldTable KnownFields() { return kFields; }

bool IsPlainBody(std::string_view body) {
  static const auto* const names =
      new std::vector<std::string_view>(serving::PlainNames(kFields));
  return serving::IsPlainBody(body, *names, kPlainValues);
}

}  // namespace sluice::llamacpp
