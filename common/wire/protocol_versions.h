#ifndef SLUICE_COMMON_WIRE_PROTOCOL_VERSIONS_H_
#define SLUICE_COMMON_WIRE_PROTOCOL_VERSIONS_H_

#include <cstdint>

// The versions of the protocols between processes. Both ends need equal ones: a
// version rises when older peers would misread a message.
namespace sluice::wire {

// Of gateways and stages: Hello, Welcome and StepsHello.
inline constexpr uint32_t kProtocolVersion = 15;

// Of stages and hosts of experts: ExpertHello and ExpertWelcome.
inline constexpr uint32_t kExpertProtocolVersion = 3;

// Of the processes with one stage's ranks: FollowerHello.
inline constexpr uint32_t kRanksProtocolVersion = 3;

}  // namespace sluice::wire

#endif  // SLUICE_COMMON_WIRE_PROTOCOL_VERSIONS_H_
