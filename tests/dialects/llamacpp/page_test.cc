// services/gateway/LLAMACPP.md has a row of every known field, and no other.
// Runs in the root of the checkout.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "common/dialects/llamacpp/known_fields.h"

namespace sluice::llamacpp {
namespace {

TEST(LlamacppPageTest, HasARowOfEveryField) {
  std::ifstream page("services/gateway/LLAMACPP.md");
  ASSERT_TRUE(page.is_open());
  const std::regex row(R"(\| `([a-z_]+)` \| (obeyed|no effect|refused) \|.*)");
  std::map<std::string, std::string> rows;
  std::string line;
  std::smatch match;
  while (std::getline(page, line)) {
    if (!std::regex_match(line, match, row)) continue;
    EXPECT_TRUE(rows.emplace(match[1], match[2]).second) << match[1];
  }
  for (const serving::RequestField& field : KnownFields()) {
    const std::string name(field.name);
    const char* use = field.use == serving::FieldUse::kBuilt     ? "obeyed"
                      : field.use == serving::FieldUse::kIgnored ? "no effect"
                                                                 : "refused";
    EXPECT_EQ(rows[name], use) << name;
    rows.erase(name);
  }
  for (const auto& [name, use] : rows) ADD_FAILURE() << name << " is not read";
}

}  // namespace
}  // namespace sluice::llamacpp
