#include "common/concurrency/work_queue.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <new>
#include <string>
#include <vector>

namespace sluice {
namespace {

std::string CurrentThreadName() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

// Lets a thread wait until another says so.
class Gate {
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

TEST(NamedThreadTest, TheSystemShowsTheNameCutToItsLimit) {
  std::string seen;
  NamedThread thread("a-name-longer-than-the-limit",
                     [&] { seen = CurrentThreadName(); });
  thread.Join();
  EXPECT_EQ(seen, "a-name-longer-t");
  EXPECT_FALSE(thread.joinable());
}

TEST(NamedThreadTest, AssigningJoinsTheThreadHeldSoFar) {
  std::atomic<int> done{0};
  NamedThread thread("one", [&] { ++done; });
  thread = NamedThread("two", [&] { ++done; });
  EXPECT_GE(done, 1);
  thread.Join();
  EXPECT_EQ(done, 2);
}

TEST(WorkQueueTest, OneThreadRunsFunctionsInOrder) {
  std::vector<int> order;
  WorkQueue queue("work", 1, 100);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(queue.Push([&order, i] { order.push_back(i); }).ok());
  }
  queue.Stop();
  ASSERT_EQ(order.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[size_t(i)], i);
}

TEST(WorkQueueTest, ThreadsCarryTheQueuesNameAndTheirNumber) {
  std::string seen;
  WorkQueue queue("tokenize", 1, 1);
  ASSERT_TRUE(queue.Push([&] { seen = CurrentThreadName(); }).ok());
  queue.Stop();
  EXPECT_EQ(seen, "tokenize-0");
}

TEST(WorkQueueTest, AFullQueueRefusesAndRunsTheRest) {
  Gate started, go;
  std::atomic<int> ran{0};
  WorkQueue queue("work", 1, 1);
  ASSERT_TRUE(queue
                  .Push([&] {
                    started.Open();
                    go.Wait();
                    ++ran;
                  })
                  .ok());
  started.Wait();
  ASSERT_TRUE(queue.Push([&] { ++ran; }).ok());
  EXPECT_EQ(queue.queued(), 1u);
  EXPECT_EQ(queue.Push([&] { ran += 100; }).code(),
            StatusCode::kResourceExhausted);
  go.Open();
  queue.Stop();
  EXPECT_EQ(ran, 2);
}

TEST(WorkQueueTest, AStoppedQueueRefuses) {
  WorkQueue queue("work", 2, 4);
  queue.Stop();
  queue.Stop();
  EXPECT_EQ(queue.Push([] {}).code(), StatusCode::kUnavailable);
}

TEST(WorkQueueTest, FunctionsOfTwoThreadsRunAtTheSameTime) {
  Gate first, second;
  WorkQueue queue("work", 2, 4);
  ASSERT_TRUE(queue
                  .Push([&] {
                    first.Open();
                    second.Wait();
                  })
                  .ok());
  ASSERT_TRUE(queue
                  .Push([&] {
                    second.Open();
                    first.Wait();
                  })
                  .ok());
  queue.Stop();
}

TEST(WorkQueueTest, AFunctionThatThrowsEndsAlone) {
  bool ran = false;
  WorkQueue queue("work", 1, 4);
  ASSERT_TRUE(queue.Push([] { throw std::bad_alloc(); }).ok());
  ASSERT_TRUE(queue.Push([&] { ran = true; }).ok());
  queue.Stop();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace sluice
