#include "common/base/strong_id.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

#include "common/base/cat.h"

namespace sluice {
namespace {

using Apple = StrongId<struct AppleTag, int>;
using Pear = StrongId<struct PearTag, int>;

TEST(StrongIdTest, IdsOfTwoKindsDoNotConvert) {
  EXPECT_FALSE((std::is_convertible_v<Apple, Pear>));
  EXPECT_FALSE((std::is_convertible_v<int, Apple>));
}

TEST(StrongIdTest, OrdersHashesAndPrintsByValue) {
  EXPECT_LT(Apple(1), Apple(2));
  std::unordered_set<Apple> set = {Apple(1), Apple(1), Apple(2)};
  EXPECT_EQ(set.size(), 2u);
  EXPECT_EQ(Cat(Apple(7)), "7");
  Apple next(7);
  EXPECT_EQ(++next, Apple(8));
}

}  // namespace
}  // namespace sluice
