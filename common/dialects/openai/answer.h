#ifndef SLUICE_COMMON_DIALECTS_OPENAI_ANSWER_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_ANSWER_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/serving/answer_format.h"

namespace sluice::openai {

// Writes chunks and answers; what chat and completions share. One thread.
class ChunkFormat : public serving::AnswerFormat {
 public:
  // Returns the event of stream_options.include_usage, and "[DONE]".
  std::vector<serving::Event> End(const serving::Usage& usage) override;
  std::vector<serving::Event> Fail(const http::ApiError& error) override;

 protected:
  explicit ChunkFormat(const serving::AnswerInfo& info)
      : AnswerFormat(info),
        tells_usage_(info.include_usage && !info.told.usage) {}
  // Returns a chunk without choices.
  virtual Json EmptyChunk() const = 0;

 private:
  const bool tells_usage_;  // in an event of its own
};

// `text` must outlive the format.
std::unique_ptr<serving::AnswerFormat> MakeChatFormat(
    const serving::ModelText& text, serving::AnswerInfo info);
std::unique_ptr<serving::AnswerFormat> MakeCompletionFormat(
    const serving::ModelText& text, serving::AnswerInfo info);

// Shared by both -------------------------------------------------------------

// {"prompt_tokens", "completion_tokens", "total_tokens",
//  "prompt_tokens_details": {"cached_tokens"},
// "completion_tokens_details": {"reasoning_tokens"}}, the last if known.
Json UsageJson(const serving::Usage& usage);

// Returns FinishName as JSON; null before the finish.
Json FinishJson(const serving::Delta& delta);

// Adds llama.cpp's `timings` of a choice to `json`, if they are told.
void AddTimings(const serving::AnswerInfo& info, size_t choice, Json& json);

// Returns vLLM's stop_reason: a stop string, the id of a stop token, or null.
Json StopReasonJson(const serving::Delta& delta);

// Returns vLLM's list: null for the prompt's first token, then for each token
// an object of {"id": {"logprob", "rank", "decoded_token"}} with the token and
// the most likely ones. Ranks begin at 1.
Json PromptLogprobsJson(const serving::ModelText& text,
                        const serving::Delta& delta,
                        serving::JsonPieces& pieces);

// {"id", "object", "created", "model", "system_fingerprint", "choices": []}.
Json AnswerHead(const serving::AnswerInfo& info, const char* object);

// Returns the token's text for people, or "token_id:N".
std::string TokenName(const serving::ModelText& text,
                      const serving::AnswerInfo& info, TokenId token);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_ANSWER_H_
