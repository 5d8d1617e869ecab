#include "common/concurrency/thread_team.h"

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

template <typename Body>
void RunOn(ThreadTeam& team, int tasks, Body body) {
  kernels::ParallelFor({.executor = &team}, tasks, body);
}

// Returns when `count` tasks have called it, each on a member of its own.
void Meet(std::atomic<int>& came, int count) {
  ++came;
  while (came < count) std::this_thread::yield();
}

TEST(ThreadTeamTest, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadTeam team({.num_threads = threads});
    EXPECT_EQ(team.num_threads(), threads);
    for (int tasks : {0, 2, 3, 7, 8, 9, 100}) {
      std::vector<int> runs(tasks, 0);
      RunOn(team, tasks, [&](int i) { ++runs[i]; });
      EXPECT_EQ(runs, std::vector<int>(tasks, 1));
    }
  }
}

TEST(ThreadTeamTest, AMemberTakesItsOwnShareFirst) {
  for (int threads : {2, 3, 8}) {
    ThreadTeam team({.num_threads = threads});
    std::atomic<int> came = 0;
    std::vector<std::thread::id> ids(threads);
    RunOn(team, threads, [&](int i) {
      ids[i] = std::this_thread::get_id();
      Meet(came, threads);
    });
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    for (int i = 0; i < threads; ++i) {
      for (int j = 0; j < i; ++j) EXPECT_NE(ids[i], ids[j]);
    }
  }
}

// As if its thread had lost the CPU: the share behind the task is not lost.
TEST(ThreadTeamTest, AMemberHeldInATaskHoldsUpNoOther) {
  for (int held = 0; held < 16; held += 3) {
    ThreadTeam team({.num_threads = 2});
    std::atomic<int> done = 0;
    RunOn(team, 16, [&](int i) {
      if (i == held) {
        while (done < 15) std::this_thread::yield();
      }
      ++done;
    });
    EXPECT_EQ(done, 16);
  }
}

TEST(ThreadTeamTest, LosesNoWakeUpOverManyShortRuns) {
  ThreadTeam team({.num_threads = 3});
  int64_t sums[3] = {};
  for (int run = 0; run < 20000; ++run) {
    RunOn(team, 3, [&](int i) { sums[i] += i + 1; });
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 20000 * 6);
}

TEST(ThreadTeamTest, LosesNoWakeUpAroundTheEndOfTheSpin) {
  ThreadTeam team({.num_threads = 2});
  std::atomic<int> count = 0;
  // Pauses from none to 100 us: some runs meet workers just falling asleep.
  for (int run = 0; run < 2000; ++run) {
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(50 * run);
    while (std::chrono::steady_clock::now() < until) {
    }
    RunOn(team, 2, [&](int) { ++count; });
  }
  EXPECT_EQ(count, 4000);
}

TEST(ThreadTeamTest, TheCallerWaitsForASlowWorker) {
  ThreadTeam team({.num_threads = 2});
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  bool slow_done = false;
  RunOn(team, 2, [&](int i) {
    if (i == 0) {
      go.set_value();
    } else {
      gone.wait();
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
      while (std::chrono::steady_clock::now() < until) {
      }
      slow_done = true;
    }
  });
  EXPECT_TRUE(slow_done);
}

TEST(ThreadTeamTest, AnIdleTeamUsesNoCpu) {
  ThreadTeam team({.num_threads = 4});
  RunOn(team, 4, [](int) {});
  const auto cpu_ms = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  const auto before = cpu_ms();
  std::promise<void> never;
  never.get_future().wait_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_ms() - before, 60);
}

TEST(ThreadTeamTest, EveryMemberComputesDenormals) {
  ThreadTeam team({.num_threads = 3});
  volatile float tiny = std::numeric_limits<float>::min();
  float halves[3] = {};
  std::atomic<int> came = 0;
  RunOn(team, 3, [&](int i) {
    Meet(came, 3);
    halves[i] = tiny * 0.5f;
  });
  for (float half : halves) {
    EXPECT_EQ(half, std::numeric_limits<float>::min() / 2);
  }
}

TEST(ThreadTeamTest, MembersRunOnTheirCpus) {
  cpu_set_t allowed;
  pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed);
  std::vector<int> cpus;
  for (int i = 0; i < CPU_SETSIZE && cpus.size() < 2; ++i) {
    if (CPU_ISSET(i, &allowed)) cpus.push_back(i);
  }
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU only";
  std::thread caller([&] {  // apart: Run pins the calling thread
    ThreadTeam team({.num_threads = 2, .cpus = cpus, .name = "pinned"});
    int on[2] = {-1, -1};
    std::atomic<int> came = 0;
    RunOn(team, 2, [&](int i) {
      Meet(came, 2);
      on[i] = sched_getcpu();
    });
    EXPECT_EQ(on[0], cpus[0]);
    EXPECT_EQ(on[1], cpus[1]);
  });
  caller.join();
}

}  // namespace
}  // namespace sluice
