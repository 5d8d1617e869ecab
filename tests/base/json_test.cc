#include "common/base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(JsonTest, KeepsTheOrderOfKeys) {
  const auto json = ParseJson(R"({"b":1,"a":[true,null,"x"]})");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(DumpJson(*json), R"({"b":1,"a":[true,null,"x"]})");
}

TEST(JsonTest, RefusesNestingBeyondTheLimitAndNamesIt) {
  const std::string deep(200000, '[');
  const auto json = ParseJson(deep);
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(json.status()).find("64"), std::string::npos);
}

TEST(JsonTest, BracketsInStringsAreNotNesting) {
  EXPECT_TRUE(ParseJson("[\"" + std::string(1000, '[') + "\"]").ok());
  EXPECT_TRUE(ParseJson(R"(["\"[[[["])", {.max_depth = 1}).ok());
}

TEST(JsonTest, RefusesMoreBytesThanTheLimit) {
  const auto json = ParseJson("[1,2,3,4,5]", {.max_bytes = 5});
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
}

// An object of so many members; colons within its strings do not count.
std::string ObjectOf(int members) {
  std::string text = "{";
  for (int i = 0; i < members; ++i) {
    text += Cat(i > 0 ? "," : "", "\"", i, "\":\":,:\"");
  }
  return text + "}";
}

TEST(JsonTest, RefusesAnObjectOfMoreMembersThanTheLimit) {
  EXPECT_TRUE(ParseJson(ObjectOf(8192)).ok());
  const auto json = ParseJson(Cat("[[],{\"a\":", ObjectOf(8193), "}]"));
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(json.status()).find("8192 members"), std::string::npos);
}

TEST(JsonTest, ManyLargeObjectsAreReadAsTheyStand) {
  const std::string large = ObjectOf(8191);
  std::string list = large;
  for (int i = 0; i < 50; ++i) list += Cat(",", large);
  const auto json = ParseJson(Cat("[", list, "]"));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(DumpJson(*json), Cat("[", list, "]"));
}

TEST(JsonTest, OfMembersOfOneNameTheLastValueStandsInTheFirstPlace) {
  const auto json =
      ParseJson(R"({"b":{"x":1,"x":2},"a":0,"b":[1],"c":{},"a":1,"b":"last"})");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(DumpJson(*json), R"({"b":"last","a":1,"c":{}})");
}

TEST(JsonTest, RefusesKeysLongerThanTheLimit) {
  const std::string key(100, 'k');
  const std::string text = Cat("[{\"a\":\"", key, "\"},{\"", key, "\":0}]");
  EXPECT_TRUE(ParseJson(text, {.max_key_bytes = 100}).ok());
  const auto json = ParseJson(text, {.max_key_bytes = 99});
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(json.status()).find("key of 100 bytes, limit 99"),
            std::string::npos);
}

TEST(JsonTest, ABudgetIsSpentByAllTextsOfARequest) {
  JsonBudget budget{10};
  EXPECT_TRUE(ParseJson(R"([1,2,{"a":[]}])", {.budget = &budget}).ok());
  EXPECT_EQ(budget.values, 5u);
  const auto json = ParseJson("[1,2,3,4,5,6]", {.budget = &budget});
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(json.status()).find("more values"), std::string::npos);
}

TEST(JsonTest, BytesCountTextAndValues) {
  EXPECT_EQ(JsonBytes(nullptr), 64u);
  EXPECT_EQ(JsonBytes(*ParseJson(R"({"key":["four",1]})")), 4 * 64u + 3 + 4);
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", "{", "nul", "NaN", "[1,]", "{\"a\":Infinity}", "1e999", "]]{}",
        "]:{", ":", "\"\xff\xfe\"", "[1] [2]", "'a'"}) {
    EXPECT_FALSE(ParseJson(text).ok()) << text;
  }
}

TEST(JsonTest, DumpReplacesInvalidUtf8) {
  EXPECT_EQ(DumpJson(Json(std::string("a\xff"))), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace sluice
