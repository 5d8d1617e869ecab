#ifndef SLUICE_TESTS_SIMULATION_FIBRE_H_
#define SLUICE_TESTS_SIMULATION_FIBRE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// What the substituted headers of common/base and common/concurrency need of
// the world's fibres.
namespace sluice::simulation {

struct Fibre;

// Fibres that wait to be woken, in the order in which they came.
class WaitList {
 public:
  WaitList() = default;
  ~WaitList();
  WaitList(const WaitList&) = delete;
  WaitList& operator=(const WaitList&) = delete;

  void Wait();
  // False: the process' clock reached `deadline` first.
  bool WaitUntil(std::chrono::steady_clock::time_point deadline);
  void WakeOne();
  void WakeAll();

 private:
  friend class World;
  std::vector<Fibre*> fibres_;
};

// By the seed's choice another fibre runs, and time may pass, before this
// returns. Does nothing outside of a fibre.
void MayYield();

// A thread's end, which others wait for.
struct Joint {
  bool done = false;
  uint64_t fibre = 0;
  WaitList waiting;
  bool IsCurrent() const;
};

// Starts a fibre of the process whose fibre runs.
std::shared_ptr<Joint> SpawnHere(std::string name, std::function<void()> body);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_FIBRE_H_
