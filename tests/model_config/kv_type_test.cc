// What keys and values are kept in, by --kv-type and the model's weights.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"
#include "tests/testing/golden_model.h"

namespace sluice {
namespace {

using kernels::WeightType;

constexpr KvChoice kAuto = std::nullopt;

WeightFormatSet Formats(std::initializer_list<WeightType> types) {
  WeightFormatSet formats;
  for (const WeightType type : types) formats.Add(type);
  return formats;
}

TEST(KvTypeTest, AutoIsBf16BesideQuantisedWeightsAloneAndF32BesideOthers) {
  for (const WeightFormat& format : kWeightFormats) {
    const bool wide =
        format.type == WeightType::kF32 || format.type == WeightType::kBf16;
    const WeightType want = wide ? WeightType::kF32 : WeightType::kBf16;
    EXPECT_EQ(KvTypeOf(kAuto, Formats({format.type})), want) << format.name;
    // A norm in F32 or an embedding in BF16 beside them changes nothing.
    EXPECT_EQ(KvTypeOf(kAuto, Formats({WeightType::kF32, WeightType::kBf16,
                                       format.type})),
              want)
        << format.name;
  }
  EXPECT_EQ(KvTypeOf(kAuto, {}), WeightType::kF32);
}

TEST(KvTypeTest, ANamedTypeIsTakenWhateverTheWeightsAre) {
  for (const WeightType named :
       {WeightType::kF32, WeightType::kBf16, WeightType::kQ8_0}) {
    for (const WeightFormat& format : kWeightFormats) {
      EXPECT_EQ(KvTypeOf(named, Formats({format.type})), named) << format.name;
    }
  }
}

TEST(KvTypeTest, AutoGoesByWhatIsHeldInMemoryAndTheEstimateFollows) {
  struct Case {
    const char* golden;
    WeightsMode weights;
    WeightType want;
  };
  for (const Case& each :
       {Case{"qwen3", WeightsMode::kAuto, WeightType::kF32},
        Case{"qwen3", WeightsMode::kBf16, WeightType::kF32},
        Case{"qwen3", WeightsMode::kQ8_0, WeightType::kBf16},
        Case{"qwen3", WeightsMode::kQ4_0, WeightType::kBf16},
        Case{"llama2-bf16-sharded", WeightsMode::kAuto, WeightType::kF32},
        Case{"gpt_oss-mxfp4", WeightsMode::kAuto, WeightType::kBf16},
        // Widened as they are read: nothing is quantised any more.
        Case{"gpt_oss-mxfp4", WeightsMode::kF32, WeightType::kF32},
        Case{"gpt_oss-mxfp4", WeightsMode::kBf16, WeightType::kF32}}) {
    SCOPED_TRACE(Cat(each.golden, " ", ToString(each.weights)));
    const auto model = OpenModel(testing::GoldenModel(each.golden));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(KvTypeOf(kAuto, *config, **model, each.weights), each.want);
    const auto loads = [&](KvChoice choice) {
      LayerLoadOptions options;
      options.weights = each.weights;
      options.kv_type = choice;
      return LoadsOf(*config, **model, options);
    };
    EXPECT_EQ(loads(kAuto).kv, loads(each.want).kv);
    EXPECT_EQ(loads(kAuto).kv[0], loads(WeightType::kF32).kv[0] /
                                      (each.want == WeightType::kBf16 ? 2 : 1));
  }
}

TEST(KvTypeTest, NamesGoRoundAndAnotherIsRefusedWithTheList) {
  for (const auto& [name, choice] :
       {std::pair("auto", kAuto), std::pair("f32", KvChoice(WeightType::kF32)),
        std::pair("bf16", KvChoice(WeightType::kBf16)),
        std::pair("q8_0", KvChoice(WeightType::kQ8_0))}) {
    const auto parsed = ParseKvChoice(name);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, choice);
    EXPECT_STREQ(ToString(choice), name);
  }
  for (const char* name : {"", "AUTO", "f16", "q4_0"}) {
    const Status status = ParseKvChoice(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(
        Message(status),
        Cat("kv type must be one of auto, f32, bf16, q8_0, got '", name, "'"));
  }
}

}  // namespace
}  // namespace sluice
