#ifndef SLUICE_COMMON_PIPELINE_RANKS_LEAD_STREAM_H_
#define SLUICE_COMMON_PIPELINE_RANKS_LEAD_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "common/rpc/client_stream.h"
#include "common/stage/rank_link.h"

namespace sluice {

// LeadConnection's stream, whose methods have its contracts: the state of the
// present load and of the next one. gRPC's thread brings the lead's frames; one
// mutex guards what they change.
class LeadStream
    : public rpc::ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using OnEndCallback = std::function<void(const Status& status)>;

  LeadStream(std::shared_ptr<grpc::Channel> channel, OnEndCallback on_end);

  StatusOr<RankOrder> WaitOrder(TimePoint deadline);
  StatusOr<std::string> Connect(const RankOrder& order);
  StatusOr<RankFacts> Agree(const RankFacts& own);
  void Follow(RankStepRunner* runner);
  Status WaitDropped(TimePoint deadline);
  void Leave();
  void GiveUp(const Status& why);
  // Breaks the stream off without a callback, and waits for its end.
  void Close();

 private:
  struct EarlyStep {
    v1::RankStep proto;
    Buffer hidden;
  };
  struct Load {
    SentOrder sent;
    bool asks = false;               // Agree waits for facts
    std::optional<RankFacts> facts;  // of all ranks
    std::deque<EarlyStep> steps;     // before Follow
    bool dropped = false;
    bool given_up = false;
  };

  void OnMessage(grpc::ByteBuffer& frame) override;
  void OnEnd(const Status& status) override;
  Status OnFrame(const grpc::ByteBuffer& frame);
  Status OnOrder(const v1::RankOrder& proto)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status OnFacts(const v1::RankFacts& proto)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status OnStep(v1::RankStep proto, Buffer hidden)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status OnDrop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // An error unless the load that WaitOrder returned last goes on.
  Status CheckGoesOn(const char* what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status PushStep(const v1::RankStep& proto, Buffer hidden,
                  RankStepRunner& runner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error of a wait that a stream's end ends.
  Status Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error of what a drop or the stream's end ends.
  Status LoadOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SendHead(const v1::FollowerFrame& frame);

  Mutex mutex_;
  CondVar changed_;
  OnEndCallback on_end_ ABSL_GUARDED_BY(mutex_);
  std::optional<Load> load_ ABSL_GUARDED_BY(mutex_);  // WaitOrder's
  std::optional<Load> next_ ABSL_GUARDED_BY(mutex_);  // the one behind it
  RankStepRunner* runner_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // or about to end
  // A failure was sent before the first order.
  bool failed_early_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Status> end_ ABSL_GUARDED_BY(mutex_);  // on_end has returned
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_RANKS_LEAD_STREAM_H_
