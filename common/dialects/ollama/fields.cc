#include "common/dialects/ollama/fields.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/serving/chat_parts.h"
#include "common/serving/plain_body.h"
#include "common/serving/thinking.h"
#include "common/serving/tool_fields.h"

namespace sluice::ollama {
namespace {

using serving::Describe;
using serving::FieldReader;

namespace rows = serving::rows;
using rows::Ignored;
using rows::Own;
using rows::Unbuilt;

constexpr serving::RequestField kFields[] = {
    rows::kModel.Silent().At(kBoth), rows::kStream.At(kBoth),
    Own("format").At(kBoth).Constrains(), Own("options").At(kBoth).Unordered(),
    Own("keep_alive").At(kBoth).Silent(), Own("think").At(kBoth),
    Own("logprobs").At(kBoth), Own("top_logprobs").At(kBoth),
    // A prompt that does not fit is refused, and no context shifts.
    Ignored("truncate").At(kBoth), Ignored("shift").At(kBoth),
    Own("messages").At(kChat).Unordered(), Own("tools").At(kChat).Constrains(),
    Own("prompt").At(kGenerate), Own("suffix").At(kGenerate),
    Own("system").At(kGenerate), Own("raw").At(kGenerate),
    Own("images").At(kGenerate), Unbuilt("template", R"([""])").At(kGenerate),
    Unbuilt("context", "[[]]").At(kGenerate),
    // Of models that draw.
    Unbuilt("width", "[0]").At(kGenerate),
    Unbuilt("height", "[0]").At(kGenerate),
    Unbuilt("steps", "[0]").At(kGenerate), Own("num_ctx").At(kOption),
    rows::kMaxTokens.Named("num_predict").Within(-2, rows::kMost).At(kOption),
    rows::kSeed.At(kOption), rows::kTemperature.At(kOption),
    rows::kTopK.At(kOption), rows::kTopP.At(kOption), rows::kMinP.At(kOption),
    rows::kRepetitionPenalty.Named("repeat_penalty").At(kOption),
    Own("repeat_last_n").At(kOption), rows::kPresencePenalty.At(kOption),
    rows::kFrequencyPenalty.At(kOption), rows::kStop.At(kOption),
    Unbuilt("typical_p", "[1]").At(kOption),
    Unbuilt("tfs_z", "[1]").At(kOption), Unbuilt("mirostat", "[0]").At(kOption),
    // Without effect but beside mirostat, and where a context shifts; Ollama
    // itself reads the last no more.
    Ignored("mirostat_tau").At(kOption), Ignored("mirostat_eta").At(kOption),
    Ignored("num_keep").At(kOption), Ignored("penalize_newline").At(kOption),
    // Of the machine.
    Ignored("numa").At(kOption), Ignored("num_batch").At(kOption),
    Ignored("num_gpu").At(kOption), Ignored("main_gpu").At(kOption),
    Ignored("num_thread").At(kOption), Ignored("low_vram").At(kOption),
    Ignored("f16_kv").At(kOption), Ignored("logits_all").At(kOption),
    Ignored("vocab_only").At(kOption), Ignored("use_mmap").At(kOption),
    Ignored("use_mlock").At(kOption), Ignored("embedding_only").At(kOption)};

void ReadOptions(FieldReader& in, serving::GenerationFields& out) {
  const Json* options = serving::FindObject(in, "options");
  if (options == nullptr) return;
  FieldReader sub(*options, "options.");
  sub.Int("num_ctx", 0, INT64_MAX);  // the served context stays
  serving::ReadFields(sub, kFields, kOption, /*vocab_size=*/0, out);
  // The context's end.
  if (out.max_tokens.value_or(0) <= 0) out.max_tokens.reset();
  if (out.seed == UINT64_MAX) out.seed.reset();  // -1: drawn
  serving::ReadPenaltyWindow(sub, "repeat_last_n", out);
  in.Keep(sub.status());
}

void ReadFormat(FieldReader& in, serving::GenerationFields& out) {
  const Json* format = in.Find("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    out.grammar = {"format", {GrammarSpec::Kind::kJsonObject, ""}};
  } else if (format->is_object()) {
    serving::SetSchema(in, "format", *format, out);
  } else {
    in.Refuse("format", "must be \"json\" or a JSON schema, an object, got ",
              Describe(*format));
  }
}

constexpr serving::PlainValue kPlainValues[] = {{"tools", "[]"},
                                                {"format", R"("")"}};

}  // namespace

serving::FieldTable KnownFields() { return kFields; }

Status CheckFields(const Json& body, FieldPlace place, bool strict) {
  serving::FieldCheck check{.place = place,
                            .strict = strict,
                            .unknown = "member # is not known here"};
  SLUICE_RETURN_IF_ERROR(serving::CheckFields(body, kFields, check));
  const auto options = body.find("options");
  if (options == body.end() || !options->is_object()) return OkStatus();
  check.place = kOption;
  check.prefix = "options.";
  return serving::CheckFields(*options, kFields, check);
}

bool IsPlainBody(std::string_view body) {
  static const auto* const names =
      new std::vector<std::string_view>(serving::PlainNames(kFields, kBoth));
  return serving::IsPlainBody(body, *names, kPlainValues);
}

serving::GenerationFields ReadFields(FieldReader& in,
                                     const serving::FieldNames& names) {
  serving::GenerationFields out(names);
  out.cuts_max_tokens = true;
  out.timings = true;
  out.stream = true;
  serving::ReadFields(in, kFields, kBoth, /*vocab_size=*/0, out);
  if (out.model.empty()) in.Refuse("model", "is missing");
  ReadOptions(in, out);
  ReadFormat(in, out);
  serving::ReadLogprobs(in, out);
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
  const Json* tools = serving::FindTools(in, "tools");
  if (tools == nullptr) return out;
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
    FieldReader part(*function, Cat(where, ".function."));
    serving::FunctionFields read = serving::ReadFunction(part, "parameters");
    in.Keep(part.status());
    made.push_back(serving::MakeTool(std::move(read.name),
                                     std::move(read.description),
                                     std::move(read.parameters)));
  }
  out.strict.resize(made.size());
  if (!made.empty()) out.tools = std::move(made);
  return out;
}

}  // namespace sluice::ollama
