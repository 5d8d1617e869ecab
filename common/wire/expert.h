#ifndef SLUICE_COMMON_WIRE_EXPERT_H_
#define SLUICE_COMMON_WIRE_EXPERT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/tensor/buffer.h"
#include "common/tensor/hidden_states.h"
#include "common/wire/protocol_versions.h"
#include "kernels/reduction_tree.h"
#include "sluice/v1/expert.pb.h"

// expert.proto as values. As in types.h, FromProto checks every field.
namespace sluice::wire {

// Field number of ExpertFrame.hidden_states and of ExpertAnswer.sums, which
// travel beside the rest (common/rpc/payload_frame.h).
inline constexpr int kExpertPayloadField = 15;

// The facts that both sides of a stream must share for equal bits. A value.
struct ExpertModel {
  std::string model_digest;
  std::string numerics;
  std::string weights;     // as configured: "auto", "bf16" or "f32"
  int32_t num_layers = 0;  // of the whole model
  int32_t hidden_size = 0;
  int32_t num_experts = 0;  // of a sparse layer
  int32_t experts_per_token = 0;
  bool operator==(const ExpertModel&) const = default;
};

// Experts of one layer, by id: ranges that rise and do not touch.
struct LayerExperts {
  int32_t layer = 0;
  std::vector<kernels::TreeNode> ranges;
  bool operator==(const LayerExperts&) const = default;
};

struct ExpertLimits {
  int32_t max_rows = 0;               // of one batch
  int32_t max_batches_in_flight = 0;  // on one stream
  bool operator==(const ExpertLimits&) const = default;
};

struct ExpertHello {
  uint32_t protocol_version = kExpertProtocolVersion;
  std::string client;
  std::string build;
  ExpertModel model;
  std::vector<LayerExperts> wanted;  // layers rising; empty: any
};

// The experts and limits of a host, from its welcome.
struct ExpertWelcome {
  uint32_t protocol_version = kExpertProtocolVersion;
  std::string build;
  std::string model_name;
  ExpertModel model;
  std::string weights_dtype;       // computed with: "f32", "bf16" or "mxfp4"
  std::vector<LayerExperts> held;  // layers rising
  uint64_t weights_bytes = 0;
  int32_t threads = 0;
  std::string isa;
  ExpertLimits limits;
  int64_t clock_ns = 0;
};

// Whether `held`, layers rising, covers `node` of `layer` in one range.
bool Holds(const std::vector<LayerExperts>& held, int32_t layer,
           kernels::TreeNode node);
// Whether `node` is one aligned node of the tree over `num_experts` leaves.
bool IsAlignedNode(kernels::TreeNode node, int32_t num_experts);

// FAILED_PRECONDITION names the first field that differs, with both values.
Status CheckSameModel(const ExpertModel& own, const ExpertModel& peer);
// FAILED_PRECONDITION names the first range of `wanted` that `held` lacks.
Status CheckHolds(const std::vector<LayerExperts>& held,
                  const std::vector<LayerExperts>& wanted);

v1::ExpertHello ToProto(const ExpertHello& hello);
StatusOr<ExpertHello> FromProto(const v1::ExpertHello& proto);
v1::ExpertWelcome ToProto(const ExpertWelcome& welcome);
StatusOr<ExpertWelcome> FromProto(const v1::ExpertWelcome& proto);

// A row without sums, and the reason.
struct ExpertRowFailure {
  int32_t row = 0;
  Status status;
};

// Rows of one layer for one host. counts, expert_ids and weights are in the
// order of the rows, the latter two row after row.
struct ExpertBatch {
  ReplicaId replica;
  Epoch epoch;
  StepId step;
  uint64_t batch_id = 0;
  int32_t layer = 0;
  std::vector<kernels::TreeNode> nodes;  // wanted; rising, apart, aligned
  std::vector<int32_t> counts;           // [rows], each at least 1
  std::vector<int32_t> expert_ids;       // [sum of counts], rising in a row
  std::vector<float> weights;            // [sum of counts]
  int64_t sent_ns = 0;
  HiddenStates x;  // [rows, hidden_size]
  // Of a received batch: the rows that break the rules, rising. Their other
  // values are unchecked and must not be used.
  std::vector<ExpertRowFailure> failures;

  int32_t rows() const { return x.rows; }
};

// Without x, which travels beside it as kExpertPayloadField.
v1::ExpertFrame ExpertFrameHead(const ExpertBatch& batch);
// `payload` is the frame's. INVALID_ARGUMENT for a batch that contradicts
// itself or the model; FAILED_PRECONDITION for a layer or node that is not in
// `held`. Errors of one row are in `failures`.
StatusOr<ExpertBatch> FromProto(const v1::ExpertBatch& proto, Buffer payload,
                                const ExpertWelcome& host);

// Nanoseconds on the host; see expert.proto.
struct ExpertTimes {
  int64_t queue_ns = 0;
  int64_t compute_ns = 0;
  int64_t total_ns = 0;
  int32_t joined_batches = 0;
  int32_t joined_rows = 0;
};

// A batch's answer.
struct ExpertResult {
  ReplicaId replica;
  Epoch epoch;
  StepId step;
  uint64_t batch_id = 0;
  int32_t layer = 0;
  Status status;      // of the batch; not OK: neither sums nor failures
  int32_t nodes = 0;  // as many as the batch wants
  int32_t rows = 0;   // as many as the batch has
  std::vector<ExpertRowFailure> failures;  // rows rising
  ExpertTimes times;
  int64_t sent_ns = 0;  // the batch's
  Buffer sums;          // [nodes, rows, hidden_size] F32; NaN in failed rows

  // Row `row` of node `node`.
  const float* sum(int32_t node, int32_t row, int32_t hidden_size) const {
    return sums.as<float>() +
           (int64_t{node} * rows + row) * int64_t{hidden_size};
  }
};

// The ids and the shape of a sent batch, which its result must echo. A value.
struct SentBatch {
  ReplicaId replica;
  Epoch epoch;
  StepId step;
  uint64_t batch_id = 0;
  int32_t layer = 0;
  int32_t nodes = 0;
  int32_t rows = 0;
  int32_t hidden_size = 0;
};
SentBatch SentOf(const ExpertBatch& batch);

// Without sums, which travel beside it as kExpertPayloadField.
v1::ExpertAnswer ExpertAnswerHead(const ExpertResult& result);
// INVALID_ARGUMENT for a result that does not answer `asked`: other ids, sums
// of another size, failures out of order, impossible times. `payload`: the
// answer's.
StatusOr<ExpertResult> FromProto(const v1::ExpertResult& proto, Buffer payload,
                                 const SentBatch& asked);

// Upper bound of a frame's bytes, for the channels. Below gRPC's own 2 GiB.
int64_t MaxExpertFrameBytes(const ExpertModel& model,
                            const ExpertLimits& limits);
// The same for an answer with `nodes` nodes per batch.
int64_t MaxExpertAnswerBytes(const ExpertModel& model,
                             const ExpertLimits& limits, int32_t nodes);

}  // namespace sluice::wire

#endif  // SLUICE_COMMON_WIRE_EXPERT_H_
