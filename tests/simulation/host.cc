// What the product asks of the system, as the simulation has it: its log, its
// random bytes, its threads' slices and its version.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/base/random_bytes.h"
#include "common/concurrency/short_slices.h"
#include "tests/simulation/world.h"

namespace sluice {
namespace {

// SLUICE_SIMULATION_LOG=1: every line goes to stderr, with the world's time.
bool WritesLog() {
  static const bool writes = std::getenv("SLUICE_SIMULATION_LOG") != nullptr;
  return writes;
}

}  // namespace

// What a process calls an error is one in any run.
void Log(LogLevel level, std::string_view message) {
  simulation::World& world = simulation::World::Get();
  if (WritesLog() || level == LogLevel::kError) {
    const simulation::Process* const process = world.process();
    std::fprintf(stderr, "%10.4f %s: %.*s\n", Seconds(world.now()),
                 process == nullptr ? "-" : process->name().c_str(),
                 static_cast<int>(message.size()), message.data());
  }
  if (level == LogLevel::kError) world.Fail(std::string(message));
  if (world.on_log) world.on_log(message);
}
// Whether lines are written changes nothing of a run.
bool IsLogged(LogLevel) { return true; }
bool FlushLog(Duration) { return true; }

std::string_view BuildVersion() { return "simulated"; }

void FillRandom(std::span<uint8_t> out) {
  for (uint8_t& byte : out) {
    byte = static_cast<uint8_t>(simulation::World::Get().random().Next());
  }
}
uint64_t RandomBits() { return simulation::World::Get().random().Next(); }
std::string RandomBytes(size_t bytes) {
  std::string out(bytes, '\0');
  FillRandom({reinterpret_cast<uint8_t*>(out.data()), out.size()});
  return out;
}
std::string RandomHex(size_t digits) {
  std::string out(digits, '0');
  for (char& digit : out) digit = "0123456789abcdef"[RandomBits() & 15];
  return out;
}
bool EqualSecrets(std::string_view a, std::string_view b) { return a == b; }

void AskForShortSlices() {}

}  // namespace sluice
