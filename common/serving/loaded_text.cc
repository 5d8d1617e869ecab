#include "common/serving/loaded_text.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/serving/generic_tools.h"
#include "common/text/text_source.h"

namespace sluice::serving {
namespace {

// The prompt's last tokens that a detokenizer reads.
constexpr size_t kPromptTail = 16;
// A slower rendering of a small prompt keeps all small prompts off the event
// loops, until kProbation in a row are quicker. Wall time: a busy machine makes
// less than this of a good template's 1 ms.
constexpr double kSlowSeconds = 0.025;
constexpr size_t kSmallTokens = 4096;
constexpr int kProbation = 32;

// A text beyond a limit of the tokenizer or template is the request's fault: a
// retry fails too, unlike with a full queue.
StatusOr<std::vector<TokenId>> LimitsAsInvalid(
    StatusOr<std::vector<TokenId>> ids) {
  if (ids.status().code() != StatusCode::kResourceExhausted) return ids;
  return InvalidArgument(Message(ids.status()));
}

// gpt-oss always reasons: its least effort stands for none.
void ObeyLeastEffort(const OutputFormat& format, Json& arguments) {
  if (format.reasoning != ReasoningFormat::kHarmony) return;
  const auto effort = arguments.find("reasoning_effort");
  if (effort != arguments.end() && *effort == "none") *effort = "low";
}

// Returns ModelText::max_bytes_per_token.
size_t MaxBytesPerToken(const Tokenizer& tokenizer) {
  size_t longest = 0;
  std::vector<bool> singles(256, false);
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = tokenizer.TokenBytes(id);
    longest = std::max(longest, bytes.size());
    if (bytes.size() == 1) singles[static_cast<unsigned char>(bytes[0])] = true;
  }
  // If some byte has no token, an unknown token may stand for any text.
  const bool complete =
      std::all_of(singles.begin(), singles.end(), [](bool has) { return has; });
  return complete ? longest * tokenizer.max_shrinking() : 0;
}

}  // namespace

StatusOr<std::unique_ptr<LoadedText>> LoadedText::Load(
    const std::string& path, const FormatNames& format) {
  std::unique_ptr<LoadedText> text(new LoadedText());
  SLUICE_ASSIGN_OR_RETURN(text->tokenizer_, Tokenizer::Load(path));
  auto chat_template = ChatTemplate::Load(path, *text->tokenizer_);
  if (chat_template.ok()) {
    text->template_ = *std::move(chat_template);
    text->template_source_ = text->template_->source();
    text->history_ = LearnHistoryRules(*text->template_);
  } else if (chat_template.status().code() != StatusCode::kNotFound) {
    return chat_template.status();
  }
  const Vocabulary& vocabulary = text->tokenizer_->vocabulary();
  std::string sources = text->template_source_;
  if (text->template_ != nullptr) sources += text->template_->tool_source();
  SLUICE_ASSIGN_OR_RETURN(
      text->format_,
      ChooseOutputFormat(sources, vocabulary, format.tools, format.reasoning));
  // Any model that chats can call.
  if (format.tools == "auto" && text->format_.tools == ToolFormat::kNone &&
      text->template_ != nullptr) {
    text->format_.tools = ToolFormat::kGeneric;
  }
  if (text->format_.tools == ToolFormat::kKimi) {
    text->history_.ids = IdForm::kNumbered;
  }
  text->markup_ = KeptTokens(text->format_, vocabulary);
  text->max_bytes_per_token_ = MaxBytesPerToken(*text->tokenizer_);
  const auto empty = text->tokenizer_->Encode("", EncodeOptions());
  text->adds_bos_ = empty.ok() && !empty->empty() &&
                    text->tokenizer_->bos_id() == empty->front();
  return text;
}

StatusOr<std::vector<TokenId>> LoadedText::Encode(std::string_view text,
                                                  bool special) const {
  EncodeOptions options;
  options.add_special_tokens = special;
  return LimitsAsInvalid(tokenizer_->Encode(text, options));
}

StatusOr<std::vector<TokenId>> LoadedText::EncodePlain(
    std::string_view text) const {
  EncodeOptions options;
  options.add_special_tokens = false;
  options.parse_special_tokens = false;
  return LimitsAsInvalid(tokenizer_->Encode(text, options));
}

std::optional<TokenId> LoadedText::FindToken(std::string_view name) const {
  return tokenizer_->TokenToId(name);
}

StatusOr<LoadedText::TemplateInput> LoadedText::MakeTemplateInput(
    const Json& messages, const Json& tools, RenderOptions options) const {
  if (template_ == nullptr) {
    return InvalidArgument(
        "this model has no chat template; use /v1/completions");
  }
  ObeyLeastEffort(format_, options.kwargs);
  const bool as_text = format_.tools == ToolFormat::kGeneric;
  const bool in_system = !as_text && history_.tools_in_system;
  if (in_system) {
    SLUICE_ASSIGN_OR_RETURN(options.stand_ins, MarksOfCalls(messages));
  }
  Json told = as_text ? WithToolsAsText(messages, tools)
              : in_system
                  ? WithToolsInSystem(messages, tools, options.stand_ins)
                  : messages;
  TemplateInput input;
  input.messages = AdaptHistory(std::move(told), history_);
  if (!tools.is_null() && !as_text && !in_system) {
    input.tools = AdaptTools(tools, history_);
  }
  input.options = std::move(options);
  return input;
}

StatusOr<std::string> LoadedText::RenderChat(const Json& messages,
                                             const Json& tools,
                                             RenderOptions options) const {
  SLUICE_ASSIGN_OR_RETURN(
      TemplateInput input,
      MakeTemplateInput(messages, tools, std::move(options)));
  auto text = template_->Render(std::move(input.messages),
                                std::move(input.tools), input.options);
  if (text.ok() && text->size() > input.options.max_bytes) {
    return MakeStatus(StatusCode::kOutOfRange,
                      Cat("the rendered messages have ", text->size(),
                          " bytes, limit ", input.options.max_bytes));
  }
  if (text.status().code() == StatusCode::kResourceExhausted) {
    return InvalidArgument(Message(text.status()));
  }
  return text;
}

StatusOr<std::vector<TokenId>> LoadedText::EncodeChat(
    const Json& messages, const Json& tools, RenderOptions options) const {
  const TimePoint begin = Clock::now();
  SLUICE_ASSIGN_OR_RETURN(
      TemplateInput input,
      MakeTemplateInput(messages, tools, std::move(options)));
  auto ids = LimitsAsInvalid(template_->RenderIds(
      std::move(input.messages), std::move(input.tools), input.options));
  if (!ids.ok()) {
    NoteRendering(Seconds(Clock::now() - begin), 0);
    return ids;
  }
  NoteRendering(Seconds(Clock::now() - begin), ids->size());
  if (input.options.add_special_tokens && adds_bos_) {
    ids->insert(ids->begin(), *tokenizer_->bos_id());
  }
  return ids;
}

void LoadedText::NoteRendering(double seconds, size_t tokens) const {
  if (tokens > kSmallTokens) return;  // large prompts leave the loop by size
  if (seconds > kSlowSeconds) {
    probation_ = kProbation;
  } else if (const int left = probation_; left > 0) {
    probation_ = left - 1;  // a race may lose a count
  }
}

bool LoadedText::is_quick() const {
  return tokenizer_->is_linear() && probation_ == 0;
}

StatusOr<std::string> LoadedText::Decode(std::span<const TokenId> tokens,
                                         bool skip_special) const {
  // The model's vocabulary may be larger than the tokenizer's.
  std::vector<TokenId> known;
  known.reserve(tokens.size());
  for (const TokenId token : tokens) {
    if (token < tokenizer_->vocab_size()) known.push_back(token);
  }
  return tokenizer_->Decode(known, skip_special);
}

Detokenizer LoadedText::NewDecoder(std::span<const TokenId> prompt,
                                   const DecodeOptions& options) const {
  const size_t tail = std::min(prompt.size(), kPromptTail);
  std::span<const TokenId> shown;
  if (options.show_markup) shown = markup_;
  return Detokenizer(*tokenizer_, options.skip_special, prompt.last(tail),
                     shown);
}

std::vector<std::unique_ptr<OutputParser>> LoadedText::NewParsers(
    const OutputRequest& request, size_t count) const {
  return NewOutputParsers(format_, tokenizer_->vocabulary(), request, count);
}

bool LoadedText::EndsInReasoning(std::span<const TokenId> prompt) const {
  const auto end = Decode(prompt.last(std::min(prompt.size(), kPromptTail)),
                          /*skip_special=*/false);
  return end.ok() && sluice::EndsInReasoning(format_, *end);
}

std::string LoadedText::TokenText(TokenId token) const {
  return tokenizer_->TokenText(token);
}

std::string LoadedText::TokenBytes(TokenId token) const {
  return tokenizer_->TokenBytes(token);
}

TokenizerInfo LoadedText::info() const {
  return {tokenizer_->bos_token(), tokenizer_->eos_token(),
          tokenizer_->pad_token(), tokenizer_->unk_token(),
          template_source_,        adds_bos_};
}

}  // namespace sluice::serving
