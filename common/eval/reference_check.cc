#include <algorithm>
#include <cmath>
#include <utility>

#include "common/eval/checks.h"
#include "common/eval/logits_file.h"

namespace sluice::eval {
namespace {

constexpr int kTop = 5;  // beside each token, if there are no logits

// The findings about one prompt.
struct Found {
  std::string compared;  // the compared parts of the reference
  ErrorStats logits, logprobs;
  double largest_divergence = 0;  // Kullback-Leibler, in nats
  bool greedy_given = false;
  size_t greedy = 0, greedy_same = 0;
  bool greedy_passed = true;
  std::string greedy_note;
};

void CompareRow(const float* want, const float* got, size_t columns,
                Found& found) {
  const std::vector<double> p = LogSoftmax(want, columns);
  const std::vector<double> q = LogSoftmax(got, columns);
  double divergence = 0;
  for (size_t i = 0; i < columns; ++i) {
    found.logits.Add(double(got[i]) - want[i]);
    found.logprobs.Add(p[i] - q[i]);
    divergence += std::exp(p[i]) * (p[i] - q[i]);
  }
  found.largest_divergence = std::max(found.largest_divergence, divergence);
}

// Compares whole rows of /debug/logits.
Status CompareLogits(const ReferencePrompt& prompt, const LogitRows& rows,
                     Found& found) {
  if (rows.columns != prompt.vocab_size ||
      rows.values.size() != prompt.logits.size()) {
    return FailedPrecondition(prompt.name, ": ", rows.columns,
                              " logits per token, the reference has ",
                              prompt.vocab_size);
  }
  found.compared = "logits of every token";
  for (size_t t = 0; t < prompt.ids.size(); ++t) {
    CompareRow(&prompt.logits[t * rows.columns], &rows.values[t * rows.columns],
               rows.columns, found);
  }
  return OkStatus();
}

// Compares echoed log probabilities with the reference's logits or its own.
Status CompareLogprobs(const EvalApi& api, const ReferencePrompt& prompt,
                       Found& found) {
  Probe probe;
  probe.name = prompt.name;
  probe.prompt_json = PromptJson(prompt.ids);
  probe.max_tokens = 0;
  SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer answer, api.Ask(probe, kTop));
  SLUICE_RETURN_IF_ERROR(RequireEcho(prompt.name, prompt.ids, answer));
  found.compared =
      prompt.logits.empty()
          ? "log probability of each token"
          : Cat("log probability of each token and the ", kTop, " likeliest");
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
  }
  return OkStatus();
}

Status CompareGreedy(const EvalApi& api, const ReferencePrompt& prompt,
                     const ReferenceLimits& limits, Found& found) {
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

StatusOr<Found> ComparePrompt(const EvalApi& api, const ReferencePrompt& prompt,
                              const ReferenceLimits& limits) {
  Found found;
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
  if (found.compared.empty() && has_logprobs && prompt.ids.size() > 1) {
    SLUICE_RETURN_IF_ERROR(CompareLogprobs(api, prompt, found));
  }
  if (!prompt.greedy_ids.empty()) {
    SLUICE_RETURN_IF_ERROR(CompareGreedy(api, prompt, limits, found));
  }
  return found;
}

}  // namespace

StatusOr<CheckResult> CheckReference(
    const EvalApi& api, const std::vector<ReferencePrompt>& prompts,
    const ReferenceLimits& limits) {
  std::vector<std::vector<std::string>> rows = {
      {"prompt", "tokens", "compared", "logits: mean", "max",
       "log probabilities: mean", "max", "divergence", "greedy ids"}};
  ErrorStats logits, logprobs;
  size_t greedy = 0, greedy_same = 0;
  bool passed = true;
  for (const ReferencePrompt& prompt : prompts) {
    SLUICE_ASSIGN_OR_RETURN(const Found found,
                            ComparePrompt(api, prompt, limits));
    logits.Add(found.logits);
    logprobs.Add(found.logprobs);
    greedy += found.greedy;
    greedy_same += found.greedy_same;
    passed = passed && found.greedy_passed;
    const auto shown = [](const ErrorStats& stats, double value) {
      return stats.count == 0 ? std::string("-") : Scientific(value);
    };
    rows.push_back(
        {prompt.name, Cat(prompt.ids.size()),
         found.compared.empty() ? "greedy ids" : found.compared,
         shown(found.logits, found.logits.Mean()),
         shown(found.logits, found.logits.max),
         shown(found.logprobs, found.logprobs.Mean()),
         shown(found.logprobs, found.logprobs.max),
         shown(found.logits, found.largest_divergence),
         found.greedy_given
             ? Cat(found.greedy_same, " of ", found.greedy,
                   found.greedy_note.empty() ? "" : ", ", found.greedy_note)
             : "-"});
  }
  if (logprobs.count == 0 && greedy == 0) {
    return InvalidArgument("the reference has ids alone: nothing to compare");
  }
  CheckResult result;
  result.title = "Against the reference";
  result.passed = passed && logits.max <= limits.tolerance &&
                  logprobs.max <= limits.tolerance;
  result.summary = Cat(
      "log probabilities: mean error ", Scientific(logprobs.Mean()), ", max ",
      Scientific(logprobs.max), " (limit ", Scientific(limits.tolerance),
      "); greedy ids: ", greedy_same, " of ", greedy);
  if (logits.count > 0) {
    result.summary =
        Cat("logits: mean error ", Scientific(logits.Mean()), ", max ",
            Scientific(logits.max), "; ", result.summary);
  }
  result.body = Cat(
      "Errors are absolute; divergence is the largest Kullback-Leibler "
      "divergence of a position, in nats. A greedy answer may part from the "
      "reference where its two best logits are within ",
      Scientific(limits.gap), ".\n\n", MarkdownTable(rows));
  return result;
}

}  // namespace sluice::eval
