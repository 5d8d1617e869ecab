#include <gtest/gtest.h>

#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "tests/http/one_answer.h"

namespace sluice::cli {
namespace {

using http::testing::HttpAnswer;
using http::testing::OneAnswer;

Status Probe(const Words& words) {
  CommandLine sluice("0");
  AddProbe(sluice);
  Words all = {"probe"};
  all.insert(all.end(), words.begin(), words.end());
  return sluice.Run(all);
}

std::string Address(const OneAnswer& server, const std::string& path) {
  return "http://127.0.0.1:" + server.url().port + path;
}

TEST(ProbeCommandTest, AReadyProcessIsASuccess) {
  OneAnswer server(HttpAnswer("200 OK", R"({"ready":true})"));
  EXPECT_TRUE(Probe({Address(server, "/livez")}).ok());
  EXPECT_EQ(server.Request().rfind("GET /livez ", 0), 0u) << server.Request();
}

TEST(ProbeCommandTest, WithoutAPathReadinessIsAsked) {
  OneAnswer server(HttpAnswer("200 OK", "{}"));
  EXPECT_TRUE(Probe({Address(server, "")}).ok());
  EXPECT_EQ(server.Request().rfind("GET /readyz ", 0), 0u) << server.Request();
}

TEST(ProbeCommandTest, AnotherStatusIsAFailureWithTheReason) {
  OneAnswer server(HttpAnswer("503 Service Unavailable", "stage 1 is lost"));
  const Status status = Probe({Address(server, "/readyz")});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("503"), std::string::npos) << status;
  EXPECT_NE(status.message().find("stage 1 is lost"), std::string::npos)
      << status;
}

TEST(ProbeCommandTest, AProcessThatDoesNotListenIsAFailure) {
  const Status status = Probe({"http://127.0.0.1:1/readyz"});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
}

TEST(ProbeCommandTest, AnAddressIsNeededAndATimeoutHasLimits) {
  EXPECT_EQ(Probe({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Probe({"http://127.0.0.1:1/", "--timeout", "0"}).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::cli
