#ifndef SLUICE_COMMON_PIPELINE_STAGE_SESSION_LIVE_H_
#define SLUICE_COMMON_PIPELINE_STAGE_SESSION_LIVE_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "common/pipeline/stage/control_stream.h"
#include "common/pipeline/stage/results_stream.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/pipeline/stage/steps_stream.h"
#include "common/rpc/credited_sender.h"

namespace sluice {

// The current epoch: its streams and counts. Guarded by the session's mutex.
struct StageSession::Live {
  Assignment assignment;
  bool assigned = false;  // Assigned was answered
  bool broken = false;    // Failure was sent
  std::shared_ptr<StepsStream> input;
  std::shared_ptr<rpc::CreditedSender> next;
  std::deque<int64_t> sent_ns;  // frames that `next` has not acknowledged
  // Computed, and not acknowledged to the predecessor: those that wait for
  // the successor's credit. So a slow stage slows down those before it.
  struct Unacked {
    StepId step;
    StepTiming timing;
  };
  std::deque<Unacked> unacked;
  std::shared_ptr<ResultsStream> results;
  std::deque<v1::StepResult> early_results;  // before there was a reader
  int64_t hop_ns = 0;     // moving mean over steps that `next` acknowledged
  uint64_t accepted = 0;  // steps
  uint64_t done = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_SESSION_LIVE_H_
