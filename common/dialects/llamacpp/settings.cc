#include "common/dialects/llamacpp/settings.h"

#include "common/base/json.h"

namespace sluice::llamacpp {

Json SettingsJson(const SamplingParams& sampling, const CompletionBody& body,
                  int64_t n_ctx) {
  const serving::GenerationFields& fields = body.fields;
  Json biases = Json::array();
  for (const LogitBias& bias : sampling.logit_bias) {
    biases.push_back(Json::array({bias.token, bias.bias}));
  }
  const int64_t most = fields.max_tokens.value_or(-1);
  return {{"n_ctx", n_ctx},
          {"n_predict", most},
          {"max_tokens", most},
          {"min_tokens", fields.min_tokens},
          {"seed", sampling.seed},
          {"temperature", sampling.temperature},
          {"dynatemp_range", 0.0},
          {"dynatemp_exponent", 1.0},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"xtc_probability", 0.0},
          {"typical_p", 1.0},
          {"repeat_last_n", -1},
          {"repeat_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"dry_multiplier", 0.0},
          {"mirostat", 0},
          {"stop", fields.stop},
          {"n_keep", 0},
          {"n_discard", 0},
          {"ignore_eos", fields.ignore_eos},
          {"stream", fields.stream},
          {"n_probs", fields.logprobs.value_or(0)},
          {"min_keep", 0},
          {"grammar", fields.grammar && fields.grammar->name == "grammar"
                          ? fields.grammar->spec.text
                          : ""},
          {"logit_bias", std::move(biases)},
          {"samplers", {"penalties", "temperature", "top_k", "top_p", "min_p"}},
          {"timings_per_token", body.timings_per_token},
          {"post_sampling_probs", false},
          {"lora", Json::array()}};
}

}  // namespace sluice::llamacpp
