#include "common/tools/doctor/cluster_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/cat.h"

namespace sluice::doctor {
namespace {

using ::testing::HasSubstr;

std::string Stages(const std::string& state, const std::string& message) {
  return Cat(R"({"stages": [{"index": 0, "address": "a:1", "state": "ready"},)",
             R"({"index": 1, "address": "b:1", "state": ")", state,
             R"(", "message": ")", message, "\"}]}");
}

ClusterFacts NotReady(const std::string& state, const std::string& message) {
  ClusterFacts facts;
  facts.url = "http://g";
  facts.processes = {{"gateway", true, ""}, {"stage 1", true, ""}};
  facts.ready = {503, "stage 1 (b:1): " + state};
  facts.cluster = {200, Stages(state, message)};
  return facts;
}

TEST(JudgeClusterTest, AReadyClusterIsFine) {
  ClusterFacts facts = NotReady("ready", "");
  facts.ready = {200, "ready"};
  const Findings findings = JudgeCluster(facts);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kFine);
}

TEST(JudgeClusterTest, AStageIsNamedWithItsStateAndWhatToDo) {
  for (const auto& [state, advice] : {std::pair("connecting", "firewall"),
                                      {"loading", "reads its weights"},
                                      {"refused", "another version"},
                                      {"lost", "start it again"},
                                      {"suspect", "silent"},
                                      {"draining", "told to end"},
                                      {"handshaking", "wait"},
                                      {"new", "see its log"}}) {
    const Findings findings = JudgeCluster(NotReady(state, "because"));
    ASSERT_EQ(findings.size(), 2u) << state;
    EXPECT_EQ(findings[0].area, "stage 1");
    EXPECT_EQ(findings[0].level, Level::kProblem);
    EXPECT_EQ(findings[0].what, Cat(state, " at b:1: because"));
    EXPECT_THAT(findings[0].advice, HasSubstr(advice));
    EXPECT_EQ(findings[1].area, "cluster");
  }
}

TEST(JudgeClusterTest, AStageThatStandsStillIsInTheReason) {
  ClusterFacts facts = NotReady("ready", "");
  facts.ready.body = "stage 1 (b:1): answers and does no step";
  const Findings findings = JudgeCluster(facts);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].what, HasSubstr("answers and does no step"));
}

TEST(JudgeClusterTest, WithoutAKeyTheReasonIsWhatThereIs) {
  ClusterFacts facts = NotReady("lost", "");
  facts.cluster = {401, "a key is needed"};
  const Findings findings = JudgeCluster(facts);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].advice, HasSubstr("--api-key"));
  facts.cluster = {200, "no JSON"};
  EXPECT_EQ(JudgeCluster(facts).size(), 1u);
}

TEST(JudgeClusterTest, DeadProcessesSayTheirLastComplaint) {
  const std::string log =
      (std::filesystem::temp_directory_path() / Cat("doctor-", ::getpid()))
          .string();
  std::ofstream(log) << "info: loading\nerror: out of memory\ninfo: bye\n\n";
  ClusterFacts facts = NotReady("lost", "");
  facts.processes[1] = {"stage 1", false, log};
  facts.ready = {0, "connection refused"};
  const Findings findings = JudgeCluster(facts);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].what, "is dead; it said: error: out of memory");
  EXPECT_THAT(findings[0].advice, HasSubstr(log));
  EXPECT_THAT(findings[1].what, HasSubstr("does not answer: connection"));
  std::ofstream(log) << "one\ntwo\n";
  EXPECT_EQ(LastComplaint(log), "two");
  std::ofstream(log) << "";
  EXPECT_EQ(LastComplaint(log), "");
  std::filesystem::remove(log);
  EXPECT_EQ(LastComplaint(log), "");
}

}  // namespace
}  // namespace sluice::doctor
