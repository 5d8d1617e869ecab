#ifndef SLUICE_TESTS_SIMULATION_ROGUE_H_
#define SLUICE_TESTS_SIMULATION_ROGUE_H_

#include <string>

#include "tests/simulation/world.h"

namespace sluice::simulation {

// A peer that speaks the protocol and is nobody's gateway: takes hold of the
// stage at `address` if it is free, some times in a row, raises its term as far
// as the stage lets it, and leaves. In a fibre of the peer's process.
void TakeHoldAndLeave(const std::string& address, Random& random);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_ROGUE_H_
