// A custom tool's input out of the arguments of its call.
#include "common/dialects/responses/custom_input.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/cat.h"
#include "common/base/json.h"

namespace sluice::responses {
namespace {

std::string Whole(std::string_view arguments) {
  CustomInput input;
  return input.Next(arguments, arguments.size());
}

TEST(CustomInputTest, TakesTheTextOfTheMember) {
  EXPECT_EQ(Whole(R"({"input": "a\n\"b\" \u00e9 \ud83d\ude00 é"})"),
            "a\n\"b\" \u00e9 \U0001F600 é");
  EXPECT_EQ(Whole(" {\n\"input\" :\"\"}"), "");
  EXPECT_EQ(Whole(R"({"input": "cut of)"), "cut of");
  EXPECT_EQ(Whole(R"({"input": "cut \u00)"), "cut ");
  EXPECT_EQ(Whole(R"({"input": "\ud83dabc"})"),
            "\xEF\xBF\xBD"
            "abc");
  EXPECT_EQ(Whole(R"({"input": "\ud83d"})"), "\xEF\xBF\xBD");
  EXPECT_EQ(Whole(R"({"input": "\ud83d\nx\ud83d\u0041"})"),
            "\xEF\xBF\xBD\nx\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(Whole(R"({"inp)"), "");
  EXPECT_EQ(Whole(""), "");
}

TEST(CustomInputTest, ArgumentsWithoutTheMemberAreTheText) {
  const std::string spaces(300, ' ');
  for (const std::string& other :
       {std::string(R"({"other": "a"})"), std::string(R"({"input": 1})"),
        std::string("{}"), std::string("*** Begin"),
        Cat("{", spaces, R"("input": "a"})")}) {
    EXPECT_EQ(Whole(other), other);
  }
}

// Wherever the text is cut, and whatever a client has of it.
TEST(CustomInputTest, PiecesAreTheWhole) {
  const std::string text = "*** Begin\n+\"x\\y\"\té\U0001F600\n";
  for (const std::string& arguments :
       {DumpJson({{"input", text}}),
        std::string(R"({"input": "\u002a\uD83D\uDE00 \/ end"})"),
        std::string(R"( {"inputs": ["a"]})"),
        std::string(R"({"input": "\ud83dab\ud83d\t\uD83D\u0041\ud83d"})")}) {
    const std::string whole = Whole(arguments);
    for (size_t step = 1; step <= arguments.size(); ++step) {
      CustomInput input;
      std::string told;
      for (size_t at = 0; at < arguments.size(); at += step) {
        const std::string so_far = arguments.substr(0, at + step);
        told += input.Next(so_far, so_far.size() - at);
      }
      EXPECT_EQ(told, whole) << "in steps of " << step;
    }
    for (size_t told = 0; told <= arguments.size(); ++told) {
      const std::string has = Whole(arguments.substr(0, told));
      CustomInput rest;
      EXPECT_EQ(has + rest.Next(arguments, arguments.size() - told), whole)
          << "behind byte " << told;
    }
  }
}

}  // namespace
}  // namespace sluice::responses
