// What the gateway takes from a model's folder: sampling where a request says
// nothing, and what ends a text.
#include "common/serving/served_model.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/base/json.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"
#include "tests/testing/test_data.h"
#include "tests/weights/model_files.h"

namespace sluice::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGenerationConfig[] = "generation_config.json";

// A random model of 256 tokens, whose tokenizer names 2 as its end.
class ServedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string command =
        Cat("python3 '", SLUICE_SOURCE_DIR,
            "/tests/testing/make_model.py' --preset tiny --out '", dir_.path(),
            "'");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    auto config =
        ParseJson(testing::ReadFileOrDie(dir_.path() + "/config.json"));
    ASSERT_TRUE(config.ok()) << config.status();
    (*config)["eos_token_id"] = 5;
    dir_.Write("config.json", DumpJson(*config));
  }

  StatusOr<serving::ServedModel> Load(
      std::string_view generation_config) const {
    dir_.Write(kGenerationConfig, generation_config);
    return serving::LoadServedModel(dir_.path(), "tiny");
  }
  std::string ErrorOf(std::string_view generation_config) const {
    const auto model = Load(generation_config);
    return model.ok() ? "" : Message(model.status());
  }

  const testing::TempDir dir_;
};

TEST_F(ServedModelTest, WhatARequestLeavesOutComesFromTheGenerationConfig) {
  const auto model = Load(R"({"temperature":0.3,"top_k":7,"top_p":0.8,
      "min_p":0.1,"repetition_penalty":1.25,"eos_token_id":[7,3]})");
  ASSERT_TRUE(model.ok()) << model.status();
  ScriptedEngine engine(Echo);
  GatewayMetrics metrics{{"tiny"}};
  http::Router router;
  AddDialects(router, {*model, engine.loop(), metrics, nullptr,
                       [] { return serving::Readiness{true}; }});
  router.Route(http::Post("/v1/completions", R"({"prompt":[9]})"));
  router.Route(http::Post("/v1/completions", R"({"prompt":[9],"temperature":1.5,
      "top_k":-1,"top_p":1,"min_p":0,"repetition_penalty":1})"));
  const GenerateRequest left_out = engine.request(0);
  EXPECT_EQ(left_out.sampling.temperature, 0.3f);
  EXPECT_EQ(left_out.sampling.top_k, 7);
  EXPECT_EQ(left_out.sampling.top_p, 0.8f);
  EXPECT_EQ(left_out.sampling.min_p, 0.1f);
  EXPECT_EQ(left_out.sampling.repetition_penalty, 1.25f);
  EXPECT_THAT(left_out.eos_token_ids, ElementsAre(2, 3, 5, 7))
      << "of tokenizer, generation config and config";
  const GenerateRequest given = engine.request(1);
  EXPECT_EQ(given.sampling.temperature, 1.5f);
  EXPECT_EQ(given.sampling.top_k, 0);
  EXPECT_EQ(given.sampling.top_p, 1.0f);
  EXPECT_EQ(given.sampling.min_p, 0.0f);
  EXPECT_EQ(given.sampling.repetition_penalty, 1.0f);
}

TEST_F(ServedModelTest, WithoutAGenerationConfigTheDefaultsAreOpenAis) {
  dir_.Write(kGenerationConfig, "{}");
  std::remove((dir_.path() + "/" + kGenerationConfig).c_str());
  const auto model = serving::LoadServedModel(dir_.path(), "tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->defaults.temperature, 1.0f);
  EXPECT_EQ(model->defaults.top_k, 0);
  EXPECT_EQ(model->defaults.top_p, 1.0f);
  EXPECT_EQ(model->defaults.min_p, 0.0f);
  EXPECT_THAT(model->eos_ids, ElementsAre(2, 5));
}

TEST_F(ServedModelTest, ABadValueOfTheGenerationConfigIsLeftOut) {
  for (const char* config :
       {R"({"temperature":5})", R"({"temperature":"warm"})", R"({"top_k":1.5})",
        R"({"top_p":2})", R"({"min_p":-1})", R"({"repetition_penalty":0})",
        R"({"eos_token_id":[2,999]})", R"({"eos_token_id":"</s>"})"}) {
    SCOPED_TRACE(config);
    dir_.Write(kGenerationConfig, config);
    const auto model = serving::LoadServedModel(dir_.path(), "tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->defaults.temperature, 1.0f);
    EXPECT_EQ(model->defaults.top_k, 0);
    EXPECT_EQ(model->defaults.top_p, 1.0f);
    EXPECT_EQ(model->defaults.min_p, 0.0f);
    EXPECT_EQ(model->defaults.repetition_penalty, 1.0f);
    EXPECT_THAT(model->eos_ids, ElementsAre(2, 5));
  }
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("generation"));
}

TEST_F(ServedModelTest, WithoutANameItIsTheModelsOwn) {
  dir_.Write(kGenerationConfig, "{}");
  const auto name = [](const std::string& path) {
    const auto model = serving::LoadServedModel(path, "");
    return model.ok() ? model->name : Message(model.status());
  };
  const std::filesystem::path folder = dir_.path();
  EXPECT_EQ(name(dir_.path()), folder.filename());
  EXPECT_EQ(name(dir_.path() + "/"), folder.filename());
  const auto snapshots = folder / "hub/models--ada--tiny-1/snapshots";
  std::filesystem::create_directories(snapshots);
  std::filesystem::create_directory_symlink(folder, snapshots / "0a1b2c");
  EXPECT_EQ(name(snapshots / "0a1b2c"), "ada/tiny-1");
  std::filesystem::create_directories(folder / "hub/models--tiny/snapshots");
  std::filesystem::create_directory_symlink(
      folder, folder / "hub/models--tiny/snapshots/0a1b2c");
  EXPECT_EQ(name(folder / "hub/models--tiny/snapshots/0a1b2c/"), "tiny");
}

TEST_F(ServedModelTest, AConfigMayNameItsModel) {
  dir_.Write(kGenerationConfig, "{}");
  auto config = ParseJson(testing::ReadFileOrDie(dir_.path() + "/config.json"));
  ASSERT_TRUE(config.ok());
  const std::string folder =
      std::filesystem::path(dir_.path()).filename().string();
  const struct {
    Json value;
    std::string name;
  } cases[] = {{"org/of-config", "org/of-config"},
               {"", folder},
               {7, folder},
               {"a b", folder},
               {std::string(97, 'a'), folder}};
  for (const auto& [value, wanted] : cases) {
    (*config)["sluice_model_name"] = value;
    dir_.Write("config.json", DumpJson(*config));
    EXPECT_EQ(serving::LoadServedModel(dir_.path(), "")->name, wanted) << value;
    EXPECT_EQ(serving::LoadServedModel(dir_.path(), "given")->name, "given");
  }
}

TEST(DemoModelTest, ItHasANameOfItsOwn) {
  const auto model = serving::LoadServedModel(
      Cat(SLUICE_SOURCE_DIR, "/deploy/demo_model/weights"), "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "sluice-demo");
}

}  // namespace
}  // namespace sluice::gateway
