#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "tests/testing/failing_calls.h"

namespace sluice {
namespace {

using testing::FailingAllocation;

// Lists and objects of many values, within each other.
std::string LargeText() {
  std::string numbers = "1";
  for (int i = 0; i < 10000; ++i) {
    numbers += ",[\"" + std::string(40, 'x') + "\"]";
  }
  return Cat(R"({"a":[)", numbers, R"(],"b":{"c":[[)", numbers,
             R"(]]},"d":{}})");
}

template <typename Value>
void ExpectEndsWithoutMemory(StatusOr<Value> value) {
  ASSERT_TRUE(value.ok()) << value.status();
  auto holder = std::make_unique<Value>(*std::move(value));
  const FailingAllocation failing(1, /*min_bytes=*/1, /*lasts=*/true);
  holder.reset();
}

// What `change` makes of a value, or what its first allocations that fail
// leave.
void ExpectEndsAfterEachFailure(void (*change)(Json& value)) {
  for (int n = 1; n < 20; ++n) {
    Json value;
    try {
      const FailingAllocation failing(static_cast<uint64_t>(n), 1);
      change(value);
    } catch (const std::bad_alloc&) {
    }
  }
}

TEST(JsonMemoryTest, ValuesThatAreMadeInPartEnd) {
  ExpectEndsAfterEachFailure([](Json& value) { value["a"] = "b"; });
  ExpectEndsAfterEachFailure([](Json& value) { value.push_back({1, "b"}); });
  ExpectEndsAfterEachFailure([](Json& value) {
    const Json list = {{"a", {1, 2, {{"c", "d"}}}}, {"b", nullptr}};
    value = list;
  });
}

TEST(JsonMemoryTest, ValuesEndWithoutMemory) {
  const std::string text = LargeText();
  ExpectEndsWithoutMemory(ParseJson(text));
  ExpectEndsWithoutMemory(ParseSortedJson(text));
}

}  // namespace
}  // namespace sluice
