#include "common/pipeline/ranks/lead_ranks.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/pipeline/ranks/follow_stream.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "common/pipeline/ranks/rank_list.h"
#include "common/rpc/payload_frame.h"
#include "common/tensor/buffer.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

grpc::ByteBuffer FrameOf(const v1::LeadFrame& frame) {
  return rpc::JoinPayload(frame, kRankHiddenField, Buffer());
}

std::string NameOf(const FollowerHello& hello, const std::string& peer) {
  const char* const comma = peer.empty() || hello.process.empty() ? "" : ", ";
  const std::string who = Cat(peer, comma, hello.process);
  const std::string ranks = RanksText(hello.first_rank, hello.num_ranks);
  return who.empty() ? ranks : Cat(ranks, " (", who, ")");
}

Status OtherModel(const std::string& name, const std::string& digest,
                  const std::string& own) {
  return FailedPrecondition("the model of ", name, " is ", digest,
                            ", that of the lead ", own);
}

Status ToldToEnd() { return Unavailable("this process was told to end"); }

}  // namespace

LeadRanks::LeadRanks(LeadRanksOptions options) : options_(std::move(options)) {
  SLUICE_CHECK(options_.own_ranks >= 1);
  SLUICE_CHECK(options_.all_ranks >= options_.own_ranks);
  SLUICE_CHECK(options_.on_lost != nullptr);
}

LeadRanks::~LeadRanks() = default;

// Followers ------------------------------------------------------------------

std::string LeadRanks::Follower::Tell(const std::string& what) const {
  if (!failure.has_value()) return Cat(name, " ", what);
  return Cat(Message(*failure), ", and ", what);
}

Status LeadRanks::CheckHello(const FollowerHello& hello,
                             const std::string& name) const {
  if (!options_.build.empty() && hello.build != options_.build) {
    return FailedPrecondition("the build of ", name, " is ", hello.build,
                              ", that of the lead ", options_.build);
  }
  const int64_t begin = hello.first_rank;
  const int64_t end = begin + hello.num_ranks;
  if (begin < options_.own_ranks || end > options_.all_ranks) {
    return InvalidArgument("the stage has ranks 0 to ", options_.all_ranks - 1,
                           " and its lead ", RanksText(0, options_.own_ranks),
                           ", this follower has ",
                           RanksText(hello.first_rank, hello.num_ranks));
  }
  for (const auto& [first, held] : followers_) {
    if (first >= end || first + held.count <= begin) continue;
    if (first == begin && held.count == hello.num_ranks) {
      return Unavailable("another follower has ", held.name);
    }
    return InvalidArgument(held.name, ", which another follower has, overlap ",
                           name, " in part");
  }
  if (!digest_.empty() && hello.model_digest != digest_) {
    return OtherModel(name, hello.model_digest, digest_);
  }
  return OkStatus();
}

Status LeadRanks::OnHello(const v1::FollowerHello& proto,
                          const std::string& peer,
                          std::shared_ptr<FollowStream> stream) {
  Status status;
  std::string name = peer;
  auto hello = FromProto(proto);
  if (!hello.ok()) {
    status = hello.status();
  } else {
    name = NameOf(*hello, peer);
    MutexLock lock(mutex_);
    status = stopping_ ? ToldToEnd() : CheckHello(*hello, name);
    if (status.ok()) {
      Follower& follower = followers_[hello->first_rank];
      follower.stream = std::move(stream);
      follower.count = hello->num_ranks;
      follower.name = name;
      follower.digest = hello->model_digest;
    }
  }
  if (!status.ok()) {
    refusals_.Write(LogLevel::kWarning, "refused a follower, ", name, ": ",
                    Message(status));
    return status;
  }
  changed_.NotifyAll();
  visits_.Write(LogLevel::kInfo, name, " came, build ", hello->build);
  return OkStatus();
}

LeadRanks::Followers::iterator LeadRanks::Find(const FollowStream* stream) {
  return std::find_if(
      followers_.begin(), followers_.end(),
      [&](const auto& entry) { return entry.second.stream.get() == stream; });
}

void LeadRanks::OnEnd(const FollowStream* stream, const Status& status) {
  Outgoing outgoing;
  std::string went;
  {
    MutexLock lock(mutex_);
    const auto found = Find(stream);
    if (found == followers_.end()) return;
    const Follower& follower = found->second;
    if (follower.has_load) {
      lost_ = follower.Tell(Cat(
          follower.were(),
          "lost: ", status.ok() ? "they ended the stream" : Message(status)));
      outgoing.lost.push_back(lost_);
    } else {
      went = follower.Tell(
          Cat("went: ", status.ok() ? "the stream ended" : Message(status)));
    }
    followers_.erase(found);
  }
  changed_.NotifyAll();
  if (!went.empty()) visits_.Write(LogLevel::kInfo, went);
  Finish(outgoing);
}

Status LeadRanks::OnFrame(const FollowStream* stream,
                          const v1::FollowerFrame& frame) {
  std::string leaving;
  std::shared_ptr<FollowStream> gone;
  {
    MutexLock lock(mutex_);
    const auto found = Find(stream);
    if (found == followers_.end()) return OkStatus();  // not ours any more
    Follower& follower = found->second;
    switch (frame.kind_case()) {
      case v1::FollowerFrame::kFacts: {
        SLUICE_ASSIGN_OR_RETURN(RankFacts facts, FromProto(frame.facts()));
        if (!follower.has_load || frame.facts().load() != load_) break;
        if (follower.facts.size() == kMaxEarlyFacts) {
          return ResourceExhausted("facts come with ", follower.facts.size(),
                                   " unanswered, limit ", kMaxEarlyFacts);
        }
        follower.facts.push_back(std::move(facts));
        break;
      }
      case v1::FollowerFrame::kFailed: {
        const v1::RankFailure& failed = frame.failed();
        const Status why = wire::StatusFromProto(failed.status_code(),
                                                 failed.status_message());
        if (why.ok()) {
          return InvalidArgument("status_code of a failure must not be 0");
        }
        const bool now = follower.has_load && failed.load() == load_;
        if (!now && failed.load() != 0) break;  // of an earlier load
        follower.failure = FailedPrecondition(
            follower.name, " could not load: ", Message(why));
        visits_.Write(LogLevel::kWarning, Message(*follower.failure));
        break;
      }
      case v1::FollowerFrame::kLeaving:
        if (!follower.has_load) {
          gone = std::move(follower.stream);
          followers_.erase(found);
          break;
        }
        if (!follower.is_leaving && !stopping_) {
          leaving = follower.Tell(Cat(follower.were(), "told to end"));
        }
        follower.is_leaving = true;
        break;
      default:
        return InvalidArgument("a frame of Follow has no known kind");
    }
  }
  changed_.NotifyAll();
  if (gone != nullptr) gone->End(OkStatus());
  if (!leaving.empty() && options_.on_leaving != nullptr) {
    options_.on_leaving(leaving);
  }
  return OkStatus();
}

// Loads ----------------------------------------------------------------------

std::string LeadRanks::Missing() const {
  RankList missing;
  int32_t next = options_.own_ranks;
  for (const auto& [first, follower] : followers_) {
    missing.Add(next, first);
    next = first + follower.count;
  }
  missing.Add(next, options_.all_ranks);
  return missing.Wait("");
}

std::string LeadRanks::Silent() const {
  RankList silent;
  for (const auto& [first, follower] : followers_) {
    if (!follower.has_load || !follower.facts.empty()) continue;
    silent.Add(first, first + follower.count);
  }
  return silent.Wait(" to load");
}

std::vector<LeadRanks::Follower> LeadRanks::TakeOthers(
    const std::string& digest) {
  std::vector<Follower> others;
  for (auto at = followers_.begin(); at != followers_.end();) {
    const bool differs = at->second.digest != digest;
    if (differs) others.push_back(std::move(at->second));
    at = differs ? followers_.erase(at) : std::next(at);
  }
  return others;
}

Status LeadRanks::WhyNotToWait() {
  if (loads_stopped_) return ToldToEnd();
  for (auto& [first, follower] : followers_) {
    if (!follower.failure.has_value()) continue;
    if (has_load_) return *follower.failure;
    return *std::exchange(follower.failure, std::nullopt);
  }
  if (has_load_ && !lost_.empty()) return Unavailable(lost_);
  return OkStatus();
}

Status LeadRanks::AwaitAll() {
  const bool has_load = has_load_;
  Status status;
  std::string told;
  while (true) {
    if (status.ok()) status = WhyNotToWait();
    const std::string text = !status.ok() ? ""
                             : has_load   ? Silent()
                                          : Missing();
    if (text != told) {
      told = text;
      if (options_.on_waiting == nullptr) continue;
      mutex_.Unlock();
      options_.on_waiting(text);
      mutex_.Lock();
      continue;
    }
    if (text.empty()) return status;
    changed_.Wait(mutex_);
  }
}

StatusOr<std::string> LeadRanks::Connect(const RankOrder& order,
                                         std::string own) {
  std::vector<Follower> others;
  {
    MutexLock lock(mutex_);
    SLUICE_CHECK(!has_load_);  // Drop comes first
    digest_ = order.model_digest;
    others = TakeOthers(digest_);
  }
  for (const Follower& other : others) {
    const Status why = OtherModel(other.name, other.digest, order.model_digest);
    refusals_.Write(LogLevel::kWarning, Message(why));
    other.stream->End(why);
  }
  Outgoing outgoing;
  {
    MutexLock lock(mutex_);
    SLUICE_RETURN_IF_ERROR(AwaitAll());
    v1::LeadFrame frame;
    *frame.mutable_order() = ToProto(SentOrder{order, own, ++load_});
    has_load_ = true;
    lost_.clear();
    for (auto& [first, follower] : followers_) follower.has_load = true;
    outgoing = QueueForAll(FrameOf(frame));
  }
  Finish(outgoing);
  // A follower that cannot connect is known before the lead's devices wait.
  if (const auto ready = Agree(ReadyFacts()); !ready.ok()) {
    Drop();
    return ready.status();
  }
  return own;
}

StatusOr<RankFacts> LeadRanks::Combine(RankFacts all) {
  Status status;
  const std::string numerics = all.numerics;
  for (auto& [first, follower] : followers_) {
    if (!follower.has_load) continue;
    const RankFacts facts = std::move(follower.facts.front());
    follower.facts.pop_front();
    if (status.ok() && facts.numerics != numerics) {
      status = FailedPrecondition(
          "numerics of ", follower.name, " are ", facts.numerics, ", those of ",
          RanksText(0, options_.own_ranks), " ", numerics);
    }
    all.max_context = std::min(all.max_context, facts.max_context);
    all.kv_blocks = std::min(all.kv_blocks, facts.kv_blocks);
    all.state_blocks = std::min(all.state_blocks, facts.state_blocks);
    all.weights_bytes += facts.weights_bytes;
    all.kv_bytes += facts.kv_bytes;
  }
  if (!status.ok()) return status;
  return all;
}

StatusOr<RankFacts> LeadRanks::Agree(const RankFacts& own) {
  Outgoing outgoing;
  RankFacts all;
  {
    MutexLock lock(mutex_);
    SLUICE_CHECK(has_load_);
    SLUICE_RETURN_IF_ERROR(AwaitAll());
    SLUICE_ASSIGN_OR_RETURN(all, Combine(own));
    v1::LeadFrame frame;
    *frame.mutable_facts() = ToProto(all, load_);
    outgoing = QueueForAll(FrameOf(frame));
  }
  Finish(outgoing);
  return all;
}

// Steps ----------------------------------------------------------------------

LeadRanks::Outgoing LeadRanks::QueueForAll(const grpc::ByteBuffer& frame) {
  Outgoing outgoing;
  for (auto at = followers_.begin(); at != followers_.end();) {
    const Follower& follower = at->second;
    if (!follower.has_load) {
      ++at;
      continue;
    }
    if (follower.stream->Enqueue(frame)) {
      outgoing.pumped.push_back(follower.stream);
      ++at;
      continue;
    }
    // Its queue also takes no more once the connection has broken.
    lost_ =
        follower.Tell(Cat(follower.were(), "lost: the connection broke, or ",
                          kMaxQueuedFrames, " messages wait for them"));
    outgoing.lost.push_back(lost_);
    outgoing.full.push_back(follower.stream);
    at = followers_.erase(at);
  }
  return outgoing;
}

void LeadRanks::Finish(const Outgoing& outgoing) {
  for (const auto& stream : outgoing.pumped) stream->Pump();
  for (const auto& stream : outgoing.full) {
    stream->Abort(ResourceExhausted("more than ", kMaxQueuedFrames,
                                    " messages wait for this follower"));
  }
  for (const std::string& why : outgoing.lost) options_.on_lost(why);
}

void LeadRanks::Begin(const StepInputs& step, const HiddenStates& hidden) {
  const grpc::ByteBuffer frame = StepFrame(step, hidden);
  Outgoing outgoing;
  {
    MutexLock lock(mutex_);
    SLUICE_CHECK(has_load_);
    outgoing = QueueForAll(frame);
  }
  Finish(outgoing);
}

void LeadRanks::Drop() {
  v1::LeadFrame frame;
  frame.mutable_drop();
  Outgoing outgoing;
  std::vector<std::shared_ptr<FollowStream>> leaving;
  {
    MutexLock lock(mutex_);
    if (!has_load_) return;
    has_load_ = false;
    outgoing = QueueForAll(FrameOf(frame));
    for (auto at = followers_.begin(); at != followers_.end();) {
      Follower& follower = at->second;
      follower.has_load = false;
      follower.facts.clear();
      follower.failure.reset();
      if (follower.is_leaving) leaving.push_back(follower.stream);
      at = follower.is_leaving ? followers_.erase(at) : std::next(at);
    }
  }
  Finish(outgoing);
  for (const auto& stream : leaving) stream->End(OkStatus());
}

void LeadRanks::GiveUp(const Status& why) { Drop(); }

void LeadRanks::StopLoads() {
  {
    MutexLock lock(mutex_);
    loads_stopped_ = true;
  }
  changed_.NotifyAll();
}

void LeadRanks::Stop() {
  Followers ended;
  {
    MutexLock lock(mutex_);
    loads_stopped_ = stopping_ = true;
    ended = std::exchange(followers_, {});
  }
  changed_.NotifyAll();
  for (const auto& [first, follower] : ended) {
    follower.stream->End(OkStatus());
  }
}

}  // namespace sluice
