#ifndef SLUICE_COMMON_CORE_GATEWAY_ROLE_H_
#define SLUICE_COMMON_CORE_GATEWAY_ROLE_H_

#include <cstddef>

namespace sluice {

// What a gateway is to the stages. Where it is alone it leads, or is about to.
enum class GatewayRole {
  kCandidate,  // no other gateway holds them, and they are not its own yet
  kLeader,     // they are its own, also while a pipeline recovers
  kStandby,    // another gateway holds them
};

// What the other gateways of the same stages say.
enum class PeerLead {
  kNone,        // none of those that answer leads, or may keep its stages
  kUnknown,     // they have not been asked yet
  kRecovering,  // one leads, and its pipeline is soon up again
  kUp,          // one leads, and its pipeline is up
};

// Returns "candidate", "leader" or "standby".
inline const char* ToString(GatewayRole role) {
  constexpr const char* kNames[] = {"candidate", "leader", "standby"};
  return kNames[static_cast<size_t>(role)];
}

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_GATEWAY_ROLE_H_
