#ifndef SLUICE_COMMON_PIPELINE_RANKS_RANK_FRAMES_H_
#define SLUICE_COMMON_PIPELINE_RANKS_RANK_FRAMES_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/stage/rank_link.h"
#include "common/tensor/buffer.h"
#include "common/wire/protocol_versions.h"
#include "sluice/v1/ranks.pb.h"

// ranks.proto as values. FromProto and ReadStep trust no peer: every field is
// checked before it is copied. INVALID_ARGUMENT names what, which, limit and
// value.
namespace sluice {

// Field number of LeadFrame.hidden_states, which travels beside the rest
// (common/rpc/payload_frame.h).
inline constexpr int kRankHiddenField = 15;

inline constexpr size_t kMaxConnectIdBytes = 4096;
// The longest frame of a follower.
inline constexpr size_t kMaxFollowerFrameBytes = 16 << 10;

struct FollowerHello {
  uint32_t protocol_version = wire::kRanksProtocolVersion;
  std::string build;         // the lead may ask for its own
  std::string model_digest;  // hex
  int32_t first_rank = 0;
  int32_t num_ranks = 0;
  std::string process;  // for people: "pid 4711 on node-3"
};
v1::FollowerHello ToProto(const FollowerHello& hello);
// FAILED_PRECONDITION for another version.
StatusOr<FollowerHello> FromProto(const v1::FollowerHello& proto);

// An order as the lead sends it.
struct SentOrder {
  RankOrder order;
  std::string connect_id;  // by which the ranks' devices connect
  uint64_t load = 0;       // counts orders, from 1
};
v1::RankOrder ToProto(const SentOrder& sent);
StatusOr<SentOrder> FromProto(const v1::RankOrder& proto);
// INVALID_ARGUMENT names the first field that differs, with both values.
Status CheckSameOrder(const RankOrder& own, const RankOrder& lead);

// What every process says first of a load, before its devices connect. The
// numbers mean nothing.
RankFacts ReadyFacts();
v1::RankFacts ToProto(const RankFacts& facts, uint64_t load);
StatusOr<RankFacts> FromProto(const v1::RankFacts& proto);

// Returns a frame with the step and, of a stage that is not the first, `hidden`
// [T, H]. One frame serves all followers: copies of it share its bytes.
grpc::ByteBuffer StepFrame(const StepInputs& step, const HiddenStates& hidden);
// Reads a step within `bounds` into `into`, which was made with its limits.
// `hidden`: the frame's payload. `into` changes only if all is well.
Status ReadStep(const v1::RankStep& proto, Buffer hidden,
                const RankStepBounds& bounds, RankStep& into);
// The upper bound of StepFrame's bytes, for the lead's server. Below gRPC's own
// 2 GiB.
int64_t MaxStepFrameBytes(const RankStepBounds& bounds);

// "rank 3", "ranks 4 to 7".
std::string RanksText(int32_t first, int32_t count);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_RANKS_RANK_FRAMES_H_
