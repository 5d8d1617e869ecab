#include "common/base/exception_counts.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "common/base/cat.h"

namespace sluice {
namespace {

uint64_t CountOf(std::string_view where) {
  for (const auto& [name, count] : ExceptionCounts()) {
    if (name == where) return count;
  }
  return 0;
}

TEST(ExceptionCountsTest, WhatIsCaughtIsCountedByItsEdge) {
  const auto works = [] {};
  const auto out_of_memory = [] { throw std::bad_alloc(); };
  const auto odd = [] { throw 5; };
  EXPECT_TRUE(CatchAndCount("a_job", works).ok());
  EXPECT_EQ(CountOf("a_job"), 0u);
  EXPECT_EQ(CatchAndCount("a_job", out_of_memory).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(CatchAndCount("a_job", odd).code(), StatusCode::kInternal);
  EXPECT_EQ(CatchAndCount("a_post", odd).code(), StatusCode::kInternal);
  EXPECT_EQ(CountOf("a_job"), 2u);
  EXPECT_EQ(CountOf("a_post"), 1u);
}

TEST(ExceptionCountsTest, EdgesBeyondTheTableCountAsOther) {
  for (int i = 0; i < 100; ++i) CountException(Cat("edge_", i));
  CountException(std::string(1000, 'x'));
  EXPECT_LE(ExceptionCounts().size(), 33u);
  EXPECT_GT(CountOf("other"), 60u);
  EXPECT_EQ(CountOf("edge_0"), 1u);
}

}  // namespace
}  // namespace sluice
