#include "common/concurrency/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/concurrency/await_change.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {
namespace {

// Computes denormals: results must not depend on this thread's control
// register, which other libraries may have set.
void ComputeDenormals() {
#if defined(__x86_64__)
  constexpr unsigned kFlushBits = 0x8040;  // FTZ and DAZ
  const unsigned state = _mm_getcsr();
  if ((state & kFlushBits) != 0) _mm_setcsr(state & ~kFlushBits);
#endif
}

template <typename Flag, typename Word, typename Sleepers>
void EndWorkers(Flag& stop, Word& generation, Sleepers& sleepers,
                std::vector<std::thread>& workers) {
  stop = true;
  generation.fetch_add(1);
  WakeSleepers(generation, sleepers);
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

ThreadTeam::ThreadTeam(ThreadTeamOptions options)
    : options_(std::move(options)),
      shares_(static_cast<size_t>(std::max(options_.num_threads, 1))) {
  SLUICE_CHECK(options_.num_threads >= 1);
  workers_.reserve(static_cast<size_t>(options_.num_threads - 1));
  try {
    for (int member = 1; member < options_.num_threads; ++member) {
      workers_.emplace_back([this, member] { Work(member); });
    }
  } catch (...) {
    // A thread that is not joined would end the process.
    EndWorkers(stop_, generation_, sleeping_workers_, workers_);
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  EndWorkers(stop_, generation_, sleeping_workers_, workers_);
}

void ThreadTeam::AdoptCaller() {
  if (!caller_pinned_) {
    Pin(0);
    caller_pinned_ = true;
  }
  ComputeDenormals();
}

void ThreadTeam::Run(Task task, void* argument, int num_tasks) {
  AdoptCaller();
  if (workers_.empty()) {
    for (int i = 0; i < num_tasks; ++i) task(argument, i);
    return;
  }
  if (num_tasks == 0) return;
  task_.store(task, std::memory_order_relaxed);
  argument_.store(argument, std::memory_order_relaxed);
  num_tasks_.store(num_tasks, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  const auto size = static_cast<int64_t>(shares_.size());
  for (int64_t m = 0; m < size; ++m) {
    const int64_t count = num_tasks * (m + 1) / size - num_tasks * m / size;
    shares_[static_cast<size_t>(m)].left.store(
        uint64_t{generation} << 32 | static_cast<uint64_t>(count),
        std::memory_order_relaxed);
  }
  unfinished_.store(static_cast<uint32_t>(num_tasks),
                    std::memory_order_relaxed);
  generation_.store(generation);
  WakeSleepers(generation_, sleeping_workers_);
  const uint32_t own = RunTasks(generation, 0);
  uint32_t left = unfinished_.fetch_sub(own) - own;
  while (left != 0) left = AwaitChange(unfinished_, left, caller_sleeps_);
}

void ThreadTeam::Work(int member) {
  const std::string name = options_.name + "-" + std::to_string(member);
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  Pin(member);
  ComputeDenormals();
  uint32_t seen = 0;
  while (true) {
    seen = AwaitChange(generation_, seen, sleeping_workers_);
    if (stop_) return;
    const uint32_t ran = RunTasks(seen, member);
    if (ran == 0) continue;
    // The caller may go on, but not end before it has seen the last value.
    unfinished_.fetch_sub(ran);
    WakeSleepers(unfinished_, caller_sleeps_);
  }
}

uint32_t ThreadTeam::RunTasks(uint32_t generation, int member) {
  const Task task = task_.load(std::memory_order_relaxed);
  void* const argument = argument_.load(std::memory_order_relaxed);
  const int64_t tasks = num_tasks_.load(std::memory_order_relaxed);
  const int size = options_.num_threads;
  uint32_t ran = 0;
  for (int i = 0; i < size; ++i) {
    const int owner = (member + i) % size;
    const int64_t end = tasks * (owner + 1) / size;
    std::atomic<uint64_t>& left = shares_[static_cast<size_t>(owner)].left;
    uint64_t seen = left.load();
    while (seen >> 32 == generation && static_cast<uint32_t>(seen) != 0) {
      if (!left.compare_exchange_weak(seen, seen - 1)) continue;
      // The job is not over before this task is: what was read is the job's.
      task(argument, static_cast<int>(end - static_cast<uint32_t>(seen)));
      ++ran;
      seen = left.load();
    }
  }
  return ran;
}

void ThreadTeam::Pin(int member) const {
  if (options_.cpus.empty()) return;
  const auto index = static_cast<size_t>(member) % options_.cpus.size();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(options_.cpus[index]), &set);
  // The CPU is absent or not allowed: run on any allowed one.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace sluice
