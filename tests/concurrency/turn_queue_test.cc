#include "common/concurrency/turn_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/base/exception_counts.h"
#include "common/base/retry_after.h"

namespace sluice {
namespace {

// Holds a thread until it is opened.
class Latch {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    opened_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!open_) opened_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar opened_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

constexpr size_t kLarge = TurnQueue::kSmallBytes + 1;

TurnQueue::Job JobOf(std::string client, size_t bytes,
                     std::function<void()> run) {
  TurnQueue::Job job;
  job.client = std::move(client);
  job.bytes = bytes;
  job.run = std::move(run);
  return job;
}

TurnQueue::Options Threads(int count) {
  TurnQueue::Options options;
  options.threads = count;
  return options;
}

// Occupies a queue of one thread until it is opened.
class Occupied {
 public:
  explicit Occupied(TurnQueue& queue) {
    EXPECT_TRUE(queue
                    .Push(JobOf("occupies", 0,
                                [this] {
                                  begun_.Open();
                                  go_.Wait();
                                }))
                    .ok());
    begun_.Wait();
  }
  void Release() { go_.Open(); }

 private:
  Latch begun_, go_;
};

TEST(TurnQueueTest, OneWhoComesLateIsNotBehindAnothersWholeQueue) {
  TurnQueue queue(Threads(1));
  Occupied occupied(queue);
  std::vector<std::string> order;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(
        queue.Push(JobOf("many", 0, [&] { order.push_back("many"); })).ok());
  }
  ASSERT_TRUE(
      queue.Push(JobOf("few", 0, [&] { order.push_back("few"); })).ok());
  occupied.Release();
  queue.Stop();
  ASSERT_EQ(order.size(), 21u);
  const auto few = std::find(order.begin(), order.end(), "few");
  EXPECT_LE(few - order.begin(), 1);
}

TEST(TurnQueueTest, LargeJobsLeaveAThreadToSmallOnes) {
  TurnQueue queue(Threads(3));
  Latch go, done;
  std::atomic<int> large{0};
  for (const char* client : {"a", "b", "c", "d"}) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(queue
                      .Push(JobOf(client, kLarge,
                                  [&] {
                                    ++large;
                                    go.Wait();
                                  }))
                      .ok());
    }
  }
  // Not before the large ones have what they may have.
  ASSERT_TRUE(queue.Push(JobOf("e", 0, [&] { done.Open(); })).ok());
  done.Wait();
  EXPECT_LE(large, 2);
  go.Open();
  queue.Stop();
  EXPECT_EQ(large, 12);
}

TEST(TurnQueueTest, OneClientsSmallJobsDoNotTakeAllThreads) {
  TurnQueue queue(Threads(2));
  Latch go, done;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(queue.Push(JobOf("many", 0, [&] { go.Wait(); })).ok());
  }
  ASSERT_TRUE(queue.Push(JobOf("few", 0, [&] { done.Open(); })).ok());
  done.Wait();
  go.Open();
  queue.Stop();
}

TEST(TurnQueueTest, LargeJobsRunTogetherOnlyWithinTheBudget) {
  TurnQueue::Options options = Threads(4);
  options.max_bytes = 2 * kLarge;
  TurnQueue queue(options);
  std::atomic<int> running{0}, most{0};
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(queue
                    .Push(JobOf(std::to_string(i % 3), kLarge,
                                [&] {
                                  const int now = ++running;
                                  int seen = most;
                                  while (
                                      now > seen &&
                                      !most.compare_exchange_weak(seen, now)) {
                                  }
                                  --running;
                                }))
                    .ok());
  }
  // One that is larger than all of the budget runs alone.
  std::atomic<bool> ran{false};
  ASSERT_TRUE(queue.Push(JobOf("x", 10 * kLarge, [&] { ran = true; })).ok());
  queue.Stop();
  EXPECT_LE(most, 2);
  EXPECT_TRUE(ran);
}

TEST(TurnQueueTest, AnExceptionIsOneJobsTrouble) {
  std::vector<StatusCode> told;
  const uint64_t before = ExceptionsAt("text");
  TurnQueue queue(Threads(1));
  const auto push = [&](std::function<void()> run) {
    TurnQueue::Job job = JobOf("a", 0, std::move(run));
    job.refused = [&](const Status& why) { told.push_back(why.code()); };
    ASSERT_TRUE(queue.Push(std::move(job)).ok());
  };
  bool went_on = false;
  push([] { throw std::bad_alloc(); });
  push([] { throw std::runtime_error("odd"); });
  push([&] { went_on = true; });
  queue.Stop();
  EXPECT_EQ(told, (std::vector<StatusCode>{StatusCode::kUnavailable,
                                           StatusCode::kInternal}));
  EXPECT_EQ(ExceptionsAt("text"), before + 2);
  EXPECT_TRUE(went_on);
}

TEST(TurnQueueTest, DeadlineAndWishAreLookedAtBeforeAJobRuns) {
  TurnQueue queue(Threads(1));
  Occupied occupied(queue);
  bool ran = false;
  Status told;
  TurnQueue::Job late = JobOf("a", 0, [&] { ran = true; });
  late.deadline = Clock::now();
  late.refused = [&](const Status& why) { told = why; };
  ASSERT_TRUE(queue.Push(std::move(late)).ok());
  TurnQueue::Job unwanted = JobOf("a", 0, [&] { ran = true; });
  unwanted.wanted = [] { return false; };
  ASSERT_TRUE(queue.Push(std::move(unwanted)).ok());
  occupied.Release();
  queue.Stop();
  EXPECT_FALSE(ran);
  EXPECT_EQ(told.code(), StatusCode::kDeadlineExceeded);
}

TEST(TurnQueueTest, AJobThatWaitedTooLongIsRefused) {
  TurnQueue::Options options = Threads(1);
  options.max_wait = Duration::zero();
  TurnQueue queue(options);
  Status told;
  TurnQueue::Job job = JobOf("a", 0, [] {});
  job.refused = [&](const Status& why) { told = why; };
  ASSERT_TRUE(queue.Push(std::move(job)).ok());
  queue.Stop();
  EXPECT_EQ(told.code(), StatusCode::kResourceExhausted);
}

TEST(TurnQueueTest, WhatGoesOnIsRefusedByNoFullQueueAndNoWait) {
  TurnQueue::Options options = Threads(1);
  options.max_queued = 1;
  options.max_wait = Duration::zero();
  TurnQueue queue(options);
  Latch begun, go;
  bool ran = false;
  const auto more = [&](std::function<void()> run) {
    TurnQueue::Job job = JobOf("a", 0, std::move(run));
    job.goes_on = true;
    return queue.Push(std::move(job));
  };
  ASSERT_TRUE(more([&] {
                begun.Open();
                go.Wait();
              }).ok());
  begun.Wait();
  ASSERT_TRUE(queue.Push(JobOf("a", 0, [] {})).ok());
  EXPECT_FALSE(queue.Push(JobOf("a", 0, [] {})).ok());
  EXPECT_TRUE(more([&] { ran = true; }).ok());
  go.Open();
  queue.Stop();
  EXPECT_TRUE(ran);
}

TEST(TurnQueueTest, AFullQueueStillTakesThoseOfAnotherClient) {
  TurnQueue::Options options = Threads(1);
  options.max_queued = 4;
  TurnQueue queue(options);
  Occupied occupied(queue);
  std::atomic<int> ran{0};
  const auto push = [&](const char* client) {
    return queue.Push(JobOf(client, 0, [&] { ++ran; }));
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(push("many").ok());
  const Status refused = push("many");
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfterSeconds(refused).has_value());
  EXPECT_TRUE(push("few").ok());
  EXPECT_EQ(queue.queued(), 5u);
  occupied.Release();
  queue.Stop();
  EXPECT_EQ(ran, 5);
  EXPECT_EQ(push("few").code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
