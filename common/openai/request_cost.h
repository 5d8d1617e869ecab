#ifndef SLUICE_COMMON_OPENAI_REQUEST_COST_H_
#define SLUICE_COMMON_OPENAI_REQUEST_COST_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/openai/request.h"

namespace sluice::openai {

// What one request may take at most, by estimates that are made from counts
// and sizes before anything of it is spent.
struct CostLimits {
  // What its choices hold until they are answered: copies of their prompts,
  // and the answer.
  size_t answer_bytes = size_t{64} << 20;
  // Messages and tools as the chat template gets them, by JsonBytes.
  size_t history_bytes = size_t{16} << 20;
  // One text that is tokenized. 0: 1 MiB, or 16 bytes for each token of the
  // context if that is more.
  size_t tokenize_bytes = 0;
};

// `limits.tokenize_bytes`, resolved for a context of so many tokens.
size_t TokenizeLimit(const CostLimits& limits, int64_t context_tokens);

// INVALID_ARGUMENT (request_too_large) about `field` if a text of so many bytes
// is above `limit`.
Status CheckText(std::string_view field, size_t bytes, size_t limit);

// The same about messages and tools together. A call of an assistant's
// message counts as a message: some templates take one call per message.
Status CheckHistory(const Json& messages, const Json& tools,
                    const CostLimits& limits);

// What is known of a request's answer before it is submitted.
struct AnswerShape {
  bool chat = false;  // the prompt is told of once, not for each choice
  bool echo = false;
  size_t prompt_tokens = 0;
  size_t prompt_bytes = 0;  // of its text, with echo
  int64_t max_tokens = 0;
};

// Bytes that the choices of one prompt take together. A stream's completions
// are not held, and text without log probabilities is small: neither counts.
size_t AnswerBytes(const GenerationFields& fields, const AnswerShape& shape);

// What a chat's max_tokens is where it is left out, before the context lowers
// it: as many as the limit affords. Where it affords fewer than 1024 there is
// no bound, so that CheckAnswer tells the client.
int64_t DefaultMaxTokens(const GenerationFields& fields, AnswerShape shape,
                         const CostLimits& limits);

// INVALID_ARGUMENT (request_too_large) that names the fields which make an
// answer of so many bytes, if that is above the limit.
Status CheckAnswer(const GenerationFields& fields, const AnswerShape& shape,
                   size_t bytes, const CostLimits& limits);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_REQUEST_COST_H_
