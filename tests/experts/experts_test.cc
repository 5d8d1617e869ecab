// Stages and hosts of experts over gRPC, in one process: the same tokens
// wherever experts are.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/experts/experts_fixture.h"
#include "tests/testing/representative.h"

namespace sluice::testing {
namespace {

// Where experts are.
struct Cut {
  const char* name;
  int hosts;
  std::vector<PlacedEighths> entries;
  bool is_short;  // also in the default run
};

const std::vector<Cut>& Cuts() {
  static const std::vector<Cut> cuts = {
      {"half remote", 1, {{0, 3, {}}, {4, 7, {"a"}}}, true},
      {"uneven", 2, {{0, 0, {"b"}}, {1, 2, {}}, {3, 7, {"a"}}}, true},
      {"all on one", 1, {{0, 7, {"a"}}}, false},
      {"all on two", 2, {{0, 3, {"a"}}, {4, 7, {"b"}}}, false},
      {"all on three", 3, {{0, 2, {"a"}}, {3, 5, {"b"}}, {6, 7, {"c"}}}, false},
      {"replicated", 3, {{0, 3, {"a", "b"}}, {4, 7, {"b", "c"}}}, true},
  };
  return cuts;
}

// A golden model, or the one that the project trained: it lies in the tree,
// where tests run.
std::string PathOf(std::string_view model) {
  return model == "demo_model" ? "deploy/demo_model/weights"
                               : GoldenModel(model);
}

class OneHashTest : public ::testing::TestWithParam<const char*> {};

TEST_P(OneHashTest, TokensAndLogprobsAreThoseOfAllExpertsOnTheStage) {
  const std::string path = PathOf(GetParam());
  const std::vector<Ask> asks = Asks(path);
  for (const Cut& cut : Cuts()) {
    if (!IsLong() && !cut.is_short) continue;
    auto hosts = ExpertHosts::Start({path, cut.entries, cut.hosts});
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    Clients clients(path, (*hosts)->placement(), InfoOf(path));
    ASSERT_TRUE(clients->WaitReady(Clock::now() + kLimit).ok())
        << clients->Ready();
    for (const int32_t stages : {1, 2, 3}) {
      for (const int32_t ranks : {1, 2}) {
        // The default run: one cut of the stage per place of the experts.
        if (!IsLong() && (stages != cut.hosts || ranks != 1 + stages % 2)) {
          continue;
        }
        PipelineOptions options = {StageOf(path, ranks), stages};
        options.stage.placement = (*hosts)->placement();
        options.stage.expert_transport = &*clients;
        auto pipeline = Pipeline::Load(options);
        ASSERT_TRUE(pipeline.ok()) << pipeline.status();
        for (const int32_t batch : {1, 8}) {
          SCOPED_TRACE(Cat(cut.name, ", ", stages, " stages, ", ranks,
                           " ranks, batch ", batch));
          ExpectSame((*pipeline)->Generate(asks, {1 << 20, batch}),
                     AllLocal(path));
        }
      }
    }
    EXPECT_GT(clients.Metric("sluice_stage_expert_batches_total"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OneHashTest,
                         ::testing::Values("glm4_moe-air", "glm4_moe-46",
                                           "gpt_oss-mxfp4", "demo_model"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice::testing
