#include "services/cli/bench/workload.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "common/base/json.h"
#include "services/cli/bench/prompt_maker.h"

namespace sluice::cli {
namespace {

// One line of the file: a prompt, lengths, or both.
struct FileLine {
  std::optional<Json> prompt;    // text or token ids
  std::optional<Json> messages;  // a chat's
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> output_tokens;
};

bool IsPrompt(const Json& json) {
  if (json.is_string()) return !json.get_ref<const std::string&>().empty();
  if (!json.is_array() || json.empty()) return false;
  for (const Json& id : json) {
    if (!id.is_number_integer()) return false;
  }
  return true;
}

StatusOr<FileLine> ParseLine(const std::string& text) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (!json.is_object()) return InvalidArgument("not a JSON object");
  FileLine line;
  for (const auto& [key, value] : json.items()) {
    if (key == "prompt") {
      if (!IsPrompt(value)) {
        return InvalidArgument("\"prompt\" is neither text nor token ids");
      }
      line.prompt = value;
    } else if (key == "messages") {
      if (!value.is_array()) return InvalidArgument("\"messages\" is no list");
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

StatusOr<std::vector<FileLine>> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("--file: cannot read ", path);
  std::vector<FileLine> lines;
  size_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto line = ParseLine(text);
    if (!line.ok()) return Annotate(line.status(), path, ":", number);
    lines.push_back(*std::move(line));
  }
  if (lines.empty()) return InvalidArgument("--file: ", path, " is empty");
  return lines;
}

// The tokens of a line's prompt: its ids, or a token per 4 bytes of text;
// `otherwise` if it has none.
int64_t RoughTokens(const FileLine& line, int64_t otherwise) {
  size_t tokens = 0;
  if (line.messages) {
    tokens = DumpJson(*line.messages).size() / 4;
  } else if (line.prompt && line.prompt->is_array()) {
    tokens = line.prompt->size();
  } else if (line.prompt) {
    tokens = line.prompt->get_ref<const std::string&>().size() / 4;
  } else {
    return otherwise;
  }
  return static_cast<int64_t>(std::max<size_t>(tokens, 1));
}

int64_t Draw(const LengthRange& range, SeededRandom& random) {
  return range.low + static_cast<int64_t>(random.Below(
                         static_cast<uint64_t>(range.high - range.low + 1)));
}

}  // namespace

struct Workload::Parts {
  WorkloadOptions options;
  Json fields;  // of every body
  std::vector<FileLine> lines;
  PromptMaker maker;
  std::string kind;
  bool exact = false;
};

StatusOr<LengthRange> LengthRange::Parse(std::string_view what,
                                         std::string_view text) {
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
    return InvalidArgument(what, ": '", text,
                           "' is neither N nor LOW:HIGH with 1 <= LOW <= HIGH "
                           "<= 10000000");
  }
  return range;
}

Workload::Workload(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Workload::Workload(Workload&&) noexcept = default;
Workload& Workload::operator=(Workload&&) noexcept = default;
Workload::~Workload() = default;

StatusOr<Workload> Workload::Prepare(const WorkloadOptions& options,
                                     const BaseUrl& base) {
  auto parts = std::make_unique<Parts>();
  parts->options = options;
  parts->fields = {{"model", options.model},
                   {"stream", true},
                   {"stream_options", {{"include_usage", true}}},
                   {"temperature", options.temperature}};
  if (options.extensions) {
    parts->fields["ignore_eos"] = true;
    parts->fields["return_token_ids"] = true;
  }
  if (!options.extra.empty()) {
    const StatusOr<Json> extra = ParseJson(options.extra);
    if (!extra.ok()) return Annotate(extra.status(), "--extra");
    if (!extra->is_object()) return InvalidArgument("--extra: no JSON object");
    parts->fields.update(*extra);
  }
  bool all_given = !options.file.empty();
  if (all_given) {
    SLUICE_ASSIGN_OR_RETURN(parts->lines, ReadFile(options.file));
    for (const FileLine& line : parts->lines) {
      if (line.messages && !options.chat) {
        return InvalidArgument("--file: ", options.file,
                               " has \"messages\": give --endpoint chat");
      }
      if (line.prompt && options.chat && !line.prompt->is_string()) {
        return InvalidArgument("--file: ", options.file,
                               " has token ids, which no chat takes");
      }
      if (!line.prompt && !line.messages) all_given = false;
    }
  }
  if (!all_given || options.warmup) {
    SLUICE_ASSIGN_OR_RETURN(
        parts->maker, PromptMaker::Learn(base, options.model, options.chat));
  }
  if (all_given) {
    parts->kind = "from the file";
    return Workload(std::move(parts));
  }
  parts->exact = parts->maker.exact();
  parts->kind = parts->maker.makes_ids() ? "random token ids" : "random words";
  return Workload(std::move(parts));
}

const std::string& Workload::prompt_kind() const { return parts_->kind; }
bool Workload::exact() const { return parts_->exact; }

LoadRequest Workload::Request(int64_t index) const { return Make(index, true); }

LoadRequest Workload::WarmupRequest(int64_t index) const {
  return Make(index, false);
}

int64_t Workload::Repeated(int64_t requests) const {
  const auto lines = static_cast<int64_t>(parts_->lines.size());
  std::set<std::string> distinct;
  int64_t given = 0;
  for (int64_t i = 0; i < std::min(lines, requests); ++i) {
    const FileLine& line = parts_->lines[static_cast<size_t>(i)];
    if (!line.prompt && !line.messages) continue;
    given += (requests - i - 1) / lines + 1;  // i, i + lines, ..
    distinct.insert(DumpJson(line.messages ? *line.messages : *line.prompt));
  }
  return given - static_cast<int64_t>(distinct.size());
}

LoadRequest Workload::Make(int64_t index, bool given_prompts) const {
  const WorkloadOptions& options = parts_->options;
  SeededRandom random(options.seed * 0x9e3779b97f4a7c15ULL +
                      static_cast<uint64_t>(index));
  int64_t prompt_tokens = Draw(options.prompt_tokens, random);
  int64_t output_tokens = Draw(options.output_tokens, random);
  const FileLine* line = nullptr;
  if (!parts_->lines.empty()) {
    line = &parts_->lines[static_cast<size_t>(index) % parts_->lines.size()];
    prompt_tokens = line->prompt_tokens.value_or(prompt_tokens);
    output_tokens = line->output_tokens.value_or(output_tokens);
    if (!given_prompts) prompt_tokens = RoughTokens(*line, prompt_tokens);
  }
  Json body = parts_->fields;
  body["max_tokens"] = output_tokens;
  const bool has_prompt =
      given_prompts && line != nullptr && (line->prompt || line->messages);
  if (has_prompt && line->messages) {
    body["messages"] = *line->messages;
  } else if (options.chat) {
    Json message = {{"role", "user"}};
    message["content"] = has_prompt
                             ? *line->prompt
                             : Json(parts_->maker.Text(prompt_tokens, random));
    body["messages"] = Json::array({std::move(message)});
  } else if (has_prompt) {
    body["prompt"] = *line->prompt;
  } else if (parts_->maker.makes_ids()) {
    body["prompt"] = parts_->maker.Ids(prompt_tokens, random);
  } else {
    body["prompt"] = parts_->maker.Text(prompt_tokens, random);
  }
  return {DumpJson(body), has_prompt ? 0 : prompt_tokens, output_tokens};
}

}  // namespace sluice::cli
