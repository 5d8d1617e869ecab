#include "common/placement/machine_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace sluice::placement {
namespace {

using ::testing::HasSubstr;

TEST(MachineRatesTest, AWrongFileIsTold) {
  for (const auto& [text, words] :
       {std::pair("{}", "read_gb_per_s is missing"),
        {R"({"read_gb_per_s": "x"})", "read_gb_per_s must be a number"},
        {R"({"read_gb_per_s": 1, "join_us": -1})", "join_us must be"},
        {R"({"read_gb_per_s": 1, "products": [{"type": "q9"}]})",
         "no type 'q9'"},
        {R"({"read_gb_per_s": 1, "products": [{"type": "bf16",
             "memory_ps": [1]}]})",
         "memory_ps has 1 figures"},
        {R"({"read_gb_per_s": 1, "products": [{"type": "bf16",
             "memory_ps": [1, 1, 1, 1, 0]}]})",
         "memory_ps[4] must be a positive number"},
        {"[", "expected"}}) {
    const auto rates = ParseRates(text);
    ASSERT_FALSE(rates.ok()) << text;
    if (text[0] == '{') {
      EXPECT_THAT(Message(rates.status()), HasSubstr(words));
    }
  }
}

}  // namespace
}  // namespace sluice::placement
