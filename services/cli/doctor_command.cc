#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/http/http_client.h"
#include "common/tools/doctor/cluster_check.h"
#include "common/tools/doctor/machine_check.h"
#include "common/tools/doctor/setup_check.h"
#include "common/weights/packed_store.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

struct DoctorOptions {
  EndpointOptions endpoint;
  std::string model;
  int port = 8080;
  doctor::TlsFiles tls;
  bool json = false;
};

std::string VariableOr(const char* name, const std::string& other) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? other : value;
}

doctor::PageAnswer AnswerOf(const http::BaseUrl& base, const char* path) {
  const auto answer = http::HttpGet(base, path, std::chrono::seconds(2));
  if (!answer.ok()) return {0, Message(answer.status())};
  return {answer->status, answer->status == 200
                              ? answer->body
                              : http::ErrorText(answer->status, answer->body)};
}

// Adds what is found of the cluster that is named, or of the default one if
// there is one.
Status AddCluster(const DoctorOptions& options, doctor::Findings& findings) {
  doctor::ClusterFacts facts;
  facts.url = options.endpoint.url;
  const bool named = !facts.url.empty() || !options.endpoint.run_dir.empty();
  if (facts.url.empty()) {
    const auto file = ReadClusterFile(options.endpoint.run_dir);
    if (!file.ok() && !named) {
      findings.push_back(doctor::Fine("cluster", "none runs here"));
      return OkStatus();
    }
    SLUICE_RETURN_IF_ERROR(file.status());
    facts.url = file->url;
    for (const ClusterProcess& process : file->processes) {
      const std::string name = process.role == "gateway"
                                   ? process.role
                                   : Cat(process.role, " ", process.index);
      facts.processes.push_back({name, process.IsRunning(), process.log});
    }
  }
  SLUICE_ASSIGN_OR_RETURN(http::BaseUrl base, http::BaseUrl::Parse(facts.url));
  base.api_key = options.endpoint.api_key;
  facts.ready = AnswerOf(base, "/readyz");
  facts.cluster = AnswerOf(base, "/cluster");
  for (doctor::Finding& finding : doctor::JudgeCluster(facts)) {
    findings.push_back(std::move(finding));
  }
  return OkStatus();
}

StatusOr<doctor::Findings> Examine(const DoctorOptions& options) {
  doctor::MachineFacts facts = doctor::ReadMachineFacts();
  doctor::MeasureMachine(facts);
  doctor::Findings findings = doctor::JudgeMachine(facts);
  const auto add = [&findings](doctor::Findings more) {
    for (doctor::Finding& finding : more) {
      findings.push_back(std::move(finding));
    }
  };
  add({doctor::CheckDisk(
      VariableOr("XDG_CACHE_HOME", VariableOr("HOME", "/tmp") + "/.cache"))});
  std::vector<std::string> packed = weights::UsersPackedFolders();
  for (const auto& folder : weights::PackedFoldersAt(options.model)) {
    packed.push_back(folder);
  }
  add({doctor::CheckPacked(packed)});
  add(doctor::CheckTools(VariableOr("PATH", "")));
  add({doctor::CheckPort(options.port)});
  if (!options.model.empty()) {
    add(doctor::CheckModel(options.model, std::min(facts.available_memory,
                                                   facts.groups.memory_left)));
  }
  add(doctor::CheckTls(options.tls, static_cast<double>(std::time(nullptr))));
  SLUICE_RETURN_IF_ERROR(AddCluster(options, findings));
  return findings;
}

void PrintText(const doctor::Findings& findings) {
  constexpr const char* kLevels[] = {"ok", "note", "PROBLEM"};
  for (const doctor::Finding& finding : findings) {
    std::printf("%-8s %-16s %s\n", kLevels[static_cast<int>(finding.level)],
                finding.area.c_str(), finding.what.c_str());
    if (finding.advice.empty()) continue;
    std::printf("%-25s -> %s\n", "", finding.advice.c_str());
  }
}

void PrintJson(const doctor::Findings& findings) {
  constexpr const char* kLevels[] = {"ok", "note", "problem"};
  Json list = Json::array();
  for (const doctor::Finding& finding : findings) {
    list.push_back({{"level", kLevels[static_cast<int>(finding.level)]},
                    {"area", finding.area},
                    {"what", finding.what},
                    {"advice", finding.advice}});
  }
  std::printf("%s\n", DumpJson({{"findings", list}}).c_str());
}

Status RunDoctor(const DoctorOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const doctor::Findings findings, Examine(options));
  options.json ? PrintJson(findings) : PrintText(findings);
  const auto problems = std::count_if(
      findings.begin(), findings.end(), [](const doctor::Finding& finding) {
        return finding.level == doctor::Level::kProblem;
      });
  if (problems == 0) return OkStatus();
  return FailedPrecondition(problems, problems == 1 ? " problem" : " problems");
}

}  // namespace

void AddDoctor(CommandLine& sluice) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App& doctor = sluice.Add(
      "doctor", "what this machine can do, what is missing, what is wrong",
      [options] { return RunDoctor(*options); });
  doctor.add_option("--model", options->model,
                    "is it readable, and does it fit?");
  doctor
      .add_option("--port", options->port,
                  "that the gateway will listen on (8080)")
      ->check(Within(1, 65535));
  doctor.add_option("--tls-cert", options->tls.certificate,
                    "of the processes: is it valid?");
  doctor.add_option("--tls-key", options->tls.key, "is it the certificate's?");
  doctor.add_option("--tls-ca", options->tls.authority, "has it signed it?");
  doctor.add_flag("--json", options->json, "the findings as JSON");
  AddEndpoint(doctor, options->endpoint);
}

}  // namespace sluice::cli
