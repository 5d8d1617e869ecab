#include "common/text/output/python_literal.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/json.h"
#include "tests/testing/test_data.h"

namespace sluice::testing {
namespace {

// tests/text/literals/make.py wrote them.
TEST(PythonLiteralTest, LiteralsAreWhatPythonMakesOfThem) {
  const Json literals =
      *ParseJson(ReadFileOrDie("tests/text/literals/literals.json"));
  EXPECT_EQ(literals.size(), 300u);
  for (const Json& one : literals) {
    const auto text = one[0].get<std::string>();
    const auto json = PythonLiteralAsJson(text);
    ASSERT_TRUE(json.has_value()) << text;
    const auto value = ParseJson(*json);
    ASSERT_TRUE(value.ok()) << text << ": " << *json;
    // Without the order of keys.
    EXPECT_EQ(nlohmann::json::parse(*json),
              nlohmann::json::parse(one[1].dump()))
        << text << ": " << *json;
  }
}

TEST(PythonLiteralTest, OtherTextsAreNone) {
  for (const char* text : {"",
                           " ",
                           "x",
                           "Truex",
                           "1 2",
                           "[1 2]",
                           "[1",
                           "{'a': }",
                           "{'a': 1, 2}",
                           "{[1]: 2}",
                           "'a",
                           "1.2.3",
                           "1e",
                           "0x",
                           "0xG",
                           "1j",
                           "2*3",
                           "f()",
                           ",",
                           "[,]",
                           "{,}",
                           "0x10000000000000000",
                           "b'x'"}) {
    EXPECT_EQ(PythonLiteralAsJson(text), std::nullopt) << text;
  }
  const std::string deep = std::string(100000, '[');
  EXPECT_EQ(PythonLiteralAsJson(deep), std::nullopt);
}

TEST(PythonLiteralTest, ModelsWriteQuotesWithoutBackslashes) {
  EXPECT_EQ(PythonLiteralAsJson("['it's', 'a']"), R"(["it's", "a"])");
  EXPECT_EQ(PythonLiteralAsJson("{'k': 'isn't', 07: null}"),
            R"({"k": "isn't", "7": null})");
}

TEST(PythonLiteralTest, AnEscapeWaitsForItsEnd) {
  for (const char* begun : {"\\", "\\x", "\\x4", "\\u00e", "\\1", "\\12",
                            "\\ud83d", "\\ud83d\\", "\\ud83d\\ude0"}) {
    EXPECT_EQ(ReadPythonEscape(begun, /*is_whole=*/false).size, 0u) << begun;
    EXPECT_GT(ReadPythonEscape(begun, /*is_whole=*/true).size, 0u) << begun;
  }
}

}  // namespace
}  // namespace sluice::testing
