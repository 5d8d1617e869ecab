#ifndef SLUICE_COMMON_SERVING_REQUEST_H_
#define SLUICE_COMMON_SERVING_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/core/ids.h"
#include "common/core/sampling_params.h"
#include "common/grammar/grammar_spec.h"
#include "common/text/chat_template.h"

namespace sluice::serving {

// What a client asks for, in any dialect: every value has its type and lies in
// its range. An absent field is nullopt; the model has the defaults.

// What a dialect calls the fields that errors of this room name; without a name
// of its own, as OpenAI's and vLLM's chats do. The texts live as long as the
// process.
struct FieldNames {
  std::string_view prompt = "messages";  // of a completion, or a chat's turns
  // How much of the prompt is kept.
  std::string_view truncate_prompt = "truncate_prompt_tokens";
  std::string_view max_tokens = "max_tokens";  // its first name
  std::string_view min_tokens = "min_tokens";
  std::string_view stop = "stop";
  std::string_view n = "n";  // choices per prompt
  std::string_view echo = "echo";
  std::string_view logprobs = "logprobs";          // what asks for them
  std::string_view top_logprobs = "top_logprobs";  // what has their number
  std::string_view prompt_logprobs = "prompt_logprobs";
  std::string_view stream = "stream";
  std::string_view tools = "tools";
  std::string_view tool_calls = "tool_calls";  // of a turn
  std::string_view allowed_tools = "allowed_tools";
  // Variables of the chat template.
  std::string_view template_arguments = "chat_template_kwargs";
  // The answer goes on with the last turn.
  std::string_view continues_message = "continue_final_message";
};

// The grammar that a client asks its answer to keep to.
struct GrammarField {
  std::string name;  // as in errors: "response_format.json_schema.schema"
  GrammarSpec spec;
  bool operator==(const GrammarField&) const = default;
};

// Fields that chat and completions share.
struct GenerationFields {
  explicit GenerationFields(const FieldNames& of_dialect)
      : names(&of_dialect), max_tokens_field(of_dialect.max_tokens) {}

  const FieldNames* names;  // for errors; never null
  std::string model;        // empty: not given
  std::optional<int64_t> max_tokens;
  std::string_view max_tokens_field;  // as the client named it
  // Without max_tokens: what the context leaves, whatever the default is.
  bool fills_context = false;
  // max_tokens above what the context leaves is cut to it, whatever the
  // operator's rule is.
  bool cuts_max_tokens = false;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;  // 0: off
  std::optional<double> min_p;
  std::optional<uint64_t> seed;
  std::optional<double> frequency_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> repetition_penalty;
  std::vector<LogitBias> logit_bias;  // ids rise
  int n = 1;                          // choices per prompt
  // Choices that are made per prompt, of which the n likeliest are shown; 0: n.
  int best_of = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  int64_t min_tokens = 0;
  // Tokens that alone may come; none: all may.
  std::vector<TokenId> allowed_token_ids;
  std::vector<std::string> bad_words;  // none of them comes
  // The most tokens of reasoning, at least 1, as the client named them.
  std::optional<int64_t> thinking_budget;
  std::string_view thinking_budget_field;
  int32_t priority = 0;       // among the client's requests; lower: first
  bool include_stop = false;  // with the stop string or token
  bool skip_special = true;   // hides special tokens
  // A model whose reasoning no token ends answers without thinking_budget,
  // where the request would else be refused.
  bool thinking_budget_is_wish = false;
  // Top logprobs per token; 0: the token's own; nullopt: none.
  std::optional<int> logprobs;
  // In the place of the top ones: tokens, none twice; none: the top ones.
  std::vector<TokenId> logprob_token_ids;
  std::optional<int> prompt_logprobs;  // the prompt's top logprobs
  // The number of the prompt's last tokens to keep; -1: as many as fit.
  std::optional<int64_t> truncate_prompt;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  // Seconds of silence after which a stream sends a comment; zero and less:
  // never.
  std::optional<int64_t> ping_interval;
  bool timings = false;  // the answer tells how long its parts took
  bool return_token_ids = false;
  bool tokens_as_token_ids = false;
  std::string cache_salt;
  std::string request_id;               // empty: not given
  std::optional<GrammarField> grammar;  // at most one field gives it
  uint64_t digest = 0;                  // of a stream's body: BodyDigest
};

// Whether an answer calls.
enum class ToolChoice {
  kAuto,      // as the model decides
  kRequired,  // it calls, and says nothing else
};

// The tools of a request.
struct ToolFields {
  // Null: none. Else a checked array of at least one {"type": "function",
  // "function": {"name", ..}}, with the client's other members in their order.
  Json tools;
  bool parallel = true;  // false: an answer ends with its first call
  ToolChoice choice = ToolChoice::kAuto;
  // The functions that an answer may call, each a name in `tools`; empty: all.
  std::vector<std::string> allowed;
  // Of each tool: "strict", if the client gave it.
  std::vector<std::optional<bool>> strict;
  // Of tools whose calls keep to another schema than the model is shown: that
  // schema; else empty. May be shorter than `tools`.
  std::vector<std::string> held;
  // They came as `functions`: answers have the older function_call.
  bool as_functions = false;
};

struct ChatRequest {
  GenerationFields fields;
  // A checked array of {"role", "content", ..}: contents are plain strings,
  // "developer" is renamed to "system", an assistant's reasoning is in
  // "reasoning_content", arguments of calls are objects.
  Json messages;
  ToolFields tools;
  // Without limits; `kwargs` is an object without the server's variables.
  RenderOptions chat_template;
  // The names in chat_template_kwargs, as the client gave them.
  std::vector<std::string> argument_names;
  bool hides_reasoning = false;  // the answer leaves it out
  bool echo = false;  // the answer repeats an assistant's last message
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationFields fields;
  std::vector<Prompt> prompts;  // at least one; a choice each
  bool echo = false;
  bool add_special_tokens = true;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_H_
