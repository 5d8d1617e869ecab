#include "common/serving/request_cost.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/serving/error.h"

namespace sluice::serving {
namespace {

constexpr size_t kMinTokenizeBytes = size_t{1} << 20;
constexpr size_t kBytesPerContextToken = 16;
// One log probability in an answer: 62 as measured.
constexpr size_t kEntryBytes = 64;
// One token id, as a number and as text.
constexpr size_t kIdBytes = 8;
// A call's own message: role, content and a list.
constexpr size_t kCallBytes = 512;

// The least default: fewer tokens are no useful answer.
constexpr int64_t kMinDefaultTokens = 1024;

// Returns the entries of one token with `tops` top log probabilities.
size_t Entries(int tops) { return static_cast<size_t>(tops) + 1; }

// Returns those of a token of the completion.
size_t SampledEntries(const GenerationFields& fields) {
  if (!fields.logprobs) return 0;
  if (fields.logprob_token_ids.empty()) return Entries(*fields.logprobs);
  return fields.logprob_token_ids.size() + 1;
}

size_t NumCalls(const Json& messages) {
  size_t count = 0;
  for (const Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls != message.end()) count += calls->size();
  }
  return count;
}

// Returns the bytes of one completion token in an answer held in memory.
size_t BytesPerToken(const GenerationFields& fields) {
  return fields.stream ? 0 : SampledEntries(fields) * kEntryBytes;
}

// Names the request's fields that an answer's size depends on, with values.
std::string Fields(const GenerationFields& fields, const AnswerShape& shape) {
  const FieldNames& names = *fields.names;
  std::string text = Cat(names.n, " ", fields.n, ", ", shape.prompt_tokens,
                         " tokens of the prompt");
  if (shape.echo) text += Cat(", ", names.echo);
  if (fields.prompt_logprobs) {
    text += Cat(", ", names.prompt_logprobs, " ", *fields.prompt_logprobs);
  }
  if (fields.logprobs) {
    text += Cat(", ", names.top_logprobs, " ", *fields.logprobs);
  }
  if (!fields.logprob_token_ids.empty()) {
    text += Cat(", ", fields.logprob_token_ids.size(), " logprob_token_ids");
  }
  if (BytesPerToken(fields) > 0) {
    text += Cat(", ", fields.max_tokens_field, " ", shape.max_tokens);
  }
  return text;
}

Status TooLarge(Status status) {
  return WithCode(std::move(status), "request_too_large");
}

}  // namespace

size_t TokenizeLimit(const CostLimits& limits, int64_t context_tokens) {
  if (limits.tokenize_bytes > 0) return limits.tokenize_bytes;
  const auto tokens = static_cast<size_t>(std::max<int64_t>(context_tokens, 0));
  return std::max(kMinTokenizeBytes, kBytesPerContextToken * tokens);
}

Status CheckText(std::string_view field, size_t bytes, size_t limit) {
  if (bytes <= limit) return OkStatus();
  return TooLarge(FieldError(field, "a text of ", bytes,
                             " bytes is to be tokenized, limit ", limit,
                             " (the server's --max-tokenize-bytes)"));
}

Status CheckHistory(const FieldNames& names, const Json& messages,
                    const Json& tools, const CostLimits& limits) {
  const size_t calls = NumCalls(messages);
  const size_t of_tools = tools.is_null() ? 0 : JsonBytes(tools);
  const size_t bytes = JsonBytes(messages) + calls * kCallBytes + of_tools;
  if (bytes <= limits.history_bytes) return OkStatus();
  return TooLarge(FieldError(
      names.prompt, messages.size(), " messages with ", calls, " ",
      names.tool_calls, ", and ", names.tools, ", take ", bytes,
      " bytes for the chat template, ", of_tools, " of them the tools, limit ",
      limits.history_bytes, " (the server's --max-history-bytes)"));
}

Status CheckArguments(std::string_view field, const Json& arguments,
                      const CostLimits& limits) {
  const size_t bytes = JsonBytes(arguments);
  if (bytes <= limits.history_bytes) return OkStatus();
  return TooLarge(
      FieldError(field, "take ", bytes, " bytes for the chat template, limit ",
                 limits.history_bytes, " (the server's --max-history-bytes)"));
}

size_t AnswerBytes(const GenerationFields& fields, const AnswerShape& shape) {
  // Per choice, then over all.
  size_t each = shape.prompt_tokens * kIdBytes;
  size_t once = 0;
  if (fields.return_token_ids) {
    (shape.chat ? once : each) += shape.prompt_tokens * kIdBytes;
  }
  if (shape.echo) each += shape.prompt_bytes;
  if (shape.echo && !shape.chat && fields.logprobs) {
    each += shape.prompt_tokens * Entries(*fields.logprobs) * kEntryBytes;
  }
  if (fields.prompt_logprobs) {
    (shape.chat ? once : each) +=
        shape.prompt_tokens * Entries(*fields.prompt_logprobs) * kEntryBytes;
  }
  each += static_cast<size_t>(shape.max_tokens) * BytesPerToken(fields);
  return once + static_cast<size_t>(fields.n) * each;
}

int64_t DefaultMaxTokens(const GenerationFields& fields, AnswerShape shape,
                         const CostLimits& limits) {
  constexpr int64_t kUnbounded = std::numeric_limits<int32_t>::max();
  const size_t per_token =
      BytesPerToken(fields) * static_cast<size_t>(fields.n);
  shape.max_tokens = 0;
  const size_t rest = AnswerBytes(fields, shape);
  if (per_token == 0 || rest >= limits.answer_bytes) return kUnbounded;
  const auto tokens =
      static_cast<int64_t>((limits.answer_bytes - rest) / per_token);
  return tokens < kMinDefaultTokens ? kUnbounded : std::min(tokens, kUnbounded);
}

Status CheckAnswer(const GenerationFields& fields, const AnswerShape& shape,
                   size_t bytes, const CostLimits& limits) {
  if (bytes <= limits.answer_bytes) return OkStatus();
  return TooLarge(FieldError(
      fields.n > 1 ? fields.names->n : fields.names->logprobs,
      "the answer may take ", bytes, " bytes, limit ", limits.answer_bytes,
      " (the server's --max-answer-bytes): ", Fields(fields, shape)));
}

}  // namespace sluice::serving
