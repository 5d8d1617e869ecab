#include "common/tools/eval/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/tools/eval/logits_file.h"

namespace sluice::eval {
namespace {

// Below it a probability is rounding's.
constexpr double kLeastProbability = 1e-9;

using Top = std::vector<std::pair<int64_t, double>>;

// Returns the id with the largest value; -1 for none.
int64_t Likeliest(const Top& top) {
  const auto best = std::max_element(
      top.begin(), top.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return best == top.end() ? -1 : best->first;
}

void AddSurprise(double ours, double reference, PromptComparison& found) {
  found.surprise -= ours;
  found.reference_surprise -= reference;
  ++found.surprised;
}

// Compares the row behind ids[t]: `next` is the id behind it, -1 at the end.
void CompareRow(const float* want, const float* got, size_t columns, size_t t,
                int64_t next, PromptComparison& found) {
  const std::vector<double> p = LogSoftmax(want, columns);
  const std::vector<double> q = LogSoftmax(got, columns);
  PositionError error;
  error.position = t + 1;
  for (size_t i = 0; i < columns; ++i) {
    found.logits.Add(double(got[i]) - want[i]);
    found.logprobs.Add(p[i] - q[i]);
    error.divergence += std::exp(p[i]) * (p[i] - q[i]);
  }
  const auto top = [&](const std::vector<double>& row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  error.same_top = top(p) == top(q);
  if (next >= 0) {
    const auto id = static_cast<size_t>(next);
    error.logprob = q[id] - p[id];
    AddSurprise(q[id], p[id], found);
  }
  found.positions.push_back(error);
}

// Compares whole rows of /debug/logits.
Status CompareLogits(const ReferencePrompt& prompt, const LogitRows& rows,
                     PromptComparison& found) {
  if (rows.columns != prompt.vocab_size ||
      rows.values.size() != prompt.logits.size()) {
    return FailedPrecondition(prompt.name, ": ", rows.columns,
                              " logits per token, the reference has ",
                              prompt.vocab_size);
  }
  found.compared = "logits of every token";
  for (size_t t = 0; t < prompt.ids.size(); ++t) {
    const int64_t next = t + 1 < prompt.ids.size() ? prompt.ids[t + 1] : -1;
    CompareRow(&prompt.logits[t * rows.columns], &rows.values[t * rows.columns],
               rows.columns, t, next, found);
  }
  return OkStatus();
}

// Returns what the endpoint gives as probabilities of `ids`.
StatusOr<ProbeAnswer> Score(const EvalApi& api, const std::string& name,
                            const std::vector<int64_t>& ids, int top) {
  Probe probe;
  probe.name = name;
  probe.prompt_json = PromptJson(ids);
  probe.max_tokens = 0;
  SLUICE_ASSIGN_OR_RETURN(ProbeAnswer answer, api.Ask(probe, top));
  SLUICE_RETURN_IF_ERROR(RequireEcho(name, ids, answer));
  return answer;
}

// Compares the likeliest ids of every position of the prompt and of the
// reference's answer.
Status CompareTop(const EvalApi& api, const ReferencePrompt& prompt,
                  PromptComparison& found) {
  std::vector<int64_t> ids = prompt.ids;
  ids.insert(ids.end(), prompt.greedy_ids.begin(), prompt.greedy_ids.end());
  SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer answer,
                          Score(api, prompt.name, ids, kMostTop));
  found.compared =
      Cat("log probability of each token and the ",
          prompt.top.size() > 1 ? prompt.top[1].size() : 0, " likeliest");
  for (size_t t = 1; t < ids.size(); ++t) {
    Top ours = answer.top[t];
    const auto own =
        std::find_if(ours.begin(), ours.end(),
                     [&](const auto& entry) { return entry.first == ids[t]; });
    if (own == ours.end()) ours.emplace_back(ids[t], answer.logprobs[t]);
    const std::map<int64_t, double> known(ours.begin(), ours.end());
    for (const auto& [id, logprob] : prompt.top[t]) {
      const auto same = known.find(id);
      if (same != known.end()) found.logprobs.Add(same->second - logprob);
    }
    PositionError error;
    error.position = t;
    error.divergence = TopDivergence(prompt.top[t], ours);
    error.same_top = Likeliest(prompt.top[t]) == Likeliest(ours);
    const bool in_prompt = t < prompt.ids.size();
    const std::vector<double>& wanted =
        in_prompt ? prompt.prompt_logprobs : prompt.greedy_logprobs;
    if (!wanted.empty()) {
      const double want = wanted[in_prompt ? t : t - prompt.ids.size()];
      error.logprob = answer.logprobs[t] - want;
      found.logprobs.Add(error.logprob);
      if (in_prompt) AddSurprise(answer.logprobs[t], want, found);
    }
    found.positions.push_back(error);
  }
  return OkStatus();
}

// Compares echoed log probabilities with the reference's logits or its own.
Status CompareLogprobs(const EvalApi& api, const ReferencePrompt& prompt,
                       PromptComparison& found) {
  constexpr int kFew = 5;
  SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer answer,
                          Score(api, prompt.name, prompt.ids, kFew));
  found.compared =
      prompt.logits.empty()
          ? "log probability of each token"
          : Cat("log probability of each token and the ", kFew, " likeliest");
  for (size_t t = 1; t < prompt.ids.size(); ++t) {
    double want = 0;
    if (prompt.logits.empty()) {
      want = prompt.prompt_logprobs[t];
    } else {
      const std::vector<double> row = LogSoftmax(
          &prompt.logits[(t - 1) * prompt.vocab_size], prompt.vocab_size);
      want = row[static_cast<size_t>(prompt.ids[t])];
      for (const auto& [id, logprob] : answer.top[t]) {
        if (static_cast<size_t>(id) >= row.size()) continue;
        found.logprobs.Add(logprob - row[static_cast<size_t>(id)]);
      }
    }
    found.logprobs.Add(answer.logprobs[t] - want);
    AddSurprise(answer.logprobs[t], want, found);
  }
  return OkStatus();
}

Status CompareGreedy(const EvalApi& api, const ReferencePrompt& prompt,
                     const ReferenceLimits& limits, PromptComparison& found) {
  Probe probe;
  probe.name = prompt.name;
  probe.prompt_json = PromptJson(prompt.ids);
  probe.max_tokens = static_cast<int64_t>(prompt.greedy_ids.size());
  SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer answer, api.Ask(probe));
  SLUICE_RETURN_IF_ERROR(RequireEcho(prompt.name, prompt.ids, answer));
  found.greedy_given = true;
  found.greedy = prompt.greedy_ids.size();
  for (size_t i = 0; i < found.greedy; ++i) {
    const size_t at = answer.prompt_length + i;
    if (answer.ids[at] != prompt.greedy_ids[i]) {
      const bool close = !prompt.gaps.empty() && prompt.gaps[i] < limits.gap;
      found.greedy_passed = close;
      found.greedy_note = Cat(
          "parts at ", i,
          prompt.gaps.empty() ? "" : Cat(", gap ", Scientific(prompt.gaps[i])));
      return OkStatus();
    }
    ++found.greedy_same;
    if (prompt.greedy_logprobs.empty()) continue;
    found.logprobs.Add(answer.logprobs[at] - prompt.greedy_logprobs[i]);
  }
  return OkStatus();
}

StatusOr<PromptComparison> ComparePrompt(const EvalApi& api,
                                         const ReferencePrompt& prompt,
                                         const ReferenceLimits& limits) {
  PromptComparison found;
  found.name = prompt.name;
  found.tokens = prompt.ids.size();
  if (!prompt.logits.empty()) {
    const auto rows = FetchLogits(api.base(), prompt.ids);
    if (rows.ok()) {
      SLUICE_RETURN_IF_ERROR(CompareLogits(prompt, *rows, found));
    } else if (rows.status().code() != StatusCode::kNotFound) {
      return rows.status();
    }
  }
  const bool has_logprobs =
      !prompt.logits.empty() || !prompt.prompt_logprobs.empty();
  if (found.compared.empty() && prompt.top.size() > 1) {
    SLUICE_RETURN_IF_ERROR(CompareTop(api, prompt, found));
  } else if (found.compared.empty() && has_logprobs && prompt.ids.size() > 1) {
    SLUICE_RETURN_IF_ERROR(CompareLogprobs(api, prompt, found));
  }
  if (!prompt.greedy_ids.empty()) {
    SLUICE_RETURN_IF_ERROR(CompareGreedy(api, prompt, limits, found));
  }
  return found;
}

template <typename T, typename Get>
T SumOf(const std::vector<PromptComparison>& prompts, Get get) {
  T sum{};
  for (const PromptComparison& prompt : prompts) sum += get(prompt);
  return sum;
}

template <typename Get>
std::vector<double> Sorted(const std::vector<PromptComparison>& prompts,
                           Get get) {
  std::vector<double> values;
  for (const PromptComparison& prompt : prompts) {
    for (const PositionError& error : prompt.positions) {
      values.push_back(get(error));
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

double PerplexityOf(double surprise, size_t tokens) {
  return tokens == 0 ? 0 : std::exp(surprise / double(tokens));
}

}  // namespace

double TopDivergence(const Top& reference, const Top& endpoint) {
  const std::map<int64_t, double> ours(endpoint.begin(), endpoint.end());
  double divergence = 0, p_rest = 1, q_rest = 1;
  for (const auto& [id, logprob] : reference) {
    const auto same = ours.find(id);
    if (same == ours.end()) continue;
    const double p = std::exp(logprob);
    divergence += p * (logprob - same->second);
    p_rest -= p;
    q_rest -= std::exp(same->second);
  }
  if (p_rest > kLeastProbability) {
    divergence +=
        p_rest * std::log(p_rest / std::max(q_rest, kLeastProbability));
  }
  return std::max(divergence, 0.0);
}

ErrorStats Comparison::Logits() const {
  ErrorStats sum;
  for (const PromptComparison& prompt : prompts) sum.Add(prompt.logits);
  return sum;
}

ErrorStats Comparison::Logprobs() const {
  ErrorStats sum;
  for (const PromptComparison& prompt : prompts) sum.Add(prompt.logprobs);
  return sum;
}

size_t Comparison::Greedy() const {
  return SumOf<size_t>(prompts, [](const auto& p) { return p.greedy; });
}

size_t Comparison::GreedySame() const {
  return SumOf<size_t>(prompts, [](const auto& p) { return p.greedy_same; });
}

size_t Comparison::LeftOut() const {
  return SumOf<size_t>(
      prompts, [](const auto& p) { return p.left_out.empty() ? 0 : 1; });
}

std::vector<double> Comparison::SortedErrors() const {
  return Sorted(prompts, [](const auto& e) { return std::fabs(e.logprob); });
}

std::vector<double> Comparison::SortedDivergences() const {
  return Sorted(prompts, [](const auto& e) { return e.divergence; });
}

double Comparison::SameTop() const {
  size_t same = 0, all = 0;
  for (const PromptComparison& prompt : prompts) {
    all += prompt.positions.size();
    for (const PositionError& error : prompt.positions) same += error.same_top;
  }
  return all == 0 ? 0 : double(same) / double(all);
}

double Comparison::Perplexity() const {
  return PerplexityOf(
      SumOf<double>(prompts, [](const auto& p) { return p.surprise; }),
      SumOf<size_t>(prompts, [](const auto& p) { return p.surprised; }));
}

double Comparison::ReferencePerplexity() const {
  return PerplexityOf(
      SumOf<double>(prompts,
                    [](const auto& p) { return p.reference_surprise; }),
      SumOf<size_t>(prompts, [](const auto& p) { return p.surprised; }));
}

StatusOr<Comparison> CompareWithReference(
    const EvalApi& api, const std::vector<ReferencePrompt>& prompts,
    const ReferenceLimits& limits,
    const std::function<Status(const std::string&)>& on_prompt) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t context, api.ContextLength());
  Comparison all;
  for (const ReferencePrompt& prompt : prompts) {
    const size_t tokens = prompt.ids.size() + prompt.greedy_ids.size();
    if (context > 0 && tokens > static_cast<size_t>(context)) {
      PromptComparison out;
      out.name = prompt.name;
      out.tokens = prompt.ids.size();
      out.left_out = Cat("left out: ", tokens, " tokens with the answer, the ",
                         "endpoint's context has ", context);
      all.prompts.push_back(std::move(out));
      continue;
    }
    if (on_prompt) SLUICE_RETURN_IF_ERROR(on_prompt(prompt.name));
    SLUICE_ASSIGN_OR_RETURN(PromptComparison found,
                            ComparePrompt(api, prompt, limits));
    all.prompts.push_back(std::move(found));
  }
  if (all.LeftOut() == all.prompts.size()) {
    return InvalidArgument("every prompt of the reference is longer than the ",
                           "endpoint's context of ", context);
  }
  if (all.Logprobs().count == 0 && all.Greedy() == 0) {
    return InvalidArgument("the reference has ids alone: nothing to compare");
  }
  return all;
}

}  // namespace sluice::eval
