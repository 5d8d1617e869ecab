#ifndef SLUICE_COMMON_PIPELINE_STAGE_EPOCH_STREAMS_H_
#define SLUICE_COMMON_PIPELINE_STAGE_EPOCH_STREAMS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/pipeline/stage/sampled_link.h"
#include "common/rpc/credited_sender.h"
#include "common/stage/stage_loop.h"
#include "common/wire/stage.h"

namespace sluice {

class ResultsStream;
class StepsStream;

// A stage's place in one epoch, as the gateway assigned it. A value.
struct Assignment : wire::PipelineName {
  PipelineLimits limits;     // of the pipeline
  std::string next_address;  // empty: the last stage
  std::string last_address;  // see v1::Assign
};

// A stage's streams and counts of one epoch. EpochLinks' mutex guards all but
// End.
struct EpochStreams {
  // Queues the acks of computed steps that the successor has room for.
  void QueueAcks();
  // RESOURCE_EXHAUSTED if the gateway, or the first stage, reads too little.
  // Drops the results of a broken epoch.
  Status QueueResult(v1::StepResult result);
  // Queues the sampled tokens of `result` for a first stage that reads them.
  Status QueueSampled(const StepResult& result);
  // Sets the gateway as the reader of results, or the first stage as the reader
  // of tokens. FAILED_PRECONDITION if there is one.
  Status AddReader(bool tokens_only, std::shared_ptr<ResultsStream> reader);
  void RemoveReader(const ResultsStream* reader);
  // Ends the streams, once the epoch is over.
  void End(const Status& why);

  Assignment assignment;
  bool assigned = false;  // Assigned was sent
  bool broken = false;    // Failure was sent
  std::shared_ptr<StepsStream> input;
  std::shared_ptr<rpc::CreditedSender> next;
  std::map<StepId, v1::StepPlan> plans;  // under way here, for `next`
  std::deque<int64_t> sent_ns;  // frames that `next` has not acknowledged
  // Computed steps without an ack to the predecessor, since the successor has
  // no credit for them. So a slow stage slows the stages before it.
  struct Unacked {
    StepId step;
    StepTiming timing;
  };
  std::deque<Unacked> unacked;
  std::shared_ptr<ResultsStream> results;
  std::deque<v1::StepResult> early_results;  // from before there was a reader
  std::shared_ptr<ResultsStream> tokens_to;  // last stage: to the first one
  std::shared_ptr<SampledLink> tokens_from;  // first stage: from the last one
  int64_t hop_ns = 0;
  uint64_t accepted = 0;  // steps
  uint64_t done = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_EPOCH_STREAMS_H_
