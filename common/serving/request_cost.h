#ifndef SLUICE_COMMON_SERVING_REQUEST_COST_H_
#define SLUICE_COMMON_SERVING_REQUEST_COST_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/serving/request.h"

namespace sluice::serving {

// The most that one request may take, estimated from counts and sizes
// beforehand.
struct CostLimits {
  // Memory of all choices until they are answered: copies of their prompts, and
  // the answer.
  size_t answer_bytes = size_t{64} << 20;
  // Messages and tools for the chat template, by JsonBytes.
  size_t history_bytes = size_t{16} << 20;
  // One text to tokenize. 0: 16 bytes per token of the context, at least 1 MiB.
  size_t tokenize_bytes = 0;
};

// Returns `limits.tokenize_bytes`, resolved for a context of that many tokens.
size_t TokenizeLimit(const CostLimits& limits, int64_t context_tokens);

// INVALID_ARGUMENT (request_too_large) about `field` if `bytes` is above
// `limit`.
Status CheckText(std::string_view field, size_t bytes, size_t limit);

// The same for messages and tools together. A call of an assistant's message
// counts as a message: some templates need one message per call.
Status CheckHistory(const FieldNames& names, const Json& messages,
                    const Json& tools, const CostLimits& limits);

// The same for the variables of the chat template, in `field`.
Status CheckArguments(std::string_view field, const Json& arguments,
                      const CostLimits& limits);

// The figures of a request's answer before the request is submitted.
struct AnswerShape {
  bool chat = false;  // the prompt is in the answer once, not per choice
  bool echo = false;
  size_t prompt_tokens = 0;
  size_t prompt_bytes = 0;  // of its text, for echo
  int64_t max_tokens = 0;
};

// Returns the bytes of the choices of one prompt. Completions of a stream and
// text without log probabilities do not count: the first are not held, the
// second is small.
size_t AnswerBytes(const GenerationFields& fields, const AnswerShape& shape);

// Returns the default of a chat's max_tokens, before the context lowers it: as
// many tokens as the limit allows. No bound if the limit allows fewer than
// kMinDefaultTokens, so that CheckAnswer refuses the request.
int64_t DefaultMaxTokens(const GenerationFields& fields, AnswerShape shape,
                         const CostLimits& limits);

// INVALID_ARGUMENT (request_too_large) if `bytes` is above the limit; names the
// fields that make the answer large.
Status CheckAnswer(const GenerationFields& fields, const AnswerShape& shape,
                   size_t bytes, const CostLimits& limits);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_COST_H_
