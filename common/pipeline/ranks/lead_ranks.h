#ifndef SLUICE_COMMON_PIPELINE_RANKS_LEAD_RANKS_H_
#define SLUICE_COMMON_PIPELINE_RANKS_LEAD_RANKS_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/end_process.h"
#include "common/base/log_limit.h"
#include "common/base/mutex.h"
#include "common/stage/rank_link.h"
#include "sluice/v1/ranks.pb.h"

namespace sluice {

class FollowStream;
struct FollowerHello;

struct LeadRanksOptions {
  int32_t own_ranks = 1;  // the lead's: [0, own_ranks)
  int32_t all_ranks = 1;
  // The lead's. A follower of another build is refused. Empty: any may follow.
  std::string build = {};
  // Connect's and Agree's thread: "waits for ranks 4 to 7, 12 to 15" that have
  // not come; "waits for ranks 4 to 7 to load", which have, but have said
  // nothing. Again when it is for others, and empty at the end. May be null.
  std::function<void(const std::string& text)> on_waiting = {};
  // gRPC's threads; may not block. A follower with a load was told to end: the
  // stage is to end in order. May be null.
  std::function<void(const std::string& why)> on_leaving = {};
  // A follower with a load was lost: devices cannot go on alone. Called by
  // gRPC's threads or by Begin's, Connect's, Agree's and Drop's.
  std::function<void(const std::string& why)> on_lost =
      [](const std::string& why) { EndToBeReplaced(why); };
};

// The lead's end of Follow (proto/sluice/v1/ranks.proto): holds at most one
// follower for each range of ranks. Any thread: one mutex, never held while
// writing to a follower or in a callback. Messages are queued under it, so that
// all followers get them in one order. Streams hold shared references. The
// stage's loading thread calls Connect and Agree, its loop Begin.
class LeadRanks : public RankLink {
 public:
  // Messages that may wait for a follower. One whose queue is full is lost.
  static constexpr size_t kMaxQueuedFrames = 64;
  // Facts of a follower that may wait for the lead's.
  static constexpr size_t kMaxEarlyFacts = 4;

  explicit LeadRanks(LeadRanksOptions options);
  ~LeadRanks() override;

  // Also what Agree returns: all followers call Connect before the lead's
  // returns. There is no load after an error.
  StatusOr<std::string> Connect(const RankOrder& order,
                                std::string own) override;
  // Also UNAVAILABLE if a follower is lost or the process is told to end.
  StatusOr<RankFacts> Agree(const RankFacts& own) override;
  void GiveUp(const Status& why) override;
  void Begin(const StepInputs& step, const HiddenStates& hidden) override;
  void Drop() override;

  // Connect and Agree return UNAVAILABLE from now on; steps go on.
  void StopLoads();
  // Likewise, and all streams end with OK, and no callback comes any more, but
  // for those under way. For good.
  void Stop();

  // The streams' events; gRPC's threads. Errors end the stream.
  Status OnHello(const v1::FollowerHello& proto, const std::string& peer,
                 std::shared_ptr<FollowStream> stream);
  Status OnFrame(const FollowStream* stream, const v1::FollowerFrame& frame);
  void OnEnd(const FollowStream* stream, const Status& status);

 private:
  struct Follower {
    std::shared_ptr<FollowStream> stream;
    int32_t count = 0;            // of ranks
    std::string name;             // "ranks 4 to 7 (ipv4:10.0.0.2:4000, pid 7)"
    std::string digest;           // of its model
    bool has_load = false;        // from the order until the drop
    bool is_leaving = false;      // with a load
    std::deque<RankFacts> facts;  // not yet answered
    std::optional<Status> failure;
    const char* were() const { return count == 1 ? "was " : "were "; }
    // The name, behind it the failure, if there is one, and `what`.
    std::string Tell(const std::string& what) const;
  };
  // By the first rank.
  using Followers = std::map<int32_t, Follower>;
  // What is left to do without the lock.
  struct Outgoing {
    std::vector<std::shared_ptr<FollowStream>> pumped;
    std::vector<std::shared_ptr<FollowStream>> full;
    std::vector<std::string> lost;  // for on_lost
  };

  Status CheckHello(const FollowerHello& hello, const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Followers::iterator Find(const FollowStream* stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // "waits for ..."; empty if followers have all ranks.
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // "waits for ... to load"; empty if every follower has said facts.
  std::string Silent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error that ends a wait: the end of loads, the first failure, which it
  // takes, if it is of no load, or a loss.
  Status WhyNotToWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out the followers whose model is another one.
  std::vector<Follower> TakeOthers(const std::string& digest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until followers have all ranks, or, with a load, until each has said
  // facts; OK with the mutex held all the time since they do.
  Status AwaitAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StatusOr<RankFacts> Combine(RankFacts all)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues a message for all followers with a load; Finish does the rest.
  Outgoing QueueForAll(const grpc::ByteBuffer& frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(const Outgoing& outgoing) ABSL_LOCKS_EXCLUDED(mutex_);

  const LeadRanksOptions options_;
  // Any client may come and go as often as it likes.
  LogLimit visits_{20, std::chrono::seconds(1)};
  LogLimit refusals_{5, std::chrono::seconds(60)};
  Mutex mutex_;
  CondVar changed_;  // followers, their facts and failures, the end
  Followers followers_ ABSL_GUARDED_BY(mutex_);
  std::string digest_ ABSL_GUARDED_BY(mutex_);  // the lead's; empty: unknown
  uint64_t load_ ABSL_GUARDED_BY(mutex_) = 0;   // the latest order's
  bool has_load_ ABSL_GUARDED_BY(mutex_) = false;
  std::string lost_ ABSL_GUARDED_BY(mutex_);  // who, and why, of this load
  bool loads_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_RANKS_LEAD_RANKS_H_
