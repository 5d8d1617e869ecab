#include "common/tensor/buffer_pool.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(BufferPoolTest, MemoryIsUsedAgainForWhatItFits) {
  const auto pool = BufferPool::Make(1 << 20);
  Buffer first = pool->Take(1000);
  const std::byte* const memory = first.data();
  EXPECT_EQ(first.size(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % Buffer::kAlignment, 0u);
  first = Buffer();
  EXPECT_EQ(pool->kept_bytes(), 1000u);
  Buffer smaller = pool->Take(600);
  EXPECT_EQ(smaller.data(), memory);
  EXPECT_EQ(smaller.size(), 600u);
  EXPECT_EQ(pool->kept_bytes(), 0u);
  smaller = Buffer();
  EXPECT_EQ(pool->kept_bytes(), 1000u);  // whole again
  const Buffer larger = pool->Take(1001);
  const Buffer half = pool->Take(500);  // twice as large is too large
  EXPECT_EQ(pool->kept_bytes(), 1000u);
}

TEST(BufferPoolTest, TheLeastThatFitsIsTaken) {
  const auto pool = BufferPool::Make(1 << 20);
  Buffer large = pool->Take(1900);
  Buffer small = pool->Take(1100);
  const std::byte* const wanted = small.data();
  large = Buffer();
  small = Buffer();
  EXPECT_EQ(pool->Take(1000).data(), wanted);
}

TEST(BufferPoolTest, WhatCameFirstMakesRoomAndTooMuchIsFreed) {
  const auto pool = BufferPool::Make(2000);
  Buffer first = pool->Take(1200);
  Buffer second = pool->Take(900);
  const std::byte* const kept = second.data();
  Buffer large = pool->Take(2001);
  first = Buffer();
  second = Buffer();
  large = Buffer();
  EXPECT_EQ(pool->kept_bytes(), 900u);
  EXPECT_EQ(pool->Take(900).data(), kept);
}

TEST(BufferPoolTest, WhatNoBufferHasCanBeFreed) {
  const auto pool = BufferPool::Make(2000);
  Buffer held = pool->Take(500);
  pool->Take(900);
  EXPECT_EQ(pool->kept_bytes(), 900u);
  pool->Clear();
  EXPECT_EQ(pool->kept_bytes(), 0u);
  held = Buffer();
  EXPECT_EQ(pool->kept_bytes(), 500u);
}

TEST(BufferPoolTest, BuffersOutliveThePoolsOwner) {
  auto pool = BufferPool::Make(1 << 20);
  Buffer buffer = pool->Take(100);
  Buffer moved = std::move(buffer);
  pool.reset();
  EXPECT_EQ(moved.size(), 100u);
  moved.data()[99] = std::byte{1};
  std::free(moved.Release());
}

TEST(BufferPoolTest, NothingIsNoMemory) {
  const auto pool = BufferPool::Make(1 << 20);
  EXPECT_TRUE(pool->Take(0).empty());
  EXPECT_EQ(pool->kept_bytes(), 0u);
}

TEST(MessageBufferTest, MemoryOfALargeMessageIsTheNextOnes) {
  Buffer first = MessageBuffer((size_t{33} << 20) + 5);
  const std::byte* const memory = first.data();
  EXPECT_EQ(first.size(), (size_t{33} << 20) + 5);
  first = Buffer();
  Buffer second = MessageBuffer(size_t{33} << 20);
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(second.size(), size_t{33} << 20);
  EXPECT_TRUE(MessageBuffer(0).empty());
  second = Buffer();
  FreeMessageMemory();
  EXPECT_EQ(MessageBuffer(100).size(), 100u);
}

}  // namespace
}  // namespace sluice
