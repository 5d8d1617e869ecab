// services/gateway/API.md, the parsers' list of fields and what the parsers
// read must tell the same. Runs in the root of the checkout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "common/base/cat.h"
#include "common/dialects/openai/known_fields.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/error.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Row {
  std::string endpoints;
  std::string text;
};

// Rows of the page's tables of fields: "| `name` | endpoints | text |".
std::map<std::string, Row> PageRows() {
  std::map<std::string, Row> rows;
  std::istringstream page(ReadFile("services/gateway/API.md"));
  const std::regex row(
      R"(\| `([a-z_]+)` \| (chat|completions|both) \| (.*) \|)");
  std::string line;
  std::smatch match;
  while (std::getline(page, line)) {
    if (!std::regex_match(line, match, row)) continue;
    EXPECT_TRUE(rows.emplace(match[1], Row{match[2], match[3]}).second)
        << match[1] << " has two rows";
  }
  return rows;
}

std::string EndpointsOf(const openai::KnownField& field) {
  if (field.chat && field.completions) return "both";
  return field.chat ? "chat" : "completions";
}

TEST(GatewayApiPageTest, EveryKnownFieldHasItsRow) {
  const auto rows = PageRows();
  std::set<std::string> known;
  for (const openai::KnownField& field : openai::KnownFields()) {
    const std::string name(field.name);
    known.insert(name);
    const auto row = rows.find(name);
    ASSERT_NE(row, rows.end()) << name << " is not on the page";
    EXPECT_EQ(row->second.endpoints, EndpointsOf(field)) << name;
    if (field.use == openai::FieldUse::kIgnored) {
      EXPECT_THAT(row->second.text, HasSubstr("no effect")) << name;
    }
    if (field.use == openai::FieldUse::kUnbuilt) {
      EXPECT_THAT(row->second.text, HasSubstr("else refused")) << name;
    }
  }
  for (const auto& [name, row] : rows) {
    EXPECT_TRUE(known.contains(name)) << name << " is on the page alone";
  }
}

TEST(GatewayApiPageTest, NothingIsReadThatIsNotKnown) {
  // Those of /tokenize and its kin.
  std::set<std::string> known = {"add_special",   "content",
                                 "parse_special", "return_token_strs",
                                 "tokens",        "with_pieces"};
  for (const openai::KnownField& field : openai::KnownFields())
    known.emplace(field.name);
  const std::regex read(R"(\bin\.\w+\(\s*"(\w+)\")");
  size_t reads = 0;
  for (const char* file :
       {"chat_fields.cc", "common_fields.cc", "grammar_fields.cc", "parse.cc",
        "reasoning_fields.cc", "tool_fields.cc"}) {
    const std::string source = ReadFile(Cat("common/dialects/openai/", file));
    for (std::sregex_iterator at(source.begin(), source.end(), read), end;
         at != end; ++at, ++reads) {
      EXPECT_TRUE(known.contains((*at)[1])) << (*at)[1] << " in " << file;
    }
  }
  const auto all = openai::KnownFields();
  const auto built = std::count_if(
      all.begin(), all.end(),
      [](const auto& field) { return field.use == openai::FieldUse::kBuilt; });
  EXPECT_GT(reads, static_cast<size_t>(built) / 2)
      << "the pattern finds what is read";
}

// A value of a type that no field takes.
TEST(GatewayApiPageTest, EveryBuiltFieldIsReadAndRefusedByName) {
  for (const openai::KnownField& field : openai::KnownFields()) {
    if (field.use == openai::FieldUse::kIgnored) continue;
    SCOPED_TRACE(field.name);
    const std::string value =
        Cat("{\"", field.name, "\":[{\"?\":true}],\"stream\":true,");
    const std::string chat =
        "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    const std::string completion = "\"prompt\":\"a\"}";
    Status status;
    if (field.chat) {
      status = openai::ParseChatRequest(value + chat, 100).status();
    } else {
      status = openai::ParseCompletionRequest(value + completion, 100).status();
    }
    if (field.name == "messages" || field.name == "prompt" ||
        field.name == "stream") {
      continue;  // the body has them already, and the last one counts
    }
    EXPECT_EQ(serving::ToApiError(status).param.value_or("accepted"),
              field.name);
  }
}

}  // namespace
}  // namespace sluice::gateway
