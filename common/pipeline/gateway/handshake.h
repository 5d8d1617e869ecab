#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/wire/stage.h"

namespace sluice {

// What a stage said of itself.
struct StageWelcome {
  std::string address;
  wire::StageIdentity identity;
  wire::PipelineLimits limits;
};

// INVALID_ARGUMENT for a welcome out of range; FAILED_PRECONDITION if the
// protocol versions differ (both are named).
StatusOr<StageWelcome> CheckWelcome(const std::string& address,
                                    const v1::Welcome& welcome);

// A pipeline that cannot be, and which stage is at odds with those before.
struct StageConflict {
  int stage = 0;
  Status why;  // FAILED_PRECONDITION naming both sides' addresses and values
};

struct JoinedPipeline {
  PipelineModel model;
  wire::PipelineLimits limits;  // the least of every stage's
};

// Whether `stages`, in their order, are one pipeline: layer ranges that join
// up and cover the model; digest, numerics, weights' dtype, hidden size,
// vocabulary, block size and KV groups equal.
class JoinResult {
 public:
  explicit JoinResult(JoinedPipeline joined) : joined_(std::move(joined)) {}
  explicit JoinResult(StageConflict conflict)
      : conflict_(std::move(conflict)) {}
  bool ok() const { return conflict_.why.ok(); }
  const JoinedPipeline& joined() const { return joined_; }
  const StageConflict& conflict() const { return conflict_; }

 private:
  JoinedPipeline joined_;
  StageConflict conflict_;
};
JoinResult JoinStages(const std::vector<StageWelcome>& stages);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_
