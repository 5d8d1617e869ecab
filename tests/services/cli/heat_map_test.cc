#include "services/cli/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/services/cli/xml_check.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kHost[] = R"({"num_experts": 4, "recent_seconds": 60, "layers": [
  {"layer": 3, "experts": [0, 2], "asks": [90, 10], "recent": [8, 0]},
  {"layer": 5, "experts": [1], "asks": [7], "recent": [0]}]})";

HeatMap Parsed(const std::string& json, bool recent) {
  const auto heat = ParseHeat(json, recent);
  EXPECT_TRUE(heat.ok()) << heat.status();
  return heat.ok() ? *heat : HeatMap();
}

TEST(HeatMapTest, AsksAreReadByLayerAndExpert) {
  const HeatMap recent = Parsed(kHost, true);
  EXPECT_EQ(recent.num_experts, 4);
  EXPECT_EQ(recent.layers.at(3)[0], 8u);
  EXPECT_FALSE(recent.layers.at(3)[1].has_value());
  EXPECT_EQ(Parsed(kHost, false).layers.at(3)[2], 10u);
}

TEST(HeatMapTest, ReplicasAddUpAndOtherHostsFillGaps) {
  HeatMap heat;
  ASSERT_TRUE(AddHeat(Parsed(kHost, false), &heat).ok());
  ASSERT_TRUE(AddHeat(Parsed(kHost, false), &heat).ok());
  ASSERT_TRUE(AddHeat(Parsed(R"({"num_experts": 4, "layers": [
      {"layer": 3, "experts": [1], "asks": [5], "recent": [5]}]})",
                             false),
                      &heat)
                  .ok());
  EXPECT_EQ(heat.layers.at(3)[0], 180u);
  EXPECT_EQ(heat.layers.at(3)[1], 5u);
  const Status other =
      AddHeat(Parsed(R"({"num_experts": 5, "layers": []})", false), &heat);
  EXPECT_THAT(Message(other), HasSubstr("4 experts per layer, one 5"));
}

TEST(HeatMapTest, APictureHasARowPerLayer) {
  EXPECT_EQ(DrawHeat(Parsed(kHost, false), 10),
            "layer  experts 0 to 3\n"
            "    3 |@?.?| 100 asks, 2 of 2 active, skew 1.80\n"
            "    5 |?@??| 7 asks, 1 of 1 active, skew 1.00\n");
  EXPECT_THAT(DrawHeat(Parsed(kHost, true), 10),
              HasSubstr("    5 |? ??| 0 asks, 0 of 1 active, skew 0.00\n"));
  EXPECT_THAT(DrawHeat(Parsed(kHost, false), 2),
              HasSubstr("2 in a column\n    3 |@.|"));
}

TEST(HeatMapTest, TheSvgIsWellFormed) {
  const std::string svg = DrawHeatSvg(Parsed(kHost, false));
  EXPECT_EQ(testing::XmlProblem(svg), "");
  EXPECT_THAT(svg, HasSubstr("layer 3 expert 0: 90"));
}

TEST(HeatMapTest, WhatIsNoHeatIsRefused) {
  const auto why = [](const char* json) {
    return Message(ParseHeat(json, true).status());
  };
  EXPECT_THAT(why("x"), ::testing::Not(""));
  EXPECT_THAT(why("[]"), HasSubstr("num_experts"));
  EXPECT_THAT(why(R"({"num_experts": -1, "layers": []})"), HasSubstr("-1"));
  EXPECT_THAT(why(R"({"num_experts": 4})"), HasSubstr("'layers'"));
  EXPECT_THAT(why(R"({"num_experts": 4, "layers": [{"layer": 1}]})"),
              HasSubstr("'experts' is no list"));
  EXPECT_THAT(why(R"({"num_experts": 4, "layers": [
                  {"layer": 1, "experts": [4], "recent": [1]}]})"),
              HasSubstr("expert 4 of 4"));
  EXPECT_THAT(why(R"({"num_experts": 4, "layers": [
                  {"layer": 1, "experts": [1, 2], "recent": [1]}]})"),
              HasSubstr("2 experts and 1 counts"));
  EXPECT_THAT(why(R"({"num_experts": 4, "layers": [
                  {"layer": 1, "experts": [1], "recent": [-1]}]})"),
              HasSubstr("whole numbers"));
}

}  // namespace
}  // namespace sluice::cli
