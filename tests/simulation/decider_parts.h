#ifndef SLUICE_TESTS_SIMULATION_DECIDER_PARTS_H_
#define SLUICE_TESTS_SIMULATION_DECIDER_PARTS_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/core/epochs.h"
#include "common/pipeline/gateway/cluster_decider.h"
#include "common/pipeline/stage/stage_terms.h"
#include "tests/simulation/decider_laws.h"

// What a history of deciders is made of.
namespace sluice::simulation {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, limit).
  size_t Below(size_t limit) { return static_cast<size_t>(Next() % limit); }
  bool OneIn(size_t count) { return Below(count) == 0; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(values.size())];
  }
  Duration Between(Duration least, Duration most) {
    const auto width = static_cast<size_t>((most - least).count()) + 1;
    return least + Duration(static_cast<int64_t>(Below(width)));
  }

 private:
  uint64_t state_;
};

enum class What {
  kTick,
  kRaise,
  // To a stage.
  kHello,
  kBeat,
  kLoad,
  kAssign,
  kDrain,
  kClose,
  kLoaded,  // its layers
  kBack,    // its process
  // To a gateway.
  kWelcome,
  kEcho,
  kAssigned,
  kRefusal,  // an end with a reason
  kBroken,   // an end without one
  kNobody,   // an end: connection refused
  kDraining,
  kDrained,
  kFailure,
  kPlansOpen,
  kPlansEnd,
  kStop,   // its process, once the stages have drained
  kStart,  // its process, again
  // To the world.
  kFault,
  kHeal,  // a way
  kCalm,
};

enum class Reason { kHeld, kLoading, kLoadFailed, kTerms };

struct Event {
  TimePoint at{};
  uint64_t order = 0;
  What what = What::kTick;
  size_t gateway = 0;
  size_t run = 0;  // of the gateway, or of the stage for its own events
  size_t stage = 0;
  uint64_t link = 0;
  Epoch epoch;  // also the term of a hello
  Epoch keep;
  StagePlace place;
  bool flag = false;  // ok, kept
  Reason reason = Reason::kHeld;
  size_t number = 0;  // a place, a side, a way
  bool operator<(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

// A stage's process, as StageSession keeps to the protocol.
struct Stage {
  StageFacts facts;  // but for the term
  bool is_there = true;
  bool loses_power = false;  // answers nothing while it is away
  size_t run = 1;
  TimePoint frozen{};  // until then
  // The terms since `base`, which the stage reached long ago.
  uint64_t base = 0;
  StageTerms terms;
  std::map<uint64_t, size_t> owners;  // who assigned in a term
  std::optional<size_t> holder;       // a run of a gateway
  size_t gateway = 0;
  uint64_t link = 0;
  bool has_stream = false, is_awaited = false;
  TimePoint heard{};
  bool is_loading = false, has_failed = false, is_leaving = false;
  Epoch epoch, kv_epoch;

  Epoch highest() const {
    return {base + terms.highest().term(), terms.highest().count()};
  }
  bool has_term() const { return highest().term() < kMaxTerm; }
  uint64_t Since(uint64_t term) const {
    return std::min(term, kMaxTerm) - std::min(term, base);
  }
  bool Accepts(Epoch next, TimePoint now) const {
    return next.term() >= base &&
           terms.CheckEpoch({Since(next.term()), next.count()}, now).ok();
  }
  void ForgetTerms() {
    base = 0;
    terms = StageTerms();
    owners.clear();
  }
};

struct Gateway {
  size_t run = 0;
  TimePoint frozen{};
  TimePoint passed{};
  bool is_draining = false;
  std::optional<TimePoint> raise_at;
  std::unique_ptr<ClusterDecider> decider;  // null: it is not there
  std::unique_ptr<DeciderLaws> laws;
  PeerLead peers = PeerLead::kNone;
  Epoch open;  // whose plans pass, or are about to
  std::vector<size_t> holders;
  TimePoint down_since{};
  std::vector<LifeKind> kinds;  // of the processes, at the latest look
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_DECIDER_PARTS_H_
