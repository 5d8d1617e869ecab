#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "services/cli/eval/checks.h"
#include "services/cli/eval/error_table.h"

namespace sluice::cli {
namespace {

// Asks probe i % size for i < count, all at once; in the order of i.
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

// The most sequences that ran at once while this was there; -1 if the server
// does not tell.
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
  double most_ = -1;  // of the thread until it is joined
  std::jthread thread_;
};

}  // namespace

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
  std::vector<std::vector<std::string>> rows = {
      {"prompt", "tokens", "ids", "log probabilities that differ",
       "largest difference"}};
  size_t tokens = 0, different = 0;
  for (size_t i = 0; i < probes.size(); ++i) {
    AnswerDifference worst;
    for (size_t at = i; at < count; at += probes.size()) {
      const AnswerDifference found = Compare(alone[i], together[at]);
      tokens += found.tokens;
      if (!found.Same()) ++different;
      if (at == i || !found.Same()) worst = found;
    }
    rows.push_back(
        {probes[i].name, Cat(worst.tokens),
         worst.same_ids ? "same" : Cat("part at ", worst.first_different),
         Cat(worst.different_logprobs), Scientific(worst.logprobs.max)});
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

}  // namespace sluice::cli
