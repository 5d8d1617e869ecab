#ifndef SLUICE_COMMON_SERVING_CHOICE_TEXT_H_
#define SLUICE_COMMON_SERVING_CHOICE_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/core/generate_request.h"
#include "common/serving/model_text.h"
#include "common/serving/stop_matcher.h"
#include "common/text/detokenizer.h"
#include "common/text/output/output_parser.h"

namespace sluice::serving {

// A piece of one tool call. The first piece has the whole `id` and `name`;
// later pieces have neither.
struct CallDelta {
  int index = 0;
  std::string id;
  std::string name;
  std::string arguments;
};

// The log probabilities of some prompt tokens, shared by the prompt's choices.
using PromptResults = std::shared_ptr<const std::vector<TokenResult>>;

// One token's log probabilities in an answer.
struct ShownLogprob {
  TokenId token = 0;
  const TokenLogprob* logprob = nullptr;  // null: none
  std::span<const TokenLogprob> tops;
};

// Some bytes of a delta, of one kind.
struct DeltaRun {
  enum class Kind { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  size_t bytes = 0;  // of a call: of its arguments
  int call = 0;      // index of the call
  // Tokens whose text ends in the run. Those that show nothing so far count for
  // the next run.
  size_t tokens = 0;
};

// A piece of one choice: text to show, and tokens. Text may come later than its
// tokens, so either may be empty.
struct Delta {
  std::string text;  // the content
  std::string reasoning;
  std::vector<CallDelta> calls;
  // The order of text, reasoning and calls, for dialects that show it. A
  // DeltaCut leaves it as it was.
  std::vector<DeltaRun> runs;
  std::vector<TokenId> token_ids;
  std::vector<TokenResult> logprobs;  // if requested
  // If requested: entry i of all parts together is about prompt token i + 1.
  std::vector<PromptResults> prompt;
  std::vector<size_t>
      prompt_ends;  // entries of `prompt` up to the end of each part
  // With echo: the prompt's first token, without a logprob. It and the entries
  // of `prompt`, with num_echo_tops tops, come before `logprobs`.
  std::optional<TokenId> echo_begin;
  bool echoes_prompt = false;
  size_t num_echo_tops = 0;
  // Tokens of the shown entries that a DeltaCut took off before these.
  std::vector<TokenId> cut_tokens;
  std::optional<FinishReason> finish;
  bool called = false;  // with `finish`: all tool calls are complete
  // With `finish`: the stop string or the client's stop token at the end.
  std::optional<std::variant<std::string, TokenId>> stop_reason;

  void Append(Delta other);
  // Content and tokens without log probabilities, and nothing else.
  bool has_text_alone() const {
    return !text.empty() && reasoning.empty() && calls.empty() &&
           logprobs.empty() && prompt.empty() && !echo_begin && !finish;
  }
  // Counts the entries of the echo and of `logprobs`.
  size_t num_shown() const;
  // Counts the entries of the echo and of `token_ids`: what a stream may tell
  // beside the text.
  size_t num_entries() const;
  ShownLogprob shown(size_t index) const;
  void AddPrompt(const std::vector<PromptResults>& parts);
  // Counts the entries of `prompt`.
  size_t num_prompt() const;
  const TokenResult& prompt_at(size_t index) const;
  // Estimates the length as JSON.
  size_t EstimatedBytes() const;
  void AddText(std::string_view piece);
  void AddReasoning(std::string_view piece);
  // Joins `call` to the last piece if both are of the same call.
  void AddCall(CallDelta call);

 private:
  void AddRun(DeltaRun run);
  void JoinCall(CallDelta call);
};

struct ChoiceTextOptions {
  StopStrings stop;
  std::vector<TokenId> stop_token_ids;  // the client's
  int64_t min_tokens = 0;               // the first tokens match no stop string
  bool include_stop = false;            // the stop string or token is shown
  bool skip_special = true;             // hides special tokens
  bool logprobs = false;
  bool echo = false;  // the prompt's logprobs come before the completion's
  // The tops of echo's logprobs: the request may ask for more prompt logprobs.
  int num_echo_tops = 0;
  bool prompt_logprobs = false;
  std::string echo_text;  // comes before the first token's text
  // This choice's parser of reasoning and tool calls; null: all is content.
  std::shared_ptr<OutputParser> parser;
  // The model's own end tokens: an output that ends otherwise was cut short.
  std::vector<TokenId> eos_ids;
  std::string call_ids;          // a call's id is this and the call's index
  bool parallel_calls = true;    // false: the first call ends the choice
  bool hides_reasoning = false;  // deltas leave it out
};

// Turns the tokens of one choice into deltas: detokenizes, parses reasoning and
// calls, finds stop strings (in the content alone), keeps logprobs beside their
// tokens. One thread.
class ChoiceText {
 public:
  ChoiceText(const ModelText& text, ChoiceTextOptions options,
             const std::vector<TokenId>& prompt);

  // A delta with a finish means a matched stop string, or the end of the one
  // allowed call: the caller cancels the sequence, and both methods return
  // nothing from then on. `prompt` has the log probabilities of the event's
  // prompt tokens.
  Delta OnTokens(const TokenEvent& event,
                 const std::vector<PromptResults>& prompt = {});
  // Returns the text held back, and the finish.
  Delta OnEnd(const FinalEvent& event);

  bool ended() const { return ended_; }
  // The tokens so far, with the end token.
  int64_t completion_tokens() const { return completion_tokens_; }
  // The completion tokens of the reasoning, with the markup before it.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  Delta Begin();
  // `text` is the decoder's text for `token`.
  void Take(TokenId token, const std::string& text, Delta& delta);
  void TakeToken(TokenId token, Delta& delta);
  void TakeEvents(OutputEvents events, Delta& delta);
  void TakeContent(const std::string& text, Delta& delta);
  // Takes the text that decoder, parser and stop strings hold back.
  void TakeRest(const FinalEvent& event, Delta& delta);
  void End(FinishReason reason, Delta& delta);
  void TakePrompt(const std::vector<PromptResults>& prompt, Delta& delta) const;

  ChoiceTextOptions options_;
  Detokenizer decoder_;
  StopMatcher stops_;
  std::optional<Delta> echo_;  // until a delta has it
  int64_t completion_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  size_t tokens_of_no_run_ = 0;  // the latest
  int64_t untold_tokens_ =
      0;  // the latest tokens, while no text has come of them
  bool called_ = false;
  bool in_call_ = false;  // a call has begun and is incomplete
  bool ended_ = false;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_CHOICE_TEXT_H_
