#include "common/base/option_row.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

TEST(OptionRowTest, NumbersAreReadAsAbseilsFlagsReadThem) {
  int32_t whole = 0;
  for (const auto& [text, value] : {std::pair{"8", 8},
                                    {" 8 ", 8},
                                    {"+8", 8},
                                    {"-8", -8},
                                    {"010", 10},
                                    {"0x10", 16},
                                    {"0X1f", 31},
                                    {"2147483647", 2147483647}}) {
    EXPECT_TRUE(option::Read(text, whole)) << text;
    EXPECT_EQ(whole, value) << text;
  }
  for (const std::string text :
       {"", " ", "x", "8x", "8 9", "0x", "-0x10", "+-8", "8.0", "1e3",
        "2147483648", "99999999999999999999"}) {
    EXPECT_FALSE(option::Read(text, whole)) << text;
  }
  double number = 0;
  EXPECT_TRUE(option::Read(std::string(" +2.5e1 "), number));
  EXPECT_EQ(number, 25);
  EXPECT_FALSE(option::Read(std::string("2,5"), number));
}

TEST(OptionRowTest, AListKeepsItsEmptyItems) {
  std::vector<std::string> items = {"old"};
  EXPECT_TRUE(option::Read(std::string(), items));
  EXPECT_TRUE(items.empty());
  EXPECT_TRUE(option::Read(std::string("a,,b,"), items));
  EXPECT_EQ(items, (std::vector<std::string>{"a", "", "b", ""}));
  EXPECT_EQ(option::Write(items), "a,,b,");
}

TEST(OptionRowTest, ARowReadsItsDefaultFromItsVariable) {
  Duration time = std::chrono::milliseconds(2500);
  size_t bytes = size_t{3} << 20;
  bool on = true;
  const OptionRows rows = {{"time", option::Seconds(&time, 0, 10), ""},
                           {"bytes", option::Mebibytes(&bytes, 1, 8), ""},
                           {"no-on", option::Off(&on), ""}};
  EXPECT_EQ(FindOption(rows, "time")->usual, "2.5");
  EXPECT_EQ(FindOption(rows, "bytes")->usual, "3");
  EXPECT_EQ(FindOption(rows, "no_on")->usual, "false");
  EXPECT_EQ(FindOption(rows, "on"), nullptr);
  EXPECT_TRUE(rows[2].value.set("no-on", "true").ok());
  EXPECT_FALSE(on);
  EXPECT_EQ(Message(rows[1].value.set("bytes", "9")),
            "--bytes must be between 1 and 8, got 9");
  EXPECT_EQ(bytes, size_t{3} << 20);
}

TEST(OptionRowTest, AWordThatIsNoneOfThemIsTold) {
  int choice = 2;
  const OptionRow row(
      "kind", option::Words(&choice, {{"a", 1}, {"b", 2}, {"c", 3}}), "");
  EXPECT_EQ(row.usual, "b");
  EXPECT_TRUE(row.value.set("kind", "c").ok());
  EXPECT_EQ(choice, 3);
  EXPECT_EQ(Message(row.value.set("kind", "d")),
            "--kind must be a, b or c, got 'd'");
}

TEST(OptionRowTest, AnErrorOfAParserNamesTheOption) {
  std::string text;
  const auto refuse = [&text](std::string why) {
    return option::Parsed(
        &text,
        [why](const std::string&) -> StatusOr<std::string> {
          return InvalidArgument(why);
        },
        [](const std::string& value) { return value; });
  };
  EXPECT_EQ(Message(refuse("weights must be f32").set("weights", "x")),
            "--weights: weights must be f32");
  EXPECT_EQ(Message(refuse("--peers has no port").set("peers", "x")),
            "--peers has no port");
}

}  // namespace
}  // namespace sluice
