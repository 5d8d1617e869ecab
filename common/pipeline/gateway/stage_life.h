#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_LIFE_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_LIFE_H_

#include <cstddef>
#include <variant>

#include "common/base/clock.h"
#include "common/pipeline/gateway/pipeline_status.h"

namespace sluice {

// Why a stage's process does not welcome the gateway, as of the latest try.
enum class Absence {
  kNotReached,  // never welcomed the gateway, or was let go for another one
  kNotStarted,  // never welcomed the gateway, and refuses connections
  kBroken,      // its stream broke; the process may still be there
  kGone,        // refuses connections
  kGivenUp,     // the gateway does not want it for a while
  kLoading,     // reads its layers
  kHeld,        // another gateway has it
  kRefusing,    // refuses the gateway
  kReleased,    // was told to end, and the gateway has let it go
};

// One process as a gateway sees it. The names of the states are those of
// LifeKind.
struct AwayStage {  // no Control stream
  Absence why = Absence::kNotReached;
};
struct TryingStage {                   // a hello is under way
  Absence why = Absence::kNotReached;  // as before the hello
};
struct ThereStage {};      // has sent Welcome
struct AskedStage {};      // and was asked to load layers
struct DrainedStage {      // and has finished its steps, as it was asked
  bool load_sent = false;  // as AskedStage
};
struct LeavingStage {  // was told to end
  TimePoint by{};      // at the latest
};
struct PartingStage {  // was told to end, and has finished its steps
  TimePoint by{};
};
using StageLife = std::variant<AwayStage, TryingStage, ThereStage, AskedStage,
                               DrainedStage, LeavingStage, PartingStage>;

// The alternatives of StageLife, in their order.
enum class LifeKind {
  kAway,
  kTrying,
  kThere,
  kAsked,
  kDrained,
  kLeaving,
  kParting,
};

// What befalls a process, or the gateway does to it.
enum class LifeEvent {
  // The gateway opens Control. A process that is there is raised by it, unless
  // it was told to end; a gateway that drains raises no process.
  kHello,
  kWelcome,    // message
  kAskToLoad,  // the gateway sends the layers
  kAskAgain,   // the gateway may ask once more
  kDrained,    // message
  kDraining,   // message
  kEnd,        // the stream ends, by either side
};

struct LifeRow {
  LifeKind from;
  LifeEvent event;
  LifeKind to;
};

// Every transition. An event without a row is ignored: a message may come
// twice, or from a stage that follows no protocol. The facts of a second
// Welcome alone are taken.
inline constexpr LifeRow kLifeRows[] = {
    {LifeKind::kAway, LifeEvent::kHello, LifeKind::kTrying},
    {LifeKind::kTrying, LifeEvent::kWelcome, LifeKind::kThere},
    {LifeKind::kTrying, LifeEvent::kEnd, LifeKind::kAway},

    {LifeKind::kThere, LifeEvent::kHello, LifeKind::kTrying},
    {LifeKind::kThere, LifeEvent::kAskToLoad, LifeKind::kAsked},
    {LifeKind::kThere, LifeEvent::kDrained, LifeKind::kDrained},
    {LifeKind::kThere, LifeEvent::kDraining, LifeKind::kLeaving},
    {LifeKind::kThere, LifeEvent::kEnd, LifeKind::kAway},

    {LifeKind::kAsked, LifeEvent::kHello, LifeKind::kTrying},
    {LifeKind::kAsked, LifeEvent::kAskAgain, LifeKind::kThere},
    {LifeKind::kAsked, LifeEvent::kDrained, LifeKind::kDrained},
    {LifeKind::kAsked, LifeEvent::kDraining, LifeKind::kLeaving},
    {LifeKind::kAsked, LifeEvent::kEnd, LifeKind::kAway},

    {LifeKind::kDrained, LifeEvent::kDraining, LifeKind::kParting},
    {LifeKind::kDrained, LifeEvent::kEnd, LifeKind::kAway},

    // Draining again: another limit.
    {LifeKind::kLeaving, LifeEvent::kDrained, LifeKind::kParting},
    {LifeKind::kLeaving, LifeEvent::kDraining, LifeKind::kLeaving},
    {LifeKind::kLeaving, LifeEvent::kEnd, LifeKind::kAway},

    {LifeKind::kParting, LifeEvent::kDraining, LifeKind::kParting},
    {LifeKind::kParting, LifeEvent::kEnd, LifeKind::kAway},
};

inline LifeKind KindOf(const StageLife& life) {
  return static_cast<LifeKind>(life.index());
}

// Why the process is absent; nothing: it has sent Welcome.
inline const Absence* AbsenceOf(const StageLife& life) {
  if (const auto* away = std::get_if<AwayStage>(&life)) return &away->why;
  const auto* trying = std::get_if<TryingStage>(&life);
  return trying == nullptr ? nullptr : &trying->why;
}

// Until when a process that was told to end takes steps; null: it was not told.
inline const TimePoint* LeavesBy(const StageLife& life) {
  if (const auto* leaving = std::get_if<LeavingStage>(&life)) {
    return &leaving->by;
  }
  const auto* parting = std::get_if<PartingStage>(&life);
  return parting == nullptr ? nullptr : &parting->by;
}

// Whether the process was asked to load layers, and may still refuse.
inline bool LoadSent(const StageLife& life) {
  const auto* drained = std::get_if<DrainedStage>(&life);
  return KindOf(life) == LifeKind::kAsked ||
         (drained != nullptr && drained->load_sent);
}

// The data of an event: of kEnd, and of kDraining.
struct LifeData {
  Absence why = Absence::kBroken;
  TimePoint by{};
};

// Moves `life` as kLifeRows says. Returns false, and changes nothing, without a
// row.
inline bool Apply(StageLife& life, LifeEvent event, const LifeData& data = {}) {
  for (const LifeRow& row : kLifeRows) {
    if (row.from != KindOf(life) || row.event != event) continue;
    switch (row.to) {
      case LifeKind::kAway:
        life = AwayStage{data.why};
        return true;
      case LifeKind::kTrying: {
        // A stream that the gateway itself replaces is as one that broke.
        const Absence* const why = AbsenceOf(life);
        life = TryingStage{why == nullptr ? Absence::kBroken : *why};
        return true;
      }
      case LifeKind::kThere:
        life = ThereStage();
        return true;
      case LifeKind::kAsked:
        life = AskedStage();
        return true;
      case LifeKind::kDrained:
        life = DrainedStage{.load_sent = KindOf(life) == LifeKind::kAsked};
        return true;
      case LifeKind::kLeaving:
        life = LeavingStage{data.by};
        return true;
      case LifeKind::kParting: {
        const TimePoint* const by = LeavesBy(life);
        life = PartingStage{event == LifeEvent::kDrained ? *by : data.by};
        return true;
      }
    }
  }
  return false;
}

// What people see of an absent process.
inline StageState ShownAs(Absence absence) {
  switch (absence) {
    case Absence::kNotReached:
    case Absence::kNotStarted:
      return StageState::kConnecting;
    case Absence::kLoading:
      return StageState::kLoading;
    case Absence::kHeld:
    case Absence::kRefusing:
      return StageState::kRefused;
    case Absence::kReleased:
      return StageState::kDraining;
    case Absence::kBroken:
    case Absence::kGone:
    case Absence::kGivenUp:
      break;
  }
  return StageState::kLost;
}

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_LIFE_H_
