#include "common/dialects/openai/common_fields.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "common/dialects/openai/grammar_fields.h"
#include "common/dialects/openai/parse.h"
#include "common/http/message.h"
#include "common/serving/request_fields.h"

namespace sluice::openai {
namespace {

namespace rows = serving::rows;
using Fields = serving::GenerationFields;

static_assert(serving::kMaxClientStopTokenIds < size_t{kMaxStopTokenIds});

constexpr serving::RequestField kCommon[] = {
    rows::kModel,
    rows::kTemperature,
    rows::kTopP,
    rows::kTopK,
    rows::kMinP,
    rows::kSeed,
    rows::kFrequencyPenalty,
    rows::kPresencePenalty,
    rows::kRepetitionPenalty,
    rows::kStop,
    rows::kStopTokenIds,
    rows::kIgnoreEos,
    rows::kMinTokens,
    rows::kAllowedTokenIds,
    rows::kBadWords,
    rows::Sets("logprob_token_ids", &Fields::logprob_token_ids, 0,
               kMaxLogprobTokenIds),
    rows::Sets("include_stop_str_in_output", &Fields::include_stop),
    rows::kStream,
    rows::kPingInterval,
    rows::Sets("truncate_prompt_tokens", &Fields::truncate_prompt, -1,
               rows::kMost),
    rows::Sets("skip_special_tokens", &Fields::skip_special),
    rows::Sets("timings_per_token", &Fields::timings),
    rows::Sets("return_token_ids", &Fields::return_token_ids),
    rows::Sets("return_tokens_as_token_ids", &Fields::tokens_as_token_ids),
    rows::kPriority,
    rows::kCacheSalt,
    rows::Sets("request_id", &Fields::request_id)};

void ReadStreamOptions(serving::FieldReader& in,
                       serving::GenerationFields& out) {
  const Json* options = in.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    in.Refuse("stream_options", "must be an object, got ",
              serving::Describe(*options));
    return;
  }
  if (!out.stream) {
    in.Refuse("stream_options", "only allowed with \"stream\": true");
    return;
  }
  serving::FieldReader sub(*options, "stream_options.");
  out.include_usage = sub.Bool("include_usage").value_or(false);
  const bool continuous = sub.Bool("continuous_usage_stats").value_or(false);
  out.continuous_usage = out.include_usage && continuous;
  if (!sub.status().ok()) in.Refuse("stream_options", Message(sub.status()));
}

// Returns the id that `key` spells, without sign and leading zeros; else -1.
int64_t IdOfKey(const std::string& key) {
  int64_t id = -1;
  const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool whole = end.ec == std::errc() &&
                     end.ptr == key.data() + key.size() && key[0] != '-';
  return whole && (key.size() == 1 || key[0] != '0') ? id : -1;
}

// {"id": bias, ..}, sorted by id.
std::vector<LogitBias> ReadLogitBias(serving::FieldReader& in, int vocab_size) {
  const Json* map = in.Find("logit_bias");
  std::vector<LogitBias> out;
  if (map == nullptr) return out;
  if (!map->is_object()) {
    in.Refuse("logit_bias", "must be an object, got ", serving::Describe(*map));
    return out;
  }
  if (map->size() > kMaxLogitBiases) {
    in.Refuse("logit_bias", "has ", map->size(), " entries, limit ",
              kMaxLogitBiases);
    return out;
  }
  for (const auto& [key, value] : map->items()) {
    const int64_t id = IdOfKey(key);
    if (id < 0 || id >= vocab_size) {
      in.Refuse("logit_bias", "each key must be a token id from 0 to ",
                vocab_size - 1, ", entry ", out.size(),
                id < 0 ? std::string(" is none") : Cat(" is ", id));
      return {};
    }
    const bool in_range = value.is_number() &&
                          value.get<double>() >= -kMaxLogitBias &&
                          value.get<double>() <= kMaxLogitBias;
    if (!in_range) {
      in.Refuse("logit_bias", "the bias of token ", id,
                " must be a number from ", -kMaxLogitBias, " to ",
                kMaxLogitBias, ", got ", serving::Describe(value));
      return {};
    }
    out.push_back({static_cast<TokenId>(id), value.get<float>()});
  }
  std::sort(out.begin(), out.end(), [](const LogitBias& a, const LogitBias& b) {
    return a.token < b.token;
  });
  return out;
}

// Reads repetition_penalty by its other name, which must not contradict it.
void ReadRepeatPenalty(serving::FieldReader& in,
                       serving::GenerationFields& out) {
  const auto alias =
      in.Number("repeat_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty);
  const auto& penalty = out.repetition_penalty;
  if (penalty && alias && *penalty != *alias) {
    in.Refuse("repeat_penalty", "is another name of repetition_penalty, which ",
              "is ", *penalty, "; got ", *alias);
  }
  if (!penalty) out.repetition_penalty = alias;
}

// Reads the limit of an answer's length by all its names. -1 counts as absent,
// but as llama.cpp's n_predict it is a limit: what the context leaves.
void ReadMaxTokens(serving::FieldReader& in, serving::GenerationFields& out) {
  constexpr std::string_view kFillsContext = "n_predict";
  std::optional<int64_t> limit;
  for (const std::string_view name :
       {std::string_view("max_tokens"),
        std::string_view("max_completion_tokens"),
        std::string_view("max_output_tokens"),
        std::string_view("max_new_tokens"), kFillsContext}) {
    const auto value = in.Int(name, -1, serving::kMaxInt32);
    if (!value || (*value == -1 && name != kFillsContext)) continue;
    if (limit && *limit != *value) {
      in.Refuse(name, "is another name of ", out.max_tokens_field,
                ", which is ", *limit, "; got ", *value);
      return;
    }
    if (!limit) out.max_tokens_field = name;
    limit = value;
  }
  out.fills_context = limit == -1;
  if (limit && !out.fills_context) out.max_tokens = limit;
}

// llama.cpp's number of tokens that penalties look at; here all of them.
void ReadPenaltyWindow(serving::FieldReader& in,
                       const serving::GenerationFields& fields) {
  const auto tokens = in.Int("repeat_last_n", -1, serving::kMaxInt32);
  const bool penalizes = fields.repetition_penalty.value_or(1) != 1 ||
                         fields.frequency_penalty.value_or(0) != 0 ||
                         fields.presence_penalty.value_or(0) != 0;
  if (!tokens || *tokens == -1 || !penalizes) return;
  in.Refuse("repeat_last_n", "must be -1 beside a penalty: penalties look at ",
            "the whole prompt and completion, got ", *tokens);
}

// Reads n and best_of; 1 and n ask for nothing more.
void ReadChoices(serving::FieldReader& in, serving::GenerationFields& out) {
  out.n = static_cast<int>(in.Int("n", 1, serving::kMaxChoices).value_or(1));
  const auto best_of =
      in.Int("best_of", 1, static_cast<int64_t>(serving::kMaxChoices));
  if (!best_of || *best_of == 1 || *best_of == out.n) return;
  if (*best_of < out.n) {
    in.Refuse("best_of", "must not be below n, ", out.n, ", got ", *best_of);
  }
  out.best_of = static_cast<int>(*best_of);
}

}  // namespace

serving::GenerationFields ReadCommonFields(serving::FieldReader& in,
                                           int vocab_size,
                                           const serving::FieldNames& names) {
  serving::GenerationFields out(names);
  ReadMaxTokens(in, out);
  serving::ReadFields(in, kCommon, serving::kAnyPlace, vocab_size, out);
  ReadRepeatPenalty(in, out);
  ReadPenaltyWindow(in, out);
  out.logit_bias = ReadLogitBias(in, vocab_size);
  ReadChoices(in, out);
  ReadStreamOptions(in, out);
  if (const auto k = in.Int("prompt_logprobs", 0, kMaxTopLogprobs)) {
    out.prompt_logprobs = static_cast<int>(*k);
  }
  if (out.truncate_prompt == 0) {
    in.Refuse("truncate_prompt_tokens", "must be -1 or at least 1, got 0");
  }
  in.Bool("spaces_between_special_tokens");  // our decoders never add spaces
  if (!out.request_id.empty() &&
      http::SanitizedRequestId(out.request_id) != out.request_id) {
    in.Refuse("request_id", "must be 1 to 128 of A-Z a-z 0-9 . _ : -");
  }
  out.grammar = ReadGrammarFields(in);
  return out;
}

void CheckLogprobTokenIds(serving::FieldReader& in,
                          serving::GenerationFields& fields) {
  constexpr std::string_view kName = "logprob_token_ids";
  std::vector<TokenId>& ids = fields.logprob_token_ids;
  if (ids.empty()) return;
  if (!fields.logprobs) {
    in.Refuse(kName, "needs ", fields.names->logprobs);
  } else if (fields.max_tokens == 0) {
    in.Refuse(kName, "is about tokens of the completion, and ",
              fields.max_tokens_field, " is 0");
  }
  std::vector<TokenId> once;
  for (const TokenId id : ids) {
    if (std::find(once.begin(), once.end(), id) == once.end()) {
      once.push_back(id);
    }
  }
  ids = std::move(once);
}

void CheckTogether(serving::FieldReader& in,
                   const serving::GenerationFields& fields,
                   size_t num_prompts) {
  serving::CheckMinTokens(in, fields);
  if (fields.stream && fields.prompt_logprobs) {
    in.Refuse("prompt_logprobs", "not available with \"stream\": true");
  }
  if (fields.best_of > 0 && (fields.stream || fields.timings)) {
    in.Refuse("best_of", "not available with ",
              fields.stream ? "\"stream\": true" : "timings_per_token");
  }
  const bool hides = fields.best_of > 0;
  const size_t choices =
      num_prompts * static_cast<size_t>(hides ? fields.best_of : fields.n);
  if (choices > serving::kMaxChoices) {
    in.Refuse(hides ? "best_of" : "n", num_prompts, " prompts of ",
              hides ? fields.best_of : fields.n, " choices are ", choices,
              ", limit ", serving::kMaxChoices);
  }
}

}  // namespace sluice::openai
