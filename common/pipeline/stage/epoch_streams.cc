#include "common/pipeline/stage/epoch_streams.h"

#include <utility>

#include "common/pipeline/stage/results_stream.h"
#include "common/pipeline/stage/steps_stream.h"

namespace sluice {

void EpochStreams::QueueAcks() {
  const size_t waiting = next == nullptr ? 0 : next->waiting();
  while (unacked.size() > waiting) {
    const Unacked& step = unacked.front();
    if (input != nullptr) input->QueueAck(step.step, step.timing);
    unacked.pop_front();
  }
}

Status EpochStreams::QueueResult(v1::StepResult result) {
  // One may have been lost, and the gateway's end of the stream does not show
  // it: no result may follow.
  if (broken) return OkStatus();
  bool queued = false;
  if (results != nullptr) {
    queued = results->Enqueue(std::move(result));
  } else {
    queued = early_results.size() <
             static_cast<size_t>(assignment.limits.max_steps_in_flight);
    if (queued) early_results.push_back(std::move(result));
  }
  if (queued) return OkStatus();
  return ResourceExhausted("the gateway reads no results");
}

Status EpochStreams::QueueSampled(const StepResult& result) {
  if (tokens_to == nullptr ||
      tokens_to->Enqueue(wire::SampledToProto(result))) {
    return OkStatus();
  }
  return ResourceExhausted("the first stage reads no sampled tokens");
}

Status EpochStreams::AddReader(bool tokens_only,
                               std::shared_ptr<ResultsStream> reader) {
  auto& place = tokens_only ? tokens_to : results;
  if (place != nullptr) {
    return FailedPrecondition(tokens_only ? "the tokens" : "the results",
                              " of this epoch are being read");
  }
  place = std::move(reader);
  if (tokens_only) {
    // The answer that accepts the hello.
    place->Enqueue(
        wire::ToProto(StepResult{assignment.replica, assignment.epoch}));
    return OkStatus();
  }
  for (v1::StepResult& early : early_results) {
    place->Enqueue(std::move(early));
  }
  early_results.clear();
  return OkStatus();
}

void EpochStreams::RemoveReader(const ResultsStream* reader) {
  if (results.get() == reader) results = nullptr;
  if (tokens_to.get() == reader) tokens_to = nullptr;
}

void EpochStreams::End(const Status& why) {
  if (input != nullptr) input->End(why);
  if (next != nullptr) next->Cancel(why);
  if (results != nullptr) results->End(why);
  if (tokens_to != nullptr) tokens_to->End(why);
  if (tokens_from != nullptr) tokens_from->Cancel(why);
}

}  // namespace sluice
