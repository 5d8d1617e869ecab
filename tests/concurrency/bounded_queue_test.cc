#include "common/concurrency/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/concurrency/named_thread.h"

namespace sluice {
namespace {

TEST(BoundedQueueTest, ItemsComeOutInTheOrderTheyWentIn) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.Push(i).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Pop(), i);
}

TEST(BoundedQueueTest, AFullQueueRefusesAndLeavesTheItemWithTheCaller) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.Push(std::make_unique<int>(1)).ok());
  auto item = std::make_unique<int>(2);
  const Status status = queue.Push(std::move(item));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), "queue is full: limit 1");
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(*item, 2);
}

TEST(BoundedQueueTest, AClosedQueueRefusesButGivesOutWhatItHolds) {
  BoundedQueue<int> queue(2);
  ASSERT_TRUE(queue.Push(7).ok());
  queue.Close();
  EXPECT_TRUE(queue.closed());
  EXPECT_EQ(queue.Push(8).code(), StatusCode::kUnavailable);
  EXPECT_EQ(queue.Pop(), 7);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, TryPopOfAnEmptyQueueGivesNothingAtOnce) {
  BoundedQueue<int> queue(1);
  EXPECT_EQ(queue.TryPop(), std::nullopt);
  ASSERT_TRUE(queue.Push(1).ok());
  EXPECT_EQ(queue.TryPop(), 1);
}

TEST(BoundedQueueTest, PopGivesUpAtItsDeadline) {
  BoundedQueue<int> queue(1);
  EXPECT_EQ(queue.Pop(Clock::now()), std::nullopt);
  ASSERT_TRUE(queue.Push(1).ok());
  EXPECT_EQ(queue.Pop(Clock::now()), 1);
}

TEST(BoundedQueueTest, CloseWakesEveryWaitingPop) {
  BoundedQueue<int> queue(1);
  std::vector<NamedThread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back("popper",
                         [&] { EXPECT_EQ(queue.Pop(), std::nullopt); });
  }
  queue.Close();
}

TEST(BoundedQueueTest, ManyProducersAndConsumersLoseNothing) {
  constexpr int kPerProducer = 2000;
  BoundedQueue<int> queue(16);
  Mutex mutex;
  int64_t sum = 0;
  {
    std::vector<NamedThread> consumers;
    for (int c = 0; c < 2; ++c) {
      consumers.emplace_back("consumer", [&] {
        int64_t mine = 0;
        while (auto item = queue.Pop()) mine += *item;
        MutexLock lock(mutex);
        sum += mine;
      });
    }
    {
      std::vector<NamedThread> producers;
      for (int p = 0; p < 2; ++p) {
        producers.emplace_back("producer", [&] {
          for (int i = 1; i <= kPerProducer; ++i) {
            while (!queue.Push(i).ok()) std::this_thread::yield();
          }
        });
      }
    }
    queue.Close();
  }
  EXPECT_EQ(sum, int64_t{kPerProducer} * (kPerProducer + 1));
}

}  // namespace
}  // namespace sluice
