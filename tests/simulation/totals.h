#ifndef SLUICE_TESTS_SIMULATION_TOTALS_H_
#define SLUICE_TESTS_SIMULATION_TOTALS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace sluice::simulation {

enum class Fault {
  kCrash,      // a stage's process ends; its peers are told
  kPowerLoss,  // with its machine: they are not
  kStop,       // a stage's process stands still, and goes on in its old state
  kLeave,      // a stage's process is told to end
  kBreak,      // connections break, each end for itself
  kPartition,  // two hosts do not reach each other
  kOneWay,     // one does not reach the other
  kSlow,       // all that a process does takes far longer
  kJump,       // a process' clock jumps ahead
  kFlaky,      // connections of two hosts break time and again
  kGatewayStop,
  kGatewayCrash,
  kGatewayLeave,
};
inline constexpr int kNumFaults = 13;
const char* ToString(Fault fault);

// What happened in one run, or in several.
struct Totals {
  uint64_t seeds = 0;
  double seconds = 0;  // virtual ones
  double to_ends = 0;  // from the last fault until all clients had their end
  uint64_t moves = 0;  // of fibres, and events
  uint64_t steps = 0;
  uint64_t ahead = 0;   // steps that a stage of several began early
  uint64_t tokens = 0;  // told to clients
  uint64_t clients = 0;
  uint64_t refused = 0;  // requests
  uint64_t cancelled = 0;
  uint64_t left = 0;  // clients whose gateway was gone
  uint64_t recoveries = 0;
  uint64_t replayed = 0;  // tokens
  uint64_t kept = 0;      // of them, on some stages
  uint64_t stale = 0;     // results of an older epoch
  uint64_t suspensions = 0;
  uint64_t takeovers = 0;
  uint64_t shrinks = 0;
  uint64_t growths = 0;
  uint64_t rogues = 0;
  std::array<uint64_t, kNumFaults> faults{};
  std::map<std::string, uint64_t> excuses;  // errors that the rules allow
  void Add(const Totals& other);
  std::string Text() const;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_TOTALS_H_
