#ifndef SLUICE_COMMON_CONCURRENCY_THREAD_TEAM_H_
#define SLUICE_COMMON_CONCURRENCY_THREAD_TEAM_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "kernels/context.h"

namespace sluice {

struct ThreadTeamOptions {
  int num_threads = 1;  // the caller of Run is one of them
  // Member i runs on CPU cpus[i % cpus.size()] alone; empty: on any CPU. The
  // caller is member 0, and its first Run or AdoptCaller pins it.
  std::vector<int> cpus;
  std::string name = "team";  // workers are called name-1, name-2 and so on
};

// A fork-join team for the kernels. One thread at a time may call Run, always
// the same one if CPUs are given. Workers spin for some tens of microseconds
// after a task, since the next one usually follows at once, then sleep without
// using the CPU. Every member computes denormals. The destructor, called while
// no Run is in progress, joins the workers.
class ThreadTeam final : public kernels::Executor {
 public:
  explicit ThreadTeam(ThreadTeamOptions options);
  ~ThreadTeam() override;
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const override { return options_.num_threads; }
  // Calls of Run in which the members met; the count wraps. For Run's thread.
  uint32_t joins() const { return generation_.load(std::memory_order_relaxed); }

  // Makes the calling thread member 0: its CPU, its floating-point state. Run
  // does so too, but only for work that is spread.
  void AdoptCaller();

  // Member m runs tasks [n * m / T, n * (m + 1) / T), in rising order.
  void Run(Task task, void* argument, int num_tasks) override;

 private:
  void Work(int member);
  void RunShare(int member) const;
  void Pin(int member) const;

  const ThreadTeamOptions options_;
  bool caller_pinned_ = false;

  // The present job: the caller writes it before generation_ rises, and workers
  // read it after they have seen that.
  Task task_ = nullptr;
  void* argument_ = nullptr;
  int num_tasks_ = 0;
  bool stop_ = false;

  // On separate cache lines: workers spin on the first, the caller on the
  // second.
  alignas(64) std::atomic<uint32_t> generation_ = 0;
  std::atomic<uint32_t> sleeping_workers_ = 0;
  alignas(64) std::atomic<uint32_t> unfinished_ = 0;
  std::atomic<uint32_t> caller_sleeps_ = 0;

  std::vector<std::thread> workers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_THREAD_TEAM_H_
