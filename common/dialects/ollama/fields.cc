#include "common/dialects/ollama/fields.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"
#include "common/serving/request_limits.h"
#include "common/serving/thinking.h"

namespace sluice::ollama {
namespace {

using serving::Describe;
using serving::FieldReader;
using serving::kMaxInt32;

constexpr size_t kMaxShownName = 64;

constexpr auto kIgnored = FieldUse::kIgnored;
constexpr auto kUnbuilt = FieldUse::kUnbuilt;

constexpr KnownField kFields[] = {
    {"model"},
    {"stream"},
    {"format"},
    {"options"},
    {"keep_alive"},
    {"think"},
    {"logprobs"},
    {"top_logprobs"},
    // A prompt that does not fit is refused, and no context shifts.
    {"truncate", kBoth, kIgnored},
    {"shift", kBoth, kIgnored},
    {"messages", kChat},
    {"tools", kChat},
    {"prompt", kGenerate},
    {"suffix", kGenerate},
    {"system", kGenerate},
    {"raw", kGenerate},
    {"images", kGenerate},
    {"template", kGenerate, kUnbuilt, R"([""])"},
    {"context", kGenerate, kUnbuilt, "[[]]"},
    // Of models that draw.
    {"width", kGenerate, kUnbuilt, "[0]"},
    {"height", kGenerate, kUnbuilt, "[0]"},
    {"steps", kGenerate, kUnbuilt, "[0]"},
    {"num_ctx", kOption},
    {"num_predict", kOption},
    {"seed", kOption},
    {"temperature", kOption},
    {"top_k", kOption},
    {"top_p", kOption},
    {"min_p", kOption},
    {"repeat_penalty", kOption},
    {"repeat_last_n", kOption},
    {"presence_penalty", kOption},
    {"frequency_penalty", kOption},
    {"stop", kOption},
    {"typical_p", kOption, kUnbuilt, "[1]"},
    {"tfs_z", kOption, kUnbuilt, "[1]"},
    {"mirostat", kOption, kUnbuilt, "[0]"},
    // Without effect but beside mirostat, and where a context shifts; Ollama
    // itself reads the last no more.
    {"mirostat_tau", kOption, kIgnored},
    {"mirostat_eta", kOption, kIgnored},
    {"num_keep", kOption, kIgnored},
    {"penalize_newline", kOption, kIgnored},
    // Of the machine.
    {"numa", kOption, kIgnored},
    {"num_batch", kOption, kIgnored},
    {"num_gpu", kOption, kIgnored},
    {"main_gpu", kOption, kIgnored},
    {"num_thread", kOption, kIgnored},
    {"low_vram", kOption, kIgnored},
    {"f16_kv", kOption, kIgnored},
    {"logits_all", kOption, kIgnored},
    {"vocab_only", kOption, kIgnored},
    {"use_mmap", kOption, kIgnored},
    {"use_mlock", kOption, kIgnored},
    {"embedding_only", kOption, kIgnored}};

bool IsNeutral(const Json& value, std::string_view neutral) {
  const Json values = *ParseJson(neutral);
  return value.is_null() ||
         std::find(values.begin(), values.end(), value) != values.end();
}

// Checks the members of `object`, which are known in `place`. `prefix` stands
// before names in errors.
Status CheckMembers(const Json& object, int place, bool strict,
                    std::string_view prefix) {
  size_t index = 0;
  for (const auto& item : object.items()) {
    const std::string& key = item.key();
    const Json& value = item.value();
    ++index;
    const auto found = std::find_if(
        std::begin(kFields), std::end(kFields), [&](const KnownField& one) {
          return one.name == key && (one.place & place) != 0;
        });
    const bool is_known = found != std::end(kFields);
    if (!is_known && strict) {
      return serving::WithCode(
          serving::FieldError(Cat(prefix, key.substr(0, kMaxShownName)),
                              "member ", index, " is not known here"),
          "unknown_parameter");
    }
    const bool is_unbuilt = is_known && found->use == kUnbuilt;
    if (!is_unbuilt || IsNeutral(value, found->neutral)) continue;
    const std::string_view list = found->neutral;
    return serving::WithCode(
        serving::FieldError(
            Cat(prefix, found->name), "not supported; leave it out, or give ",
            list.substr(1, list.size() - 2), "; got ", Describe(value)),
        "unsupported_parameter");
  }
  return OkStatus();
}

// The number of tokens that penalties look at; here all of them, or none.
void ReadPenalties(FieldReader& in, serving::GenerationFields& out) {
  out.repetition_penalty =
      in.Number("repeat_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty);
  out.presence_penalty =
      in.Number("presence_penalty", -kMaxPenalty, kMaxPenalty);
  out.frequency_penalty =
      in.Number("frequency_penalty", -kMaxPenalty, kMaxPenalty);
  const auto last = in.Int("repeat_last_n", -1, kMaxInt32);
  if (last == 0) {
    out.repetition_penalty = 1;
    out.presence_penalty = out.frequency_penalty = 0;
  }
  const bool penalizes = out.repetition_penalty.value_or(1) != 1 ||
                         out.frequency_penalty.value_or(0) != 0 ||
                         out.presence_penalty.value_or(0) != 0;
  if (last.value_or(-1) <= 0 || !penalizes) return;
  in.Refuse("repeat_last_n", "must be -1 or 0 beside a penalty: penalties look",
            " at the whole prompt and completion, got ", *last);
}

void ReadStops(FieldReader& in, serving::GenerationFields& out) {
  out.stop =
      in.Strings("stop", serving::kMaxStopStrings, serving::kMaxStopBytes)
          .value_or(out.stop);
  size_t bytes = 0;
  for (const std::string& stop : out.stop) bytes += stop.size();
  if (bytes > serving::kMaxAllStopBytes) {
    in.Refuse("stop", "the strings have ", bytes, " bytes together, limit ",
              serving::kMaxAllStopBytes);
  }
}

void ReadOptions(FieldReader& in, serving::GenerationFields& out) {
  const Json* options = in.Find("options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    in.Refuse("options", "must be an object, got ", Describe(*options));
    return;
  }
  FieldReader sub(*options, "options.");
  sub.Int("num_ctx", 0, INT64_MAX);  // the served context stays
  // What is not above 0 is no limit: the context's end.
  const auto limit = sub.Int("num_predict", -2, kMaxInt32);
  if (limit.value_or(0) > 0) out.max_tokens = limit;
  const auto seed = sub.Int("seed", INT64_MIN, INT64_MAX);
  if (seed && *seed != -1) out.seed = static_cast<uint64_t>(*seed);
  out.temperature = sub.Number("temperature", 0, 2);
  out.top_p = sub.Number("top_p", 0, 1);
  // No probability at all is the likeliest token's alone.
  if (out.top_p && static_cast<float>(*out.top_p) == 0.0f) {
    out.temperature = 0;
    out.top_p = 1;
  }
  out.top_k = sub.Int("top_k", -1, kMaxInt32);
  if (out.top_k == -1) out.top_k = 0;
  out.min_p = sub.Number("min_p", 0, 1);
  ReadPenalties(sub, out);
  ReadStops(sub, out);
  in.Keep(sub.status());
}

void ReadFormat(FieldReader& in, serving::GenerationFields& out) {
  const Json* format = in.Find("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    out.grammar = {"format", {GrammarSpec::Kind::kJsonObject, ""}};
  } else if (format->is_object()) {
    out.grammar = {"format",
                   {GrammarSpec::Kind::kJsonSchema, DumpJson(*format)}};
  } else {
    in.Refuse("format", "must be \"json\" or a JSON schema, an object, got ",
              Describe(*format));
  }
}

void ReadLogprobs(FieldReader& in, serving::GenerationFields& out) {
  const bool logprobs = in.Bool("logprobs").value_or(false);
  const auto top = in.Int("top_logprobs", 0, kMaxTopLogprobs);
  if (top.value_or(0) > 0 && !logprobs) {
    in.Refuse("top_logprobs", "needs \"logprobs\": true");
  }
  if (logprobs) out.logprobs = static_cast<int>(top.value_or(0));
}

}  // namespace

std::span<const KnownField> KnownFields() { return kFields; }

Status CheckFields(const Json& body, FieldPlace place, bool strict) {
  SLUICE_RETURN_IF_ERROR(CheckMembers(body, place, strict, ""));
  const auto options = body.find("options");
  if (options == body.end() || !options->is_object()) return OkStatus();
  return CheckMembers(*options, kOption, strict, "options.");
}

serving::GenerationFields ReadFields(FieldReader& in,
                                     const serving::FieldNames& names) {
  serving::GenerationFields out(names);
  out.cuts_max_tokens = true;
  out.timings = true;
  out.model = in.String("model").value_or("");
  if (out.model.empty()) in.Refuse("model", "is missing");
  out.stream = in.Bool("stream").value_or(true);
  ReadOptions(in, out);
  ReadFormat(in, out);
  ReadLogprobs(in, out);
  return out;
}

void ReadThink(FieldReader& in, Json& arguments) {
  const Json* think = in.Find("think");
  if (think == nullptr) return;
  if (think->is_boolean()) {
    serving::SetThinking(think->get<bool>(), std::nullopt, arguments);
    return;
  }
  const auto* word = think->get_ptr<const std::string*>();
  if (word == nullptr || !serving::IsWord(*word)) {
    in.Refuse("think", "must be true, false or a word like \"low\", got ",
              Describe(*think));
    return;
  }
  serving::SetThinking(*word != "none", *word, arguments);
}

bool ReadUnloads(FieldReader& in) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kDuration = "0123456789.+-hmsun";
  const Json* time = in.Find("keep_alive");
  if (time == nullptr) return false;
  if (time->is_number()) return time->get<double>() == 0;
  const auto* text = time->get_ptr<const std::string*>();
  const bool fits = text != nullptr &&
                    text->find_first_not_of(kDuration) == text->npos &&
                    text->find_first_of(kDigits) != text->npos;
  if (!fits) {
    in.Refuse("keep_alive", "must be a number of seconds or a text like \"5m\"",
              ", got ", Describe(*time));
    return false;
  }
  return text->find_first_of(kDigits.substr(1)) == text->npos;
}

serving::ToolFields ReadTools(FieldReader& in) {
  serving::ToolFields out;
  const Json* tools = in.Find("tools");
  if (tools == nullptr) return out;
  if (!tools->is_array() || tools->size() > serving::kMaxTools) {
    in.Refuse("tools", "must be an array of at most ", serving::kMaxTools,
              " tools, got ", Describe(*tools));
    return out;
  }
  Json made = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string where = Cat("tools[", i, "]");
    if (!tool.is_object()) {
      in.Refuse("tools", where, " must be an object, got ", Describe(tool));
      return out;
    }
    FieldReader of_tool(tool, Cat(where, "."));
    // A tool of another kind is left out.
    const std::string type = of_tool.String("type").value_or("function");
    const Json* function = of_tool.Find("function");
    in.Keep(of_tool.status());
    if (type != "function") continue;
    if (function == nullptr || !function->is_object()) {
      in.Refuse("tools", where, ".function must be an object");
      return out;
    }
    FieldReader sub(*function, Cat(where, ".function."));
    const std::string name = sub.String("name").value_or("");
    const auto description = sub.String("description");
    const Json* parameters = sub.Find("parameters");
    if (!serving::IsToolName(name)) {
      sub.Refuse("name", "must be 1 to ", serving::kMaxToolNameBytes,
                 " of A-Z a-z 0-9 _ . : / -");
    }
    if (parameters != nullptr && !parameters->is_object()) {
      sub.Refuse("parameters", "must be a JSON schema, an object, got ",
                 Describe(*parameters));
    }
    in.Keep(sub.status());
    made.push_back(serving::MakeTool(
        name, description ? Json(*description) : Json(nullptr),
        parameters != nullptr ? *parameters : Json(nullptr)));
  }
  out.strict.resize(made.size());
  if (!made.empty()) out.tools = std::move(made);
  return out;
}

}  // namespace sluice::ollama
