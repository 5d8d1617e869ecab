#include "common/text/chat_template.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "common/text/chat_request.h"
#include "common/text/text_source.h"

namespace sluice {
namespace {

constexpr std::string_view kReserved[] = {"messages", "tools", "documents",
                                          "add_generation_prompt"};

// Returns seconds since 1970 of the local wall clock at `options.now`, or of
// noon of `options.date`.
StatusOr<int64_t> WallClock(const RenderOptions& options) {
  const std::optional<std::string>& date = options.date;
  std::tm tm = {};
  if (!date) {
    const auto now =
        static_cast<std::time_t>(options.now.value_or(std::time(nullptr)));
    localtime_r(&now, &tm);
    return static_cast<int64_t>(now) + tm.tm_gmtoff;
  }
  char rest = 0;
  if (std::sscanf(date->c_str(), "%4d-%2d-%2d%c", &tm.tm_year, &tm.tm_mon,
                  &tm.tm_mday, &rest) != 3) {
    return InvalidArgument("date \"", *date, "\" is not YYYY-MM-DD");
  }
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  tm.tm_hour = 12;
  return static_cast<int64_t>(timegm(&tm));
}

bool AllIn(const std::vector<bool>& marks, size_t begin, size_t end,
           bool value) {
  for (size_t i = begin; i < end; ++i) {
    if (marks[i] != value) return false;
  }
  return true;
}

struct Scan {
  std::vector<ControlSpan> controls;
  size_t unproved = 0;  // spellings left as text
};

// Finds the special tokens in `text` that are proved to be the template's:
// marked in `own`, or, with `foreign`, free of the request's bytes.
Scan ScanControls(std::string_view text, const SpecialSpellings& specials,
                  const std::optional<std::vector<bool>>& own,
                  const std::optional<std::vector<bool>>& foreign) {
  Scan scan;
  size_t at = 0;
  while (at < text.size()) {
    const auto found = specials.At(text, at);
    const auto proved =
        std::find_if(found.begin(), found.end(), [&](const auto& candidate) {
          const size_t end = at + candidate.first;
          if (own && AllIn(*own, at, end, true)) return true;
          return foreign && AllIn(*foreign, at, end, false) &&
                 AllMarkable(text.substr(at, candidate.first));
        });
    if (proved == found.end()) {
      scan.unproved += found.empty() ? 0 : 1;
      ++at;
      continue;
    }
    scan.controls.push_back({at, at + proved->first, proved->second});
    at += proved->first;
  }
  return scan;
}

std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\n\r\f\v") + 1);
}

// Returns the text of the last message's last part, null without one.
Json* FinalText(Json& messages) {
  if (messages.empty() || !messages.back().is_object()) return nullptr;
  Json& last = messages.back();
  const auto content = last.find("content");
  if (content == last.end()) return nullptr;
  if (content->is_string()) return &*content;
  if (!content->is_array() || content->empty()) return nullptr;
  if (!content->back().is_object()) return nullptr;
  const auto part = content->back().find("text");
  return part != content->back().end() && part->is_string() ? &*part : nullptr;
}

// Appends `"name":VALUE,` to the text of an object.
void AppendVariable(std::string_view name, const Json& value,
                    std::string& text) {
  text += DumpJson(Json(std::string(name)));
  text += ':';
  text += DumpJson(value);
  text += ',';
}

size_t PlaneIndex(char32_t plane) { return plane == kMarkPlanes[0] ? 0 : 1; }

}  // namespace

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), specials_(tokenizer.vocabulary()) {}

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(
    const std::string& model_path, const Tokenizer& tokenizer) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<NamedTemplate> templates,
                          ReadChatTemplates(model_path));
  if (templates.empty()) {
    return NotFound(model_path, ": the model has no chat template");
  }
  const auto named = [&templates](std::string_view name) {
    return std::find_if(
        templates.begin(), templates.end(),
        [name](const NamedTemplate& t) { return t.name == name; });
  };
  const auto first = named("default") != templates.end() ? named("default")
                                                         : templates.begin();
  SLUICE_ASSIGN_OR_RETURN(auto made, Make(first->source, tokenizer));
  if (const auto tools = named("tool_use"); tools != templates.end()) {
    SLUICE_ASSIGN_OR_RETURN(made->tool_use_, made->Compile(tools->source));
    made->tool_source_ = tools->source;
    SLUICE_ASSIGN_OR_RETURN(auto reads, made->tool_use_->plain->Reads());
    made->reads_.merge(reads);
  }
  return made;
}

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Make(
    const std::string& source, const Tokenizer& tokenizer) {
  std::unique_ptr<ChatTemplate> made(new ChatTemplate(tokenizer));
  made->source_ = source;
  SLUICE_ASSIGN_OR_RETURN(made->default_, made->Compile(source));
  SLUICE_ASSIGN_OR_RETURN(made->reads_, made->default_.plain->Reads());
  made->Probe();
  return made;
}

StatusOr<ChatTemplate::Variants> ChatTemplate::Compile(
    const std::string& source) const {
  Variants variants;
  SLUICE_ASSIGN_OR_RETURN(variants.plain, JinjaTemplate::Compile(source));
  for (const char32_t plane : kMarkPlanes) {
    auto marked =
        JinjaTemplate::Compile(MarkSpecials(source, specials_, plane));
    // A special token within the template's syntax: marks prove nothing.
    if (marked.ok()) variants.marked[PlaneIndex(plane)] = *std::move(marked);
  }
  return variants;
}

void ChatTemplate::Probe() {
  constexpr std::string_view kWord = "sluiceprobe";
  const Json text = Json(std::string(kWord));
  const Json parts = Json::array({{{"type", "text"}, {"text", text}}});
  accepts_parts_ = true;
  const auto listed =
      Render(Json::array({{{"role", "user"}, {"content", parts}}}), nullptr,
             RenderOptions());
  accepts_parts_ = listed.ok() && listed->find(kWord) != std::string::npos &&
                   listed->find("'type'") == std::string::npos &&
                   listed->find("\"type\"") == std::string::npos;
  const auto request =
      Prepare(Json::array({{{"role", "user"}, {"content", text}}}), nullptr,
              RenderOptions());
  if (!request.ok()) return;
  const auto shared = Share(*request);
  if (!shared.ok()) return;
  const char32_t plane = kMarkPlanes[0];
  const auto plain = RenderPlain(*request, *shared);
  if (!plain.ok() || default_.marked[0] == nullptr) return;
  const auto marked =
      default_.marked[0]->Render(Names(plane), shared->variables, request->now);
  if (!marked.ok()) return;
  const Marks own = MarkedBytes(*plain, *marked, plane);
  composes_tokens_ =
      ScanControls(*plain, specials_, own, std::nullopt).unproved > 0;
  default_.marks_prove_all =
      own && !composes_tokens_ && FreeMarkPlane(source_, "") == plane;
}

StatusOr<ChatTemplate::Request> ChatTemplate::Prepare(
    Json messages, Json tools, const RenderOptions& options) const {
  Request request;
  SLUICE_ASSIGN_OR_RETURN(
      request.messages,
      NormalizeMessages(std::move(messages), !accepts_parts_));
  if (!tools.is_null() && !tools.is_array()) {
    return InvalidArgument("tools: not an array");
  }
  if (!tools.empty()) request.tools = std::move(tools);
  request.add_generation_prompt = options.add_generation_prompt;
  if (!options.kwargs.is_null() && !options.kwargs.is_object()) {
    return InvalidArgument("chat_template_kwargs: not an object");
  }
  for (const std::string_view name : kReserved) {
    if (options.kwargs.contains(std::string(name))) {
      return InvalidArgument("chat_template_kwargs: ", name,
                             " has its own field");
    }
  }
  request.kwargs = options.kwargs;
  SLUICE_ASSIGN_OR_RETURN(request.now, WallClock(options));
  request.deadline = options.deadline;
  return request;
}

const ChatTemplate::Variants& ChatTemplate::VariantsFor(
    const Request& request) const {
  return tool_use_ && !request.tools.is_null() ? *tool_use_ : default_;
}

std::string ChatTemplate::Names(char32_t plane) const {
  Json context = Json::object();
  const std::pair<const char*, std::string> names[] = {
      {"bos_token", tokenizer_.bos_token()},
      {"eos_token", tokenizer_.eos_token()},
      {"pad_token", tokenizer_.pad_token()},
      {"unk_token", tokenizer_.unk_token()},
  };
  for (const auto& [name, text] : names) {
    if (text.empty()) continue;
    context[name] = plane == 0 ? text : MarkSpecials(text, specials_, plane);
  }
  return DumpJson(context);
}

StatusOr<ChatTemplate::Shared> ChatTemplate::Share(
    const Request& request) const {
  std::string text = "{";
  if (request.kwargs.is_object()) {
    for (const auto& [name, value] : request.kwargs.items()) {
      AppendVariable(name, value, text);
    }
  }
  AppendVariable("messages", request.messages, text);
  AppendVariable("tools", request.tools, text);
  AppendVariable("add_generation_prompt", request.add_generation_prompt, text);
  text += "\"documents\":null}";
  SLUICE_ASSIGN_OR_RETURN(JinjaVariables variables,
                          JinjaVariables::Parse(text));
  return Shared{std::move(variables), FreeMarkPlane(text, Names(0)),
                specials_.MayBeInJson(text)};
}

StatusOr<std::string> ChatTemplate::RenderPlain(const Request& request,
                                                const Shared& shared) const {
  return VariantsFor(request).plain->Render(Names(0), shared.variables,
                                            request.now, request.deadline);
}

StatusOr<size_t> ChatTemplate::EndOfFinalMessage(Request& request,
                                                 std::string_view text) const {
  Json* const final_text = FinalText(request.messages);
  std::string content;
  if (final_text != nullptr) {
    content = std::move(final_text->get_ref<std::string&>());
  }
  const std::string_view kept = TrimRight(content);
  if (kept.empty()) {
    return InvalidArgument(
        "continue_final_message: the last message has no text");
  }
  // `text` may have the content in other places too, even within an end-of-turn
  // token: a word behind the content, in a second rendering, shows its end.
  SLUICE_ASSIGN_OR_RETURN(const std::string word, WordNotIn(text));
  *final_text = std::string(kept) + word;
  auto shared = Share(request);
  *final_text = content;
  if (!shared.ok()) return shared.status();
  SLUICE_ASSIGN_OR_RETURN(const std::string shown,
                          RenderPlain(request, *shared));
  const size_t at = shown.find(word);
  if (at == shown.npos || shown.compare(0, at, text.substr(0, at)) != 0 ||
      shown.find(word, at + 1) != shown.npos) {
    return InvalidArgument(
        "continue_final_message: the chat template changes "
        "the last message's text");
  }
  const std::string_view spaces = std::string_view(content).substr(kept.size());
  return at + (text.substr(at).starts_with(spaces) ? spaces.size() : 0);
}

StatusOr<std::string> ChatTemplate::Render(Json messages, Json tools,
                                           const RenderOptions& options) const {
  SLUICE_ASSIGN_OR_RETURN(
      Request request, Prepare(std::move(messages), std::move(tools), options));
  SLUICE_ASSIGN_OR_RETURN(const Shared shared, Share(request));
  SLUICE_ASSIGN_OR_RETURN(std::string text, RenderPlain(request, shared));
  if (options.continue_final_message) {
    SLUICE_ASSIGN_OR_RETURN(const size_t end, EndOfFinalMessage(request, text));
    text.resize(end);
  }
  std::vector<ControlSpan> controls;
  PutTokens(options.stand_ins, tokenizer_.vocabulary(), text, controls);
  return text;
}

std::optional<ChatTemplate::Guarded> ChatTemplate::RenderOnce(
    const Request& request, const Shared& shared) const {
  const Variants& variants = VariantsFor(request);
  const std::optional<char32_t> plane = shared.free_plane;
  if (!variants.marks_prove_all || shared.may_spell_specials ||
      plane != kMarkPlanes[0]) {
    return std::nullopt;
  }
  const auto marked = variants.marked[PlaneIndex(*plane)]->Render(
      Names(*plane), shared.variables, request.now, request.deadline);
  if (!marked.ok()) return std::nullopt;
  auto unmarked = TakeMarksOff(*marked, *plane);
  if (!unmarked) return std::nullopt;
  Scan scan =
      ScanControls(unmarked->text, specials_, unmarked->marks, std::nullopt);
  // The template composed a token with the request's text, or removed part of
  // one.
  if (scan.unproved > 0) return std::nullopt;
  return Guarded{std::move(unmarked->text), std::move(scan.controls)};
}

StatusOr<ChatTemplate::Guarded> ChatTemplate::RenderGuarded(
    const Request& request, const Shared& shared, size_t max_bytes) const {
  std::optional<Guarded> once = RenderOnce(request, shared);
  Guarded made;
  if (once) {
    made = *std::move(once);
  } else {
    SLUICE_ASSIGN_OR_RETURN(made.text, RenderPlain(request, shared));
  }
  if (made.text.size() > max_bytes) {
    return MakeStatus(StatusCode::kOutOfRange,
                      Cat("the rendered messages have ", made.text.size(),
                          " bytes, limit ", max_bytes));
  }
  if (!once) {
    SLUICE_ASSIGN_OR_RETURN(made.controls,
                            FindControls(request, shared, made.text));
  }
  return made;
}

StatusOr<std::vector<ControlSpan>> ChatTemplate::FindControls(
    const Request& request, const Shared& shared, std::string_view text) const {
  const Variants& variants = VariantsFor(request);
  const std::optional<char32_t> plane = shared.free_plane;
  if (!plane) {
    return InvalidArgument(
        "messages with private-use characters of planes 15 and 16");
  }
  Marks own;
  if (const auto& marked = variants.marked[PlaneIndex(*plane)]) {
    const auto rendered = marked->Render(Names(*plane), shared.variables,
                                         request.now, request.deadline);
    if (rendered.ok()) own = MarkedBytes(text, *rendered, *plane);
  }
  Scan scan = ScanControls(text, specials_, own, std::nullopt);
  if (own && scan.unproved == 0) return std::move(scan.controls);

  const Marks foreign = ForeignBytes(request, *plane, text);
  if (!foreign && (!own || composes_tokens_)) {
    return InvalidArgument(
        "messages: text that spells special tokens of this model cannot be "
        "told from those that its chat template writes");
  }
  return ScanControls(text, specials_, own, foreign).controls;
}

ChatTemplate::Marks ChatTemplate::ForeignBytes(const Request& request,
                                               char32_t plane,
                                               std::string_view text) const {
  Request foreign;
  foreign.messages = MarkRequest(request.messages, plane);
  foreign.tools = MarkRequest(request.tools, plane);
  foreign.kwargs = request.kwargs;
  for (auto& item : foreign.kwargs) item = MarkRequest(item, plane);
  foreign.add_generation_prompt = request.add_generation_prompt;
  foreign.now = request.now;
  foreign.deadline = request.deadline;
  const auto shared = Share(foreign);
  if (!shared.ok()) return std::nullopt;
  const auto rendered = RenderPlain(foreign, *shared);
  if (!rendered.ok()) return std::nullopt;
  return MarkedBytes(text, *rendered, plane);
}

StatusOr<std::vector<TokenId>> ChatTemplate::RenderIds(
    Json messages, Json tools, const RenderOptions& options) const {
  SLUICE_ASSIGN_OR_RETURN(
      Request request, Prepare(std::move(messages), std::move(tools), options));
  Guarded prompt;
  {
    SLUICE_ASSIGN_OR_RETURN(const Shared shared, Share(request));
    SLUICE_ASSIGN_OR_RETURN(prompt,
                            RenderGuarded(request, shared, options.max_bytes));
  }
  auto& [text, controls] = prompt;
  if (options.continue_final_message) {
    SLUICE_ASSIGN_OR_RETURN(const size_t end, EndOfFinalMessage(request, text));
    text.resize(end);
    while (!controls.empty() && controls.back().end > end) controls.pop_back();
  }
  request = Request();  // frees memory for tokenizing
  PutTokens(options.stand_ins, tokenizer_.vocabulary(), text, controls);
  return tokenizer_.EncodeWithControls(text, controls);
}

}  // namespace sluice
