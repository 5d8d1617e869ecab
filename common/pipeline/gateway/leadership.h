#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_LEADERSHIP_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_LEADERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/base/clock.h"
#include "common/core/gateway_role.h"

namespace sluice {

// What a gateway sees of its stages and of the other gateways at `now`.
struct LeadershipSigns {
  TimePoint now{};
  bool up = false;  // a pipeline of this gateway
  Duration down{};  // the time without one
  // The first place whose stage another gateway holds; nothing: none.
  std::optional<size_t> held = std::nullopt;
  bool all_held = false;  // another gateway holds every place's stage
  PeerLead peer = PeerLead::kNone;
};

// A gateway's role. The stages decide on it: each is one gateway's at a time.
// What the other gateways say keeps a standby from the stages of a leader whose
// pipeline recovers, and ends the lead of one that is cut off from its stages.
// A value, one thread.
class Leadership {
 public:
  // `lease`: PipelineOptions'; zero: there is no other gateway.
  explicit Leadership(Duration lease) : lease_(lease) {}

  // Takes in the signs. Returns whether this gateway led until now and another
  // one does from here on.
  bool Update(const LeadershipSigns& signs) {
    if (!signs.held.has_value()) {
      held_since_.reset();
    } else if (!held_since_.has_value()) {
      held_since_ = signs.now;
    }
    signs_ = signs;
    const GatewayRole before = role_;
    role_ = Next();
    const bool changed = role_ != before;
    if (changed && role_ == GatewayRole::kLeader) ++takeovers_;
    return changed && before == GatewayRole::kLeader;
  }

  GatewayRole role() const { return role_; }
  // Times that this gateway began to lead.
  uint64_t takeovers() const { return takeovers_; }

  // Whether this gateway may take the stage of place `index`, or keep it; the
  // spares are behind all places.
  bool MayHold(size_t index) const {
    if (lease_ > Duration::zero()) {
      if (role_ == GatewayRole::kLeader) return true;
      if (signs_.peer != PeerLead::kNone) return false;
    }
    if (!held_since_.has_value() || index == *signs_.held) return true;
    // Two gateways that each hold a stage of the other would wait for ever. So
    // one keeps no stage behind one that another holds; and those before it
    // only until the other has had the time to follow the same rule.
    if (index > *signs_.held) return false;
    return lease_ == Duration::zero() || signs_.now - *held_since_ < lease_ / 2;
  }

  // Whether a stage is taken only when those before it have answered: of
  // gateways that start at once, the one with the first stage has all.
  bool takes_in_order() const {
    return lease_ > Duration::zero() && role_ != GatewayRole::kLeader;
  }

 private:
  GatewayRole Next() const {
    if (signs_.up) return GatewayRole::kLeader;
    if (role_ == GatewayRole::kLeader && lease_ > Duration::zero()) {
      return IsSuperseded() ? GatewayRole::kStandby : role_;
    }
    const bool peer_leads =
        lease_ > Duration::zero() &&
        (signs_.peer == PeerLead::kUp || signs_.peer == PeerLead::kRecovering);
    if (signs_.held.has_value() || peer_leads) return GatewayRole::kStandby;
    return role_ == GatewayRole::kStandby ? GatewayRole::kCandidate : role_;
  }
  // A stage that has just come back may be another's for a moment, which lets
  // go of it when it finds that this gateway has the others.
  bool IsSuperseded() const {
    return signs_.all_held ||
           (signs_.peer == PeerLead::kUp && signs_.down >= lease_) ||
           (held_since_.has_value() && signs_.now - *held_since_ >= 2 * lease_);
  }

  const Duration lease_;
  LeadershipSigns signs_;
  std::optional<TimePoint> held_since_;
  GatewayRole role_ = GatewayRole::kCandidate;
  uint64_t takeovers_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_LEADERSHIP_H_
