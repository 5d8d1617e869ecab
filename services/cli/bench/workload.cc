#include "services/cli/bench/workload.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "services/cli/text_file.h"

namespace sluice::cli {
namespace {

bool IsPrompt(const Json& json) {
  if (json.is_string()) return !json.get_ref<const std::string&>().empty();
  return json.is_array() && !json.empty() &&
         std::all_of(json.begin(), json.end(),
                     [](const Json& id) { return id.is_number_integer(); });
}

int64_t Draw(const LengthRange& range, SeededRandom& random) {
  return range.low + static_cast<int64_t>(random.Below(
                         static_cast<uint64_t>(range.high - range.low + 1)));
}

}  // namespace

StatusOr<LengthRange> LengthRange::Parse(std::string_view text) {
  const auto number = [](std::string_view digits) -> int64_t {
    int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc() && stop == end ? value : 0;
  };
  const size_t colon = text.find(':');
  LengthRange range;
  range.low = number(text.substr(0, colon));
  range.high = colon == std::string_view::npos ? range.low
                                               : number(text.substr(colon + 1));
  if (range.low < 1 || range.high < range.low || range.high > 10'000'000) {
    return InvalidArgument("'", text,
                           "' is neither N nor LOW:HIGH with 1 <= LOW <= HIGH "
                           "<= 10000000");
  }
  return range;
}

StatusOr<Workload::FileLine> Workload::ParseLine(const Json& json, bool chat) {
  FileLine line;
  for (const auto& [key, value] : json.items()) {
    if (key == "prompt") {
      if (!IsPrompt(value)) {
        return InvalidArgument("\"prompt\" is neither text nor token ids");
      }
      if (chat && !value.is_string()) {
        return InvalidArgument("\"prompt\" is token ids, which no chat takes");
      }
      line.prompt = value;
    } else if (key == "messages") {
      if (!value.is_array()) return InvalidArgument("\"messages\" is no list");
      if (!chat) return InvalidArgument("\"messages\": give --endpoint chat");
      line.messages = value;
    } else if (key == "prompt_tokens" || key == "output_tokens" ||
               key == "max_tokens") {
      if (!value.is_number_integer() || value.get<int64_t>() < 1) {
        return InvalidArgument("\"", key, "\" is no number above 0");
      }
      (key == "prompt_tokens" ? line.prompt_tokens : line.output_tokens) =
          value.get<int64_t>();
    }
  }
  return line;
}

// The tokens of the prompt: its ids, or a token per 4 bytes of text;
// `otherwise` if there is none.
int64_t Workload::FileLine::RoughTokens(int64_t otherwise) const {
  if (!messages && !prompt) return otherwise;
  const bool ids = !messages && prompt->is_array();
  const size_t tokens =
      ids ? prompt->size()
          : DumpJson(messages ? *messages : *prompt).size() / 4;
  return static_cast<int64_t>(std::max<size_t>(tokens, 1));
}

StatusOr<Workload> Workload::Prepare(const WorkloadOptions& options,
                                     const BaseUrl& base) {
  Workload made;
  made.options_ = options;
  made.fields_ = {{"model", options.model},
                  {"stream", true},
                  {"stream_options", {{"include_usage", true}}},
                  {"temperature", options.temperature}};
  if (options.extensions) {
    made.fields_["ignore_eos"] = true;
    made.fields_["return_token_ids"] = true;
  }
  if (!options.extra.empty()) {
    const StatusOr<Json> extra = ParseJson(options.extra);
    if (!extra.ok()) return Annotate(extra.status(), "--extra");
    if (!extra->is_object()) return InvalidArgument("--extra: no JSON object");
    made.fields_.update(*extra);
  }
  bool all_given = !options.file.empty();
  if (all_given) {
    SLUICE_RETURN_IF_ERROR(
        ReadJsonLines(options.file, [&](const Json& json) -> Status {
          SLUICE_ASSIGN_OR_RETURN(FileLine line, ParseLine(json, options.chat));
          all_given = all_given && (line.prompt || line.messages);
          made.lines_.push_back(std::move(line));
          return OkStatus();
        }));
  }
  if (!all_given || options.warmup) {
    SLUICE_ASSIGN_OR_RETURN(
        made.maker_, PromptMaker::Learn(base, options.model, options.chat));
  }
  if (all_given) return made;
  made.exact_ = made.maker_.exact();
  made.kind_ = made.maker_.makes_ids() ? "random token ids" : "random words";
  return made;
}

LoadRequest Workload::Request(int64_t index) const { return Make(index, true); }

LoadRequest Workload::WarmupRequest(int64_t index) const {
  return Make(index, false);
}

int64_t Workload::Repeated(int64_t requests) const {
  const auto lines = static_cast<int64_t>(lines_.size());
  std::set<std::string> distinct;
  int64_t given = 0;
  for (int64_t i = 0; i < std::min(lines, requests); ++i) {
    const FileLine& line = lines_[static_cast<size_t>(i)];
    if (!line.prompt && !line.messages) continue;
    given += (requests - i - 1) / lines + 1;  // i, i + lines, ..
    distinct.insert(DumpJson(line.messages ? *line.messages : *line.prompt));
  }
  return given - static_cast<int64_t>(distinct.size());
}

LoadRequest Workload::Make(int64_t index, bool given_prompts) const {
  SeededRandom random(options_.seed * 0x9e3779b97f4a7c15ULL +
                      static_cast<uint64_t>(index));
  int64_t prompt_tokens = Draw(options_.prompt_tokens, random);
  int64_t output_tokens = Draw(options_.output_tokens, random);
  const FileLine* line = nullptr;
  if (!lines_.empty()) {
    line = &lines_[static_cast<size_t>(index) % lines_.size()];
    prompt_tokens = line->prompt_tokens.value_or(prompt_tokens);
    output_tokens = line->output_tokens.value_or(output_tokens);
    if (!given_prompts) prompt_tokens = line->RoughTokens(prompt_tokens);
  }
  Json body = fields_;
  body["max_tokens"] = output_tokens;
  const bool has_prompt =
      given_prompts && line != nullptr && (line->prompt || line->messages);
  if (has_prompt && line->messages) {
    body["messages"] = *line->messages;
  } else if (options_.chat) {
    Json message = {{"role", "user"}};
    message["content"] =
        has_prompt ? *line->prompt : Json(maker_.Text(prompt_tokens, random));
    body["messages"] = Json::array({std::move(message)});
  } else if (has_prompt) {
    body["prompt"] = *line->prompt;
  } else if (maker_.makes_ids()) {
    body["prompt"] = maker_.Ids(prompt_tokens, random);
  } else {
    body["prompt"] = maker_.Text(prompt_tokens, random);
  }
  return {DumpJson(body), has_prompt ? 0 : prompt_tokens, output_tokens};
}

}  // namespace sluice::cli
