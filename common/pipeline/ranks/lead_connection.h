#ifndef SLUICE_COMMON_PIPELINE_RANKS_LEAD_CONNECTION_H_
#define SLUICE_COMMON_PIPELINE_RANKS_LEAD_CONNECTION_H_

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "common/rpc/transport_options.h"
#include "common/stage/rank_link.h"

namespace sluice {

class LeadStream;

// The follower's end of Follow (proto/sluice/v1/ranks.proto). One load after
// another: WaitOrder, Connect, Agree, Follow, WaitDropped. One thread at a time
// calls these; any thread calls Leave and GiveUp.
class LeadConnection : public RankLink {
 public:
  // Steps that may come before Follow. As many as a RankFollower takes at once
  // (RankFollower::kSteps): Follow hands it all of them, and the lead cannot
  // finish any before.
  static constexpr size_t kMaxEarlySteps = 4;

  // Begins to connect to the lead. `on_end` is called once, by gRPC's thread,
  // when the stream is over, and before a wait returns that end: with OK when
  // the lead ended it in order, and this process is to end, too. It has
  // returned when the destructor returns, and may not destroy this object. A
  // stream that ends with CANCELLED, DEADLINE_EXCEEDED or ABORTED of its own is
  // UNAVAILABLE with the same text, here and below, where these codes have
  // other meanings. INVALID_ARGUMENT for an address that may not be used.
  static StatusOr<std::unique_ptr<LeadConnection>> Open(
      const std::string& address, rpc::TransportOptions transport,
      const FollowerHello& hello,
      std::function<void(const Status& status)> on_end);
  explicit LeadConnection(std::shared_ptr<LeadStream> stream);
  // Breaks the stream off, unless it is over, and waits for its end.
  ~LeadConnection() override;

  // Returns the next load's order. DEADLINE_EXCEEDED: there is none yet; else
  // the status with which the stream ended, CANCELLED if that was OK.
  StatusOr<RankOrder> WaitOrder(TimePoint deadline);

  // Needs an order. Returns when all processes have called Connect.
  // INVALID_ARGUMENT if `order` is not the lead's; others as Agree.
  StatusOr<std::string> Connect(const RankOrder& order,
                                std::string own) override;
  // Errors: ABORTED if the lead drops this load instead, because the lead or
  // another follower could not load; the stream's end as WaitOrder.
  StatusOr<RankFacts> Agree(const RankFacts& own) override;
  // Tells the lead that this process could not load its ranks. The lead's
  // Connect or Agree fails with it. Once for each load, and not when the lead
  // has dropped it or the stream is over.
  void GiveUp(const Status& why) override;
  void AwaitDrop() override;
  // A follower begins and drops nothing by itself: both abort.
  void Begin(const StepInputs& step, const HiddenStates& hidden) override;
  void Drop() override;

  // Hands the steps of this load to `runner`: those that have come by this
  // call, later ones by gRPC's thread, under a lock, so that `runner` may call
  // nothing here. It is not used after the drop or the stream's end, which
  // comes, too, with RESOURCE_EXHAUSTED, when it has no place for a step, and
  // with INVALID_ARGUMENT at a step that is not within its bounds.
  void Follow(RankStepRunner* runner);
  // OK: the lead has dropped this load, and all its steps have been pushed.
  // Else as WaitOrder.
  Status WaitDropped(TimePoint deadline);

  // Tells the lead that this process was told to end. The lead ends the stage,
  // and then the stream, in order.
  void Leave();

 private:
  const std::shared_ptr<LeadStream> stream_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_RANKS_LEAD_CONNECTION_H_
