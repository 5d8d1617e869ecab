#ifndef SLUICE_TESTS_MODEL_EXPECT_SAME_H_
#define SLUICE_TESTS_MODEL_EXPECT_SAME_H_

#include <gtest/gtest.h>

#include <vector>

#include "tests/model/pipeline.h"

namespace sluice::testing {

// The law: all requests came to their ends, with the same tokens, logprobs and
// prompt logprobs, bit for bit.
inline void ExpectSame(const std::vector<Answer>& a,
                       const std::vector<Answer>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i].status.ok()) << a[i].status;
    ASSERT_TRUE(b[i].status.ok()) << b[i].status;
    EXPECT_TRUE(a[i].tokens == b[i].tokens) << "request " << i;
    EXPECT_TRUE(a[i].prompt == b[i].prompt) << "request " << i;
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_EXPECT_SAME_H_
