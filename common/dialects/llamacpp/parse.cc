#include "common/dialects/llamacpp/parse.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "common/dialects/llamacpp/known_fields.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/request_body.h"
#include "common/serving/request_fields.h"
#include "common/serving/request_limits.h"

namespace sluice::llamacpp {
namespace {

using serving::Describe;
using serving::FieldReader;
using serving::GenerationFields;

// llama.cpp's seed that stands for a drawn one, beside -1.
constexpr uint64_t kRandomSeed = 0xffffffff;

void ReadMaxTokens(FieldReader& in, GenerationFields& out) {
  const auto limit = in.Int("n_predict", -2, serving::kMaxInt32);
  const auto other = in.Int("max_tokens", -2, serving::kMaxInt32);
  if (limit && other && *limit != *other) {
    in.Refuse("max_tokens", "is another name of n_predict, which is ", *limit,
              "; got ", *other);
  }
  if (!limit && other) out.max_tokens_field = "max_tokens";
  const int64_t most = limit ? *limit : other.value_or(-1);
  if (most >= 0) out.max_tokens = most;
  out.fills_context = most < 0;
  out.cuts_max_tokens = true;
}

// Collects the biases of tokens; those of one token add up.
class BiasReader {
 public:
  BiasReader(FieldReader& in, const serving::ModelText& text, int vocab_size)
      : in_(in), text_(text), vocab_size_(vocab_size) {}

  void Read() {
    const Json* biases = in_.Find("logit_bias");
    if (biases == nullptr) return;
    if (!biases->is_structured()) {
      return Refuse("must be an array or an object, got ", Describe(*biases));
    }
    if (biases->size() > size_t{kMaxLogitBiases}) {
      return Refuse("has ", biases->size(), " entries, limit ",
                    kMaxLogitBiases);
    }
    size_t entry = 0;
    for (const auto& [key, value] : biases->items()) {
      if (biases->is_object()) {
        AddEntry(entry, KeyOf(key), value);
      } else if (value.is_array() && value.size() == 2) {
        AddEntry(entry, value[0], value[1]);
      } else {
        Refuse("entry ", entry, " must be [token id or text, bias], got ",
               Describe(value));
      }
      if (!in_.status().ok()) return;
      ++entry;
    }
  }

  std::vector<LogitBias> Take() {
    std::vector<LogitBias> out;
    for (const auto& [token, bias] : sums_) {
      if (std::abs(bias) > kMaxLogitBias) {
        Refuse("the biases of token ", token, " add up to ", bias, ", limit ",
               kMaxLogitBias);
      }
      out.push_back({token, static_cast<float>(bias)});
    }
    if (out.size() > size_t{kMaxLogitBiases}) {
      Refuse("is for ", out.size(), " tokens, limit ", kMaxLogitBiases);
    }
    return out;
  }

 private:
  template <typename... Parts>
  void Refuse(const Parts&... parts) {
    in_.Refuse("logit_bias", parts...);
  }

  // A key that is a number is a token's id.
  static Json KeyOf(const std::string& key) {
    int64_t id = 0;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole =
        end.ec == std::errc() && end.ptr == key.data() + key.size();
    return whole ? Json(id) : Json(key);
  }

  void AddEntry(size_t entry, const Json& token, const Json& value) {
    // false: the token never comes.
    const bool never = value == false;
    const double bias = never               ? -double{kMaxLogitBias}
                        : value.is_number() ? value.get<double>()
                                            : kFar;
    if (std::abs(bias) > kMaxLogitBias) {
      return Refuse("the bias of entry ", entry, " must be false or a number ",
                    "from ", -kMaxLogitBias, " to ", kMaxLogitBias, ", got ",
                    Describe(value));
    }
    if (token.is_string()) return AddText(entry, token, bias);
    const auto ids =
        serving::ParseTokenIds(Json::array({token}), "logit_bias", vocab_size_);
    if (!ids.ok()) {
      return Refuse("entry ", entry, " must have a text or a token id from 0 ",
                    "to ", vocab_size_ - 1, ", got ", Describe(token));
    }
    sums_[ids->front()] += bias;
  }

  void AddText(size_t entry, const Json& token, double bias) {
    const auto& text = token.get_ref<const std::string&>();
    if (text.size() > kMaxBiasTextBytes) {
      return Refuse("the text of entry ", entry, " has ", text.size(),
                    " bytes, limit ", kMaxBiasTextBytes);
    }
    const auto ids = text_.EncodePlain(text);
    if (!ids.ok()) {
      return Refuse("entry ", entry, ": ", Message(ids.status()));
    }
    for (const TokenId id : *ids) sums_[id] += bias;
  }

  FieldReader& in_;
  const serving::ModelText& text_;
  const int vocab_size_;
  std::map<TokenId, double> sums_;
};

void ReadSampling(FieldReader& in, const serving::ModelText& text,
                  int vocab_size, int place, GenerationFields& out) {
  serving::ReadFields(in, KnownFields(), place, vocab_size, out);
  serving::CheckMinTokens(in, out);
  if (out.seed == UINT64_MAX || out.seed == kRandomSeed) out.seed.reset();
  serving::ReadPenaltyWindow(in, "repeat_last_n", out);
  BiasReader biases(in, text, vocab_size);
  biases.Read();
  out.logit_bias = biases.Take();
}

// An empty grammar is none.
void ReadGrammar(FieldReader& in, GenerationFields& out) {
  const auto grammar = in.String("grammar");
  if (grammar && !grammar->empty()) {
    out.grammar = {"grammar", {GrammarSpec::Kind::kGbnf, *grammar}};
  }
  if (const Json* schema = in.Find("json_schema")) {
    serving::SetSchema(in, "json_schema", *schema, out);
  }
}

void ReadChoices(FieldReader& in, GenerationFields& out) {
  const auto most = static_cast<int64_t>(serving::kMaxChoices);
  const auto choices = in.Int("n_cmpl", 1, most);
  const auto other = in.Int("n", 1, most);
  if (choices && other && *choices != *other) {
    in.Refuse("n", "is another name of n_cmpl, which is ", *choices, "; got ",
              *other);
  }
  out.n = static_cast<int>(choices ? *choices : other.value_or(1));
}

void ReadShape(FieldReader& in, CompletionBody& out) {
  GenerationFields& fields = out.fields;
  if (const auto tops = in.Int("n_probs", 0, kMaxTopLogprobs);
      tops.value_or(0) > 0) {
    fields.logprobs = static_cast<int>(*tops);
  }
  out.return_tokens = in.Bool("return_tokens").value_or(false);
  // The chunks of a stream have their tokens.
  fields.return_token_ids = out.return_tokens || fields.stream;
  fields.timings = true;
  out.timings_per_token = in.Bool("timings_per_token").value_or(false);
  out.response_fields =
      in.Strings("response_fields", kMaxResponseFields, kMaxResponseFields)
          .value_or(out.response_fields);
}

// Returns the text of {"prompt_string", "multimodal_data"}.
StatusOr<std::string> ParsePromptObject(const Json& prompt,
                                        const std::string& where) {
  const auto text = prompt.find("prompt_string");
  const auto data = prompt.find("multimodal_data");
  const bool has_data =
      data != prompt.end() && !data->is_null() && !data->empty();
  if (has_data) {
    return serving::WithCode(
        serving::FieldError("prompt", where, "multimodal_data is not ",
                            "supported: this model reads text"),
        "unsupported_content");
  }
  if (text == prompt.end() || !text->is_string()) {
    return serving::FieldError("prompt", where,
                               "prompt_string must be a string");
  }
  return text->get<std::string>();
}

// `where` is empty or ends in a space.
StatusOr<PromptParts> ParsePrompt(const Json& prompt, const std::string& where,
                                  int vocab_size) {
  if (prompt.is_string()) return PromptParts{prompt.get<std::string>()};
  if (prompt.is_object()) {
    SLUICE_ASSIGN_OR_RETURN(std::string text, ParsePromptObject(prompt, where));
    return PromptParts{std::move(text)};
  }
  if (!prompt.is_array()) {
    return serving::FieldError("prompt", where,
                               "must be a string, an object with ",
                               "prompt_string, or an array of strings and ",
                               "token ids, got ", Describe(prompt));
  }
  if (prompt.empty()) {
    return serving::FieldError("prompt", where, "must not be empty");
  }
  PromptParts parts;
  std::vector<TokenId> tokens;
  const auto flush = [&] {
    if (!tokens.empty()) parts.emplace_back(std::exchange(tokens, {}));
  };
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i].is_string()) {
      flush();
      parts.emplace_back(prompt[i].get<std::string>());
      if (parts.size() > kMaxPromptParts) {
        return serving::FieldError("prompt", where, "has more than ",
                                   kMaxPromptParts, " texts between tokens");
      }
      continue;
    }
    const auto id =
        serving::ParseTokenIds(Json::array({prompt[i]}), "prompt", vocab_size);
    if (!id.ok()) {
      return serving::FieldError("prompt", where, "entry ", i,
                                 " must be a string or a token id from 0 to ",
                                 vocab_size - 1, ", got ", Describe(prompt[i]));
    }
    tokens.push_back(id->front());
  }
  flush();
  return parts;
}

// An array that has a token is one prompt; else each entry is a prompt.
bool IsOnePrompt(const Json& prompt) {
  return !prompt.is_array() || prompt.empty() ||
         std::any_of(prompt.begin(), prompt.end(),
                     [](const Json& entry) { return entry.is_number(); });
}

Status ReadPrompts(const Json& body, int vocab_size, CompletionBody& out) {
  const auto prompt = body.find("prompt");
  if (prompt == body.end() || prompt->is_null()) {
    return serving::FieldError("prompt", "is missing");
  }
  if (IsOnePrompt(*prompt)) {
    SLUICE_ASSIGN_OR_RETURN(PromptParts parts,
                            ParsePrompt(*prompt, "", vocab_size));
    out.prompts.push_back(std::move(parts));
    out.is_list = out.fields.n > 1;
    return OkStatus();
  }
  if (prompt->size() > kMaxPrompts) {
    return serving::FieldError("prompt", "has ", prompt->size(),
                               " prompts, limit ", kMaxPrompts);
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        PromptParts parts,
        ParsePrompt((*prompt)[i], Cat("prompt ", i, ": "), vocab_size));
    out.prompts.push_back(std::move(parts));
  }
  const size_t choices = out.prompts.size() * static_cast<size_t>(out.fields.n);
  if (choices > serving::kMaxChoices) {
    return serving::FieldError("n_cmpl", out.prompts.size(), " prompts of ",
                               out.fields.n, " choices are ", choices,
                               ", limit ", serving::kMaxChoices);
  }
  out.is_list = choices > 1;
  return OkStatus();
}

void ReadExtra(FieldReader& in, serving::InfillParts& out) {
  const Json* extra = in.Find("input_extra");
  if (extra == nullptr) return;
  if (!extra->is_array()) {
    return in.Refuse("input_extra", "must be an array of {\"filename\", ",
                     "\"text\"}, got ", Describe(*extra));
  }
  if (extra->size() > kMaxExtraFiles) {
    return in.Refuse("input_extra", "has ", extra->size(), " files, limit ",
                     kMaxExtraFiles);
  }
  for (size_t i = 0; i < extra->size(); ++i) {
    const Json& file = (*extra)[i];
    if (!file.is_object()) {
      return in.Refuse("input_extra", "entry ", i, " must be an object, got ",
                       Describe(file));
    }
    FieldReader part(file, Cat("input_extra[", i, "]."));
    auto text = part.String("text");
    if (!text) part.Refuse("text", "is missing");
    auto name = part.String("filename");
    in.Keep(part.status());
    if (!part.status().ok()) return;
    out.extra.push_back({std::move(name).value_or("tmp"), *std::move(text)});
  }
}

void ReadInfill(FieldReader& in, CompletionBody& out) {
  auto prefix = in.String("input_prefix");
  auto suffix = in.String("input_suffix");
  if (!prefix) in.Refuse("input_prefix", "is missing");
  if (!suffix) in.Refuse("input_suffix", "is missing");
  ReadExtra(in, out.infill);
  out.infill.prefix = {"input_prefix", std::move(prefix).value_or("")};
  out.infill.suffix = {"input_suffix", std::move(suffix).value_or("")};
  out.infill.begin = {"prompt", in.String("prompt").value_or("")};
  out.infill.extra_field = "input_extra";
  out.infill.names_files = true;
  out.is_list = out.fields.n > 1;
}

StatusOr<CompletionBody> Parse(std::string_view body,
                               const serving::ModelText& text, int vocab_size,
                               bool strict, bool infill) {
  JsonBudget budget;
  serving::RoundedNumbers rounded;
  SLUICE_ASSIGN_OR_RETURN(const Json json,
                          serving::ParseBody(body, budget, &rounded));
  const int place = infill ? kInfill : kCompletion;
  SLUICE_RETURN_IF_ERROR(serving::CheckFields(
      json, KnownFields(), {.place = place, .strict = strict}));
  FieldReader in(json);
  CompletionBody out;
  ReadMaxTokens(in, out.fields);
  ReadSampling(in, text, vocab_size, place, out.fields);
  ReadGrammar(in, out.fields);
  ReadChoices(in, out.fields);
  ReadShape(in, out);
  if (infill) ReadInfill(in, out);
  serving::HoldRounded(body, in, rounded, out.fields, nullptr);
  SLUICE_RETURN_IF_ERROR(in.status());
  if (!infill) SLUICE_RETURN_IF_ERROR(ReadPrompts(json, vocab_size, out));
  if (out.fields.stream) {
    out.fields.digest = serving::BodyDigest(json, KnownFields());
  }
  return out;
}

}  // namespace

StatusOr<CompletionBody> ParseCompletion(std::string_view body,
                                         const serving::ModelText& text,
                                         int vocab_size, bool strict) {
  return Parse(body, text, vocab_size, strict, /*infill=*/false);
}

StatusOr<CompletionBody> ParseInfill(std::string_view body,
                                     const serving::ModelText& text,
                                     int vocab_size, bool strict) {
  return Parse(body, text, vocab_size, strict, /*infill=*/true);
}

}  // namespace sluice::llamacpp
