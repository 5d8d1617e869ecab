#include "common/tools/eval/api.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/tools/load/server_queries.h"

namespace sluice::eval {
namespace {

const JsonLimits kLargeAnswers{size_t{1} << 30, 64};

// Returns 5 for "token_id:5"; -1 for other text.
int64_t TokenId(std::string_view text) {
  constexpr std::string_view kPrefix = "token_id:";
  int64_t id = -1;
  if (text.substr(0, kPrefix.size()) != kPrefix) return id;
  text.remove_prefix(kPrefix.size());
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && stop == text.data() + text.size() ? id : -1;
}

Status Odd(const char* what) {
  return FailedPrecondition("/v1/completions: the answer has ", what);
}

// Reads the "logprobs" of a choice.
Status ReadLogprobs(const Json& json, ProbeAnswer& out) {
  const Json* tokens = FindMember(json, "tokens");
  const Json* values = FindMember(json, "token_logprobs");
  if (tokens == nullptr || !tokens->is_array() || values == nullptr ||
      !values->is_array() || tokens->size() != values->size()) {
    return Odd("no logprobs as asked for");
  }
  for (size_t i = 0; i < tokens->size(); ++i) {
    const Json& token = (*tokens)[i];
    const Json& value = (*values)[i];
    const int64_t id =
        token.is_string() ? TokenId(token.get_ref<const std::string&>()) : -1;
    if (id < 0) return Odd("no token ids (return_tokens_as_token_ids)");
    out.ids.push_back(id);
    out.logprobs.push_back(value.is_number()
                               ? value.get<double>()
                               : std::numeric_limits<double>::quiet_NaN());
  }
  out.top.resize(out.ids.size());
  const Json::array_t& top = FindList(json, "top_logprobs");
  for (size_t i = 0; i < std::min(top.size(), out.top.size()); ++i) {
    if (!top[i].is_object()) continue;
    for (const auto& [name, value] : top[i].items()) {
      const int64_t id = TokenId(name);
      if (id >= 0 && value.is_number()) {
        out.top[i].emplace_back(id, value.get<double>());
      }
    }
  }
  return OkStatus();
}

}  // namespace

std::string PromptJson(const std::vector<int64_t>& ids) {
  return DumpJson(Json(ids));
}
std::string PromptJson(const std::string& text) { return DumpJson(Json(text)); }

StatusOr<ProbeAnswer> EvalApi::Ask(const Probe& probe, int top) const {
  auto answer = AskOnce(probe, top);
  if (answer.ok() || probe.max_tokens > 0 ||
      answer.status().code() != StatusCode::kFailedPrecondition) {
    return answer;
  }
  // Some servers generate at least one token.
  Probe longer = probe;
  longer.max_tokens = 1;
  answer = AskOnce(longer, top);
  if (!answer.ok()) return answer;
  answer->ids.pop_back();
  answer->logprobs.pop_back();
  answer->top.pop_back();
  return answer;
}

StatusOr<ProbeAnswer> EvalApi::AskOnce(const Probe& probe, int top) const {
  SLUICE_ASSIGN_OR_RETURN(Json prompt,
                          ParseJson(probe.prompt_json, kLargeAnswers));
  Json body = {{"model", model_},
               {"prompt", std::move(prompt)},
               {"max_tokens", probe.max_tokens},
               {"temperature", probe.temperature},
               {"seed", probe.seed},
               {"ignore_eos", true},
               {"echo", true},
               {"logprobs", top},
               {"return_tokens_as_token_ids", true}};
  auto answer = http::PostJson(base_, "/v1/completions", body);
  if (!answer.ok()) return Annotate(answer.status(), probe.name);
  return ReadProbeAnswer(*answer, probe.max_tokens);
}

StatusOr<ProbeAnswer> ReadProbeAnswer(const Json& answer, int64_t max_tokens) {
  const Json::array_t& choices = FindList(answer, "choices");
  if (choices.empty()) return Odd("no choices");
  const Json* logprobs = FindMember(choices[0], "logprobs");
  if (logprobs == nullptr) return Odd("no logprobs");
  ProbeAnswer out;
  SLUICE_RETURN_IF_ERROR(ReadLogprobs(*logprobs, out));
  const Json* usage = FindMember(answer, "usage");
  const std::optional<int64_t> made =
      usage == nullptr ? std::nullopt : FindInt(*usage, "completion_tokens");
  if (!made) return Odd("no usage.completion_tokens");
  if (*made != max_tokens) {
    return FailedPrecondition("/v1/completions: usage.completion_tokens must ",
                              "be ", max_tokens, ", as asked for, got ", *made);
  }
  const auto generated = static_cast<size_t>(max_tokens);
  if (out.ids.size() <= generated) return Odd("too few tokens");
  out.prompt_length = out.ids.size() - generated;
  return out;
}

Status RequireEcho(const std::string& name, const std::vector<int64_t>& ids,
                   const ProbeAnswer& answer) {
  const auto same = answer.prompt_length == ids.size() &&
                    answer.ids.size() >= ids.size() &&
                    std::equal(ids.begin(), ids.end(), answer.ids.begin());
  if (same) return OkStatus();
  return FailedPrecondition(name, ": the server echoed other ids: ",
                            answer.prompt_length, " tokens for ", ids.size());
}

StatusOr<double> EvalApi::RunningRequests() const {
  SLUICE_ASSIGN_OR_RETURN(const load::Metrics metrics,
                          load::FetchMetrics(base_));
  const auto running = metrics.find("vllm:num_requests_running");
  if (running == metrics.end()) {
    return NotFound("/metrics has no vllm:num_requests_running");
  }
  return running->second;
}

StatusOr<int64_t> EvalApi::ContextLength() const {
  const StatusOr<Json> json = http::GetJson(base_, "/v1/models");
  if (json.status().code() == StatusCode::kNotFound) return 0;
  if (!json.ok()) return json.status();
  for (const Json& entry : FindList(*json, "data")) {
    if (FindText(entry, "id") != model_) continue;
    return std::max<int64_t>(0, FindInt(entry, "max_model_len").value_or(0));
  }
  return 0;
}

}  // namespace sluice::eval
