#ifndef SLUICE_TESTS_SIMULATION_WORLD_H_
#define SLUICE_TESTS_SIMULATION_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "tests/simulation/fibre.h"

namespace sluice::simulation {

// The seed's choices.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // In [0, n).
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(n));
  }
  bool Chance(int in_thousand) { return Below(1000) < in_thousand; }
  Duration Up(Duration most) { return Duration(Below(most.count() + 1)); }

 private:
  uint64_t state_;
};

// One process: a clock of its own, and fibres that can be stopped. The world
// owns it and keeps it beyond its end.
class Process {
 public:
  Process(std::string name, int host, Duration clock)
      : name_(std::move(name)), host_(host), clock_(clock) {}

  const std::string& name() const { return name_; }
  int host() const { return host_; }

  // Dead: cut off from all others. Its fibres still run, so that its parts end
  // in order, which no other process notices.
  bool dead() const { return dead_; }
  void Die() {
    dead_ = true;
    Resume();
  }

  // Stopped: no fibre runs, no message is taken; the clock goes on.
  bool stopped() const { return stopped_; }
  void Stop() { stopped_ = !dead_; }
  void Resume();
  // Calls `work` now, or when the process goes on.
  void WhenRunning(std::function<void()> work);

  // The clock jumps ahead.
  void Jump(Duration ahead);
  // Delays and steps take this many times as long.
  int slowness = 1;
  // Locks after which another fibre runs first, of a thousand.
  int yields = 0;
  int calls = 0;  // ends of calls that are not done

 private:
  friend class World;
  const std::string name_;
  const int host_;
  Duration clock_;  // ahead of the world's
  bool dead_ = false;
  bool stopped_ = false;
  std::vector<Fibre*> parked_;  // ready, but for the stop
  std::deque<std::function<void()>> held_;
};

// Time, fibres and events of one run, in the thread that makes it. At each
// point the seed chooses which of the fibres that can run does; time passes
// when none can.
class World {
 public:
  explicit World(uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  static World& Get();

  Duration now() const { return now_; }
  Random& random() { return random_; }
  // Of all that happened so far, in order.
  uint64_t digest() const { return digest_; }
  void Note(uint64_t what);

  Process* AddProcess(std::string name, int host, Duration clock);
  void Spawn(Process* process, std::function<void()> body);
  void After(Duration delay, std::function<void()> event);
  // The fibre that calls sleeps.
  void Sleep(Duration time);
  // Sleeps until `condition`, which is looked at every `pause`; false: it did
  // not hold within `limit`.
  bool Await(const std::function<bool()>& condition, Duration limit,
             Duration pause = std::chrono::milliseconds(20));

  // Steps that one of several stages began before the step before was done.
  uint64_t steps_ahead = 0;

  // Gets every line that a process logs.
  std::function<void(std::string_view)> on_log;

  // Runs until `done`, or the first failure.
  void Run(const std::function<bool()>& done);
  // The run is wrong. The first reason counts.
  void Fail(std::string why);
  const std::string& failure() const { return failure_; }
  uint64_t moves() const { return moves_; }
  int fibres() const { return num_fibres_; }  // that have not ended

  // Of the fibre that runs; null: none does.
  Process* process() const;
  TimePoint Now() const;

 private:
  friend class WaitList;
  friend class Process;
  friend void MayYield();
  friend struct Joint;
  friend std::shared_ptr<Joint> SpawnHere(std::string, std::function<void()>);
  struct Event {
    Duration at;
    uint64_t number;
    std::function<void()> run;
  };

  Fibre* Make(Process* process, std::function<void()> body);
  void MakeReady(Fibre* fibre);
  void Resume(Fibre* fibre);
  void Suspend();  // the fibre that runs
  void WakeAt(Fibre* fibre, uint64_t wait);
  bool RunFibre();
  bool RunEvent();

  Random random_;
  Duration now_{};
  uint64_t digest_ = 0;
  uint64_t moves_ = 0;
  uint64_t numbers_ = 0;
  std::string failure_;
  std::vector<Event> events_;  // a heap
  std::vector<Fibre*> ready_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Fibre*> idle_;
  std::vector<std::unique_ptr<Process>> processes_;
  int num_fibres_ = 0;
  Fibre* current_ = nullptr;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_WORLD_H_
