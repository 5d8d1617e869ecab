#include "common/dialects/llamacpp/known_fields.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "common/base/json.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"

namespace sluice::llamacpp {
namespace {

// The bytes of an unknown field's name in an error.
constexpr size_t kMaxShownName = 64;

constexpr KnownField kFields[] = {
    {"model"},
    {"prompt"},
    {"input_prefix", FieldUse::kBuilt, {}, true},
    {"input_suffix", FieldUse::kBuilt, {}, true},
    {"input_extra", FieldUse::kBuilt, {}, true},
    {"n_predict"},
    {"max_tokens"},
    {"min_tokens"},
    {"n_cmpl"},
    {"n"},
    {"temperature"},
    {"top_k"},
    {"top_p"},
    {"min_p"},
    {"seed"},
    {"repeat_penalty"},
    {"repeat_last_n"},
    {"presence_penalty"},
    {"frequency_penalty"},
    {"logit_bias"},
    {"stop"},
    {"ignore_eos"},
    {"grammar"},
    {"json_schema"},
    {"n_probs"},
    {"stream"},
    {"sse_ping_interval"},
    {"return_tokens"},
    {"timings_per_token"},
    {"response_fields"},
    // What is kept of a prompt, and where it runs, changes no token here.
    {"cache_prompt", FieldUse::kIgnored},
    {"id_slot", FieldUse::kIgnored},
    {"n_keep", FieldUse::kIgnored},
    {"n_discard", FieldUse::kIgnored},
    {"n_cache_reuse", FieldUse::kIgnored},
    // Parameters of samplers that are off.
    {"dynatemp_exponent", FieldUse::kIgnored},
    {"dry_base", FieldUse::kIgnored},
    {"dry_allowed_length", FieldUse::kIgnored},
    {"dry_penalty_last_n", FieldUse::kIgnored},
    {"dry_sequence_breakers", FieldUse::kIgnored},
    {"xtc_threshold", FieldUse::kIgnored},
    {"mirostat_tau", FieldUse::kIgnored},
    {"mirostat_eta", FieldUse::kIgnored},
    {"dynatemp_range", FieldUse::kUnbuilt, "[0]"},
    {"dry_multiplier", FieldUse::kUnbuilt, "[0]"},
    {"xtc_probability", FieldUse::kUnbuilt, "[0]"},
    {"mirostat", FieldUse::kUnbuilt, "[0]"},
    {"typical_p", FieldUse::kUnbuilt, "[1]"},
    {"top_n_sigma", FieldUse::kUnbuilt, "[0, -1]"},
    {"samplers", FieldUse::kUnbuilt, "[[]]"},
    {"min_keep", FieldUse::kUnbuilt, "[0, 1]"},
    {"n_indent", FieldUse::kUnbuilt, "[0]"},
    {"t_max_predict_ms", FieldUse::kUnbuilt, "[0, -1]"},
    {"post_sampling_probs", FieldUse::kUnbuilt, "[false]"},
    {"return_progress", FieldUse::kUnbuilt, "[false]"},
    {"lora", FieldUse::kUnbuilt, "[[]]"},
    {"grammar_lazy", FieldUse::kUnbuilt, "[false]"},
    {"grammar_triggers", FieldUse::kUnbuilt, "[[]]"},
    {"image_data", FieldUse::kUnbuilt, "[[]]"},
};

}  // namespace

std::vector<KnownField> KnownFields() {
  return {std::begin(kFields), std::end(kFields)};
}

Status RefuseUnbuiltFields(const Json& body) {
  for (const KnownField& field : kFields) {
    if (field.use != FieldUse::kUnbuilt) continue;
    const auto found = body.find(std::string(field.name));
    if (found == body.end() || found->is_null()) continue;
    const Json neutral = *ParseJson(field.neutral);
    const bool is_neutral =
        std::find(neutral.begin(), neutral.end(), *found) != neutral.end();
    if (is_neutral) continue;
    return serving::WithCode(
        serving::FieldError(field.name,
                            "not supported; leave it out, or one of ",
                            field.neutral, "; got ", serving::Describe(*found)),
        "unsupported_parameter");
  }
  return OkStatus();
}

Status RefuseUnknownFields(const Json& body, bool infill) {
  size_t index = 0;
  for (const auto& item : body.items()) {
    const bool known = std::any_of(
        std::begin(kFields), std::end(kFields), [&](const KnownField& field) {
          return field.name == item.key() && (infill || !field.infill_alone);
        });
    ++index;
    if (known) continue;
    return serving::WithCode(
        serving::FieldError(item.key().substr(0, kMaxShownName), "field ",
                            index, " of the body is not known here"),
        "unknown_parameter");
  }
  return OkStatus();
}

}  // namespace sluice::llamacpp
