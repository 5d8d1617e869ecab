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
// using the CPU. A worker that gets no CPU holds up the one task that it is in:
// the others take the rest. Every member computes denormals. The destructor,
// called while no Run is in progress, joins the workers.
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

  // Member m's share is tasks [n * m / T, n * (m + 1) / T). A member takes its
  // own share first, in rising order, then what is left of the others'.
  void Run(Task task, void* argument, int num_tasks) override;

 private:
  // The tasks of a member's share that are not taken yet: the job's number in
  // the upper half, the number of tasks in the lower.
  struct alignas(64) Share {
    std::atomic<uint64_t> left = 0;
  };

  void Work(int member);
  // Takes tasks of job `generation` for as long as there are any; returns how
  // many this member ran.
  uint32_t RunTasks(uint32_t generation, int member);
  void Pin(int member) const;

  const ThreadTeamOptions options_;
  bool caller_pinned_ = false;

  // The present job: the caller writes it before generation_ rises. A worker
  // that comes late may read those of the next job; then it takes no task,
  // since the shares of its own job are empty and those of the next have
  // another number.
  std::atomic<Task> task_ = nullptr;
  std::atomic<void*> argument_ = nullptr;
  std::atomic<int> num_tasks_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<Share> shares_;  // of each member

  // On separate cache lines: workers spin on the first, the caller on the
  // second.
  alignas(64) std::atomic<uint32_t> generation_ = 0;
  std::atomic<uint32_t> sleeping_workers_ = 0;
  alignas(64) std::atomic<uint32_t> unfinished_ = 0;  // tasks of the job
  std::atomic<uint32_t> caller_sleeps_ = 0;

  std::vector<std::thread> workers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_THREAD_TEAM_H_
