#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "common/tools/eval/checks.h"

namespace sluice::eval {
namespace {

// Sends probe i % size for i < count, all at once; answers in the order of i.
StatusOr<std::vector<ProbeAnswer>> AskTogether(const EvalApi& api,
                                               const std::vector<Probe>& probes,
                                               size_t count) {
  std::vector<std::optional<StatusOr<ProbeAnswer>>> answers(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back(
        [&, i] { answers[i] = api.Ask(probes[i % probes.size()]); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<ProbeAnswer> out;
  for (auto& answer : answers) {
    if (!answer->ok()) return answer->status();
    out.push_back(**std::move(answer));
  }
  return out;
}

// Watches the most sequences that run at once; -1 without a gauge.
class RunningWatch {
 public:
  explicit RunningWatch(const EvalApi& api)
      : thread_([this, &api](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            const StatusOr<double> running = api.RunningRequests();
            if (!running.ok()) return;
            most_ = std::max(most_, *running);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}

  double Stop() {
    thread_.request_stop();
    thread_.join();
    return most_;
  }

 private:
  double most_ = -1;  // the thread's, until its join
  std::jthread thread_;
};

using TableRow = std::vector<std::string>;

std::vector<TableRow> TableHead() {
  return {{"prompt", "tokens", "ids", "log probabilities that differ",
           "largest difference"}};
}

TableRow RowOf(const Probe& probe, const AnswerDifference& found) {
  return {probe.name, Cat(found.tokens),
          found.same_ids ? "same" : Cat("part at ", found.first_different),
          Cat(found.different_logprobs), Scientific(found.logprobs.max)};
}

}  // namespace

AnswerDifference Compare(const ProbeAnswer& a, const ProbeAnswer& b) {
  AnswerDifference out;
  const size_t common = std::min(a.ids.size(), b.ids.size());
  out.tokens = std::max(a.ids.size(), b.ids.size());
  out.same_ids = a.ids == b.ids;
  out.first_different = static_cast<size_t>(
      std::mismatch(a.ids.begin(), a.ids.begin() + std::ptrdiff_t(common),
                    b.ids.begin())
          .first -
      a.ids.begin());
  for (size_t i = 0; i < out.first_different; ++i) {
    const double x = a.logprobs[i], y = b.logprobs[i];
    if (i == 0 && std::isnan(x) && std::isnan(y)) continue;
    out.logprobs.Add(x - y);
    if (!(x == y)) ++out.different_logprobs;
  }
  return out;
}

std::string OverlapNote(double running) {
  if (running < 0) {
    return "That they ran together cannot be shown: the server's /metrics "
           "has no vllm:num_requests_running.";
  }
  if (running < 2) {
    return Cat(
        "That they ran together cannot be shown: the server's gauge "
        "told at most ",
        running, " running.");
  }
  return Cat("The server's gauge told up to ", running, " running at once.");
}

StatusOr<CheckResult> CheckBatch(const EvalApi& api,
                                 const std::vector<Probe>& probes, int crowd) {
  std::vector<ProbeAnswer> alone;
  for (const Probe& probe : probes) {
    SLUICE_ASSIGN_OR_RETURN(ProbeAnswer answer, api.Ask(probe));
    alone.push_back(std::move(answer));
  }
  const size_t count = std::max(probes.size(), static_cast<size_t>(crowd));
  RunningWatch watch(api);
  auto asked = AskTogether(api, probes, count);
  const double running = watch.Stop();
  if (!asked.ok()) return asked.status();
  const std::vector<ProbeAnswer> together = *std::move(asked);
  std::vector<TableRow> rows = TableHead();
  size_t tokens = 0, different = 0;
  for (size_t i = 0; i < probes.size(); ++i) {
    AnswerDifference worst;
    for (size_t at = i; at < count; at += probes.size()) {
      const AnswerDifference found = Compare(alone[i], together[at]);
      tokens += found.tokens;
      if (!found.Same()) ++different;
      if (at == i || !found.Same()) worst = found;
    }
    rows.push_back(RowOf(probes[i], worst));
  }
  CheckResult result;
  result.title = "Batch invariance";
  result.passed = different == 0;
  result.summary =
      Cat(count - different, " of ", count, " answers the same in a crowd of ",
          count, " as alone, ", tokens, " tokens",
          running < 2 ? "; overlap cannot be shown" : "");
  result.body =
      Cat("Each prompt was asked alone, then ", count,
          " requests at once. Ids and every bit of the log probabilities, the "
          "prompt's and the answer's, must be the same. ",
          OverlapNote(running), "\n\n", MarkdownTable(rows));
  return result;
}

StatusOr<CheckResult> CheckCut(const EvalApi& api, const EvalApi& other,
                               const std::vector<Probe>& probes,
                               double tolerance) {
  std::vector<TableRow> rows = TableHead();
  size_t tokens = 0, failed = 0;
  ErrorStats errors;
  for (const Probe& probe : probes) {
    SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer here, api.Ask(probe));
    SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer there, other.Ask(probe));
    const AnswerDifference found = Compare(here, there);
    const bool same = tolerance > 0
                          ? found.same_ids && found.logprobs.count > 0 &&
                                found.logprobs.max <= tolerance
                          : found.Same();
    if (!same) ++failed;
    tokens += found.tokens;
    errors.Add(found.logprobs);
    rows.push_back(RowOf(probe, found));
  }
  CheckResult result;
  result.title = "Cut invariance";
  result.passed = failed == 0;
  result.summary = Cat(probes.size() - failed, " of ", probes.size(),
                       " answers the same at ", other.url(), ", ", tokens,
                       " tokens, largest difference ", Scientific(errors.max));
  result.body = Cat("The same requests at ", api.url(), " and at ", other.url(),
                    ". Ids must be the same, and log probabilities ",
                    tolerance > 0 ? Cat("within ", Scientific(tolerance))
                                  : std::string("in every bit"),
                    ".\n\n", MarkdownTable(rows));
  return result;
}

}  // namespace sluice::eval
