#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/tools/load/server_queries.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "tests/http/one_answer.h"

namespace sluice::cli {
namespace {

using http::testing::HttpAnswer;
using http::testing::OneAnswer;

// What `sluice status` prints of a cluster with one gateway, which is dead
// but for its metrics.
std::string StatusText(const OneAnswer& metrics, Words words) {
  const std::string folder = Cat(::testing::TempDir(), "status-", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/cluster.json")
      << R"({"url":"http://127.0.0.1:1","model":"m","processes":[)"
      << R"({"role":"gateway","pid":0,"metrics_address":"127.0.0.1:)"
      << metrics.url().port << "\"}]}";
  words.insert(words.begin(), {"status", "--run-dir", folder});
  CommandLine sluice("0");
  AddStatus(sluice);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(sluice.Run(words).code(), StatusCode::kFailedPrecondition);
  std::filesystem::remove_all(folder);
  return ::testing::internal::GetCapturedStdout();
}

TEST(StatusCommandTest, TheKeyIsShownToTheGatewaysMetrics) {
  OneAnswer metrics(
      HttpAnswer("200 OK", "# HELP x\nvllm:num_requests_running{a=\"b\"} 3\n"));
  const std::string text = StatusText(metrics, {"--api-key", "secret"});
  EXPECT_NE(metrics.Request().find("Bearer secret"), std::string::npos)
      << metrics.Request();
  EXPECT_NE(text.find("requests running       3"), std::string::npos) << text;
}

TEST(StatusCommandTest, ARefusalIsPrintedInsteadOfBlanks) {
  OneAnswer metrics(HttpAnswer("401 Unauthorized",
                               R"({"error":{"message":"a key is needed"}})"));
  const std::string text = StatusText(metrics, {});
  EXPECT_NE(text.find("401: a key is needed"), std::string::npos) << text;
  EXPECT_EQ(text.find("requests running"), std::string::npos) << text;
}

TEST(MetricsTextTest, SamplesAreSummedOverTheirLabels) {
  EXPECT_EQ(
      load::ParseMetrics("# TYPE a gauge\na{x=\"1\"} 2\na{x=\"2\"} 3\nb 1\n"),
      (load::Metrics{{"a", 5}, {"b", 1}}));
}

}  // namespace
}  // namespace sluice::cli
