#include "common/rpc/send_queue.h"

#include <gtest/gtest.h>

namespace sluice::rpc {
namespace {

using Queue = SendQueue<int>;
using Next = Queue::Next;

TEST(SendQueueTest, OneWriteIsUnderWayAtATime) {
  Queue queue(4);
  EXPECT_EQ(queue.Decide(), Next::kNothing);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_EQ(queue.Decide(), Next::kWrite);
  EXPECT_EQ(*queue.current(), 1);
  EXPECT_EQ(queue.Decide(), Next::kNothing);
  queue.Written(true);
  EXPECT_EQ(queue.Decide(), Next::kWrite);
  EXPECT_EQ(*queue.current(), 2);
}

TEST(SendQueueTest, AFullQueueRefuses) {
  Queue queue(2);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_FALSE(queue.Push(3));
  EXPECT_EQ(queue.Decide(), Next::kWrite);
  EXPECT_TRUE(queue.Push(3));
}

TEST(SendQueueTest, ClosingEndsOnceAfterWhatWasQueued) {
  Queue queue(4);
  queue.Push(1);
  queue.Close();
  EXPECT_FALSE(queue.Push(2));
  EXPECT_EQ(queue.Decide(), Next::kWrite);
  EXPECT_EQ(queue.Decide(), Next::kNothing);
  queue.Written(true);
  EXPECT_EQ(queue.Decide(), Next::kEnd);
  EXPECT_EQ(queue.Decide(), Next::kNothing);
}

TEST(SendQueueTest, AbortingDropsWhatWaitsButNotTheWriteUnderWay) {
  Queue queue(4);
  queue.Push(1);
  queue.Push(2);
  EXPECT_EQ(queue.Decide(), Next::kWrite);
  queue.Abort();
  EXPECT_EQ(queue.Decide(), Next::kNothing);
  EXPECT_EQ(*queue.current(), 1);
  queue.Written(true);
  EXPECT_EQ(queue.Decide(), Next::kEnd);
}

TEST(SendQueueTest, AFailedWriteEndsTheQueue) {
  Queue queue(4);
  queue.Push(1);
  queue.Push(2);
  EXPECT_EQ(queue.Decide(), Next::kWrite);
  queue.Written(false);
  EXPECT_FALSE(queue.Push(3));
  EXPECT_EQ(queue.Decide(), Next::kEnd);
}

}  // namespace
}  // namespace sluice::rpc
