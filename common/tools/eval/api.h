#ifndef SLUICE_COMMON_TOOLS_EVAL_API_H_
#define SLUICE_COMMON_TOOLS_EVAL_API_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/http/http_client.h"

namespace sluice::eval {

// The likeliest ids beside a token, as many as servers give.
inline constexpr int kMostTop = 20;

// One request to an endpoint: `prompt` is text or token ids. The endpoint
// ignores end tokens, so that every answer has max_tokens tokens.
struct Probe {
  std::string name;
  std::string prompt_json;
  int64_t max_tokens = 32;
  double temperature = 0;
  int64_t seed = 1;
};

// An answer: the ids of prompt and completion, each with its log probability
// (NaN if the server gives none, as for the first) and the most likely ids
// beside it.
struct ProbeAnswer {
  std::vector<int64_t> ids;
  size_t prompt_length = 0;
  std::vector<double> logprobs;  // as long as ids
  std::vector<std::vector<std::pair<int64_t, double>>> top;
};

// An OpenAI endpoint for the checks. Calls block; any thread.
class EvalApi {
 public:
  EvalApi(http::BaseUrl base, std::string model)
      : base_(std::move(base)), model_(std::move(model)) {}

  // Posts to /v1/completions with echo and logprobs, `top` (at most kMostTop)
  // beside each. max_tokens 0 scores the prompt alone. Needs a server with
  // token ids (return_token_ids or return_tokens_as_token_ids).
  // FAILED_PRECONDITION unless the usage tells max_tokens completion tokens.
  StatusOr<ProbeAnswer> Ask(const Probe& probe, int top = 0) const;

  // Returns the running sequences, by vllm:num_requests_running of /metrics;
  // NOT_FOUND without it.
  StatusOr<double> RunningRequests() const;

  // Returns the most tokens of a prompt and its answer, by max_model_len of
  // /v1/models; 0: the server does not tell.
  StatusOr<int64_t> ContextLength() const;

  const http::BaseUrl& base() const { return base_; }
  const std::string& model() const { return model_; }
  std::string url() const { return "http://" + base_.host + ":" + base_.port; }

 private:
  StatusOr<ProbeAnswer> AskOnce(const Probe& probe, int top) const;

  const http::BaseUrl base_;
  const std::string model_;
};

// Reads the answer of /v1/completions to a request of max_tokens.
StatusOr<ProbeAnswer> ReadProbeAnswer(const Json& answer, int64_t max_tokens);

// FAILED_PRECONDITION, with `name`, unless the answer echoes exactly `ids`.
Status RequireEcho(const std::string& name, const std::vector<int64_t>& ids,
                   const ProbeAnswer& answer);

// Returns the prompt_json of a Probe.
std::string PromptJson(const std::vector<int64_t>& ids);
std::string PromptJson(const std::string& text);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_API_H_
