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

TEST(JsonTest, RefusesManyLargeObjectsThatWouldTakeLongTogether) {
  const std::string large = ObjectOf(8191);
  EXPECT_TRUE(ParseJson(Cat("[", large, ",", large, "]")).ok());
  std::string list = large;
  for (int i = 0; i < 50; ++i) list += Cat(",", large);
  const auto json = ParseJson(Cat("[", list, "]"));
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(json.status()).find("too many large objects"),
            std::string::npos);
  // As many members in small objects are nothing special.
  std::string small = ObjectOf(10);
  for (int i = 0; i < 30'000; ++i) small += Cat(",", ObjectOf(10));
  EXPECT_TRUE(ParseJson(Cat("[", small, "]")).ok());
}

TEST(JsonTest, RefusesLongKeysThatWouldTakeLongToCompare) {
  const auto object_of = [](int members, size_t key_bytes) {
    std::string text = "{";
    for (int i = 0; i < members; ++i) {
      text += Cat(i > 0 ? "," : "", "\"", std::string(key_bytes, 'k'),
                  10'000 + i, "\":0");
    }
    return text + "}";
  };
  EXPECT_TRUE(ParseJson(object_of(8192, 50)).ok());
  EXPECT_TRUE(ParseJson(object_of(1000, 4000)).ok());
  const auto json = ParseJson(object_of(8000, 1000));
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(json.status()).find("too many long keys"),
            std::string::npos);
  // Long strings that are no keys are nothing special.
  std::string list = Cat("[{\"a\":\"", std::string(1 << 20, 'x'), "\"}");
  for (int i = 0; i < 5000; ++i) list += Cat(",{\"b\":\"x\"}");
  EXPECT_TRUE(ParseJson(list + "]").ok());
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
