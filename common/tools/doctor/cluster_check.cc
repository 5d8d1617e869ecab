#include "common/tools/doctor/cluster_check.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/base/json_member.h"

namespace sluice::doctor {
namespace {

// Of the end of a log, which may be long.
constexpr std::streamoff kLogTail = 1 << 16;
constexpr size_t kMostOfLine = 400;

// What a stage in a state that is not ready needs; see /cluster's `state`.
struct StateAdvice {
  const char* state;
  const char* advice;
};
constexpr StateAdvice kAdvice[] = {
    {"connecting",
     "no process answers at this address: is it started, are address, firewall "
     "and certificates right?"},
    {"loading", "it reads its weights: wait, the log tells how far it is"},
    {"handshaking", "wait; if it stays so, versions or models differ"},
    {"suspect",
     "it has been silent: a stopped process, a full machine or a bad "
     "network"},
    {"draining", "it was told to end: start it again"},
    {"lost", "it died or its network did: start it again, or a spare"},
    {"refused",
     "it runs another version, model or options than the gateway: start all "
     "with the same ones"}};

std::string AdviceOf(const std::string& state) {
  for (const StateAdvice& one : kAdvice) {
    if (state == one.state) return one.advice;
  }
  return "see its log";
}

Findings JudgeProcesses(const ClusterFacts& facts) {
  Findings findings;
  for (const KnownProcess& process : facts.processes) {
    if (process.running) continue;
    const std::string said = LastComplaint(process.log);
    findings.push_back(Problem(
        process.name, Cat("is dead", said.empty() ? "" : "; it said: ", said),
        process.log.empty() ? "start it again"
                            : Cat("start it again; its log is ", process.log)));
  }
  return findings;
}

// Returns a finding for every stage that is not ready.
Findings JudgeStages(const Json& cluster) {
  Findings findings;
  for (const Json& stage : FindList(cluster, "stages")) {
    const std::string state = FindText(stage, "state");
    if (state == "ready") continue;
    const std::string message = FindText(stage, "message");
    findings.push_back(
        Problem(Cat("stage ", FindInt(stage, "index").value_or(-1)),
                Cat(state, " at ", FindText(stage, "address"),
                    message.empty() ? "" : ": ", message),
                AdviceOf(state)));
  }
  return findings;
}

bool Complains(const std::string& line) {
  constexpr const char* kWords[] = {
      "error",   "Error",        "ERROR",     "warning",
      "WARNING", "Check failed", "terminate", "\"level\":\"error\""};
  return std::any_of(std::begin(kWords), std::end(kWords), [&](auto* word) {
    return line.find(word) != std::string::npos;
  });
}

}  // namespace

std::string LastComplaint(const std::string& log) {
  std::ifstream in(log);
  in.seekg(0, std::ios::end);
  const std::streamoff size = in.tellg();
  if (size <= 0) return "";
  in.seekg(std::max<std::streamoff>(0, size - kLogTail));
  std::string last;
  std::string complaint;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    if (Complains(line)) complaint = line;
    last = std::move(line);
  }
  return (complaint.empty() ? last : complaint).substr(0, kMostOfLine);
}

Findings JudgeCluster(const ClusterFacts& facts) {
  Findings findings = JudgeProcesses(facts);
  if (facts.ready.status == 0) {
    findings.push_back(Problem(
        "gateway", Cat(facts.url, " does not answer: ", facts.ready.body),
        "is it started, and is this its address?"));
    return findings;
  }
  if (facts.ready.status == 200) {
    findings.push_back(Fine("cluster", Cat(facts.url, " is ready")));
    return findings;
  }
  const auto cluster = ParseJson(facts.cluster.body);
  Findings stages;
  if (facts.cluster.status == 200 && cluster.ok()) {
    stages = JudgeStages(*cluster);
  }
  findings.insert(findings.end(), stages.begin(), stages.end());
  // /readyz names what the states do not: a stage that stands still, experts
  // without a host.
  findings.push_back(
      Problem("cluster", Cat(facts.url, " is not ready: ", facts.ready.body),
              facts.cluster.status == 401
                  ? "with --api-key the stages are named"
                  : "requests wait until every stage is ready"));
  return findings;
}

}  // namespace sluice::doctor
