// The defaults of transformers' classes: the configs that they write are read,
// and a key that a config leaves out is read as its class has it.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/model_families.h"

namespace sluice {
namespace {

// What tests/golden/class_configs.py wrote.
Json ClassConfigs() {
  std::ifstream file(SLUICE_SOURCE_DIR
                     "/tests/model_config/class_configs.json");
  std::ostringstream text;
  text << file.rdbuf();
  return *ParseJson(text.str());
}

class ClassConfigTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The object that has the text model's keys.
  static Json& TextOf(Json& config) {
    return config.contains("text_config") ? config["text_config"] : config;
  }
};

TEST_P(ClassConfigTest, IsRead) {
  const auto parsed = ParseModelConfig(ClassConfigs()[GetParam()]);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
}

TEST_P(ClassConfigTest, AKeyThatIsLeftOutHasItsDefault) {
  Json config = ClassConfigs()[GetParam()];
  const auto whole = ParseModelConfig(config);
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::vector<std::string> keys;
  for (const auto& [key, value] : TextOf(config).items()) keys.push_back(key);
  for (const std::string& key : keys) {
    if (key == "model_type") continue;
    SCOPED_TRACE(key);
    Json part = config;
    TextOf(part).erase(key);
    // A key without which no model is read may be missing.
    const auto parsed = ParseModelConfig(part);
    if (!parsed.ok()) continue;
    EXPECT_TRUE(*parsed == *whole);
  }
}

std::vector<std::string> ClassesOfConfigs() {
  std::vector<std::string> types;
  const Json configs = ClassConfigs();
  for (const auto& [type, config] : configs.items()) {
    if (config.is_object()) types.push_back(type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, ClassConfigTest,
                         ::testing::ValuesIn(ClassesOfConfigs()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace sluice
