// The commands completion, man and words, and the list of all commands.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/text_file.h"
#include "common/manual/completion_script.h"
#include "common/manual/manual_page.h"
#include "common/tools/hub/hub_cache.h"
#include "services/cli/clusters.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/describe.h"
#include "services/cli/launcher.h"

namespace sluice::cli {
namespace {

// Returns the commands and options of sluice, with the options of its launcher
// where there is a launcher.
StatusOr<Program> DescribeAll(const CommandLine& sluice) {
  const bool launcher = LauncherCommand({"up"}).ok();
  return DescribeProgram(sluice.app(), sluice.version(), launcher);
}

Status WriteScript(const CommandLine& sluice, const std::string& shell) {
  SLUICE_ASSIGN_OR_RETURN(const Program program, DescribeAll(sluice));
  SLUICE_ASSIGN_OR_RETURN(const std::string script,
                          CompletionScript(program, shell));
  std::fputs(script.c_str(), stdout);
  return OkStatus();
}

// Writes the page of sluice, or of a command, to stdout; with `folder` each of
// them to a file there.
Status WritePages(const CommandLine& sluice, const std::string& name,
                  const std::string& folder) {
  SLUICE_ASSIGN_OR_RETURN(const Program program, DescribeAll(sluice));
  if (folder.empty() && name.empty()) {
    std::fputs(ManualPage(program).c_str(), stdout);
    return OkStatus();
  }
  if (!folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    SLUICE_RETURN_IF_ERROR(
        WriteTextFile(folder + "/sluice.1", ManualPage(program)));
  }
  for (const ProgramCommand& command : program.commands) {
    const std::string page = ManualPage(program, command);
    if (!folder.empty()) {
      SLUICE_RETURN_IF_ERROR(
          WriteTextFile(Cat(folder, "/sluice-", command.name, ".1"), page));
    } else if (command.name == name) {
      std::fputs(page.c_str(), stdout);
      return OkStatus();
    }
  }
  if (!folder.empty()) return OkStatus();
  return InvalidArgument("there is no command '", name, "'");
}

std::set<std::string> WordsOf(const std::string& kind) {
  std::set<std::string> words;
  std::vector<std::string> problems;
  if (kind == "models") {
    words.insert("default");
    const auto models = HubCache(HubSettingsOfEnvironment().cache).List();
    if (models.ok()) {
      for (const CachedModel& model : *models) words.insert(model.repository);
    }
    return words;
  }
  for (const KnownCluster& cluster : ListClusters(problems)) {
    if (kind == "clusters") {
      words.insert(cluster.name);
      continue;
    }
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(cluster.run_dir, error)) {
      if (entry.path().extension() == ".log") {
        words.insert(entry.path().stem().string());
      }
    }
  }
  return words;
}

void AddWords(CommandLine& sluice) {
  const auto kind = std::make_shared<std::string>();
  CLI::App& command =
      sluice.Add("words", "the words that completions offer", [kind] {
        for (const std::string& word : WordsOf(*kind)) {
          std::printf("%s\n", word.c_str());
        }
        return OkStatus();
      });
  command.add_option("KIND", *kind, "what they name")
      ->required()
      ->check(CLI::IsMember({"models", "clusters", "processes"}));
  CommandLine::Hide(command);
}

void AddMan(CommandLine& sluice) {
  struct Options {
    std::string command, out;
  };
  const auto options = std::make_shared<Options>();
  CLI::App& man = sluice.Add(
      "man", "the manual page of a command, in roff", [options, &sluice] {
        return WritePages(sluice, options->command, options->out);
      });
  man.add_option("COMMAND", options->command, "which; none: sluice itself");
  man.add_option("--out", options->out, "a folder, for the pages of all");
  CommandLine::Hide(man);
}

}  // namespace

void AddCompletion(CommandLine& sluice) {
  const auto shell = std::make_shared<std::string>();
  sluice
      .Add("completion", "the script by which a shell completes the command",
           [shell, &sluice] { return WriteScript(sluice, *shell); })
      .add_option("SHELL", *shell, "bash, zsh or fish")
      ->type_name("{bash,zsh,fish}")
      ->required();
  AddMan(sluice);
  AddWords(sluice);
}

void AddCommands(CommandLine& sluice) {
  sluice.Add("up", "build if needed and start a cluster", nullptr);
  sluice.Add("down", "drain and stop the cluster of a run folder", nullptr);
  sluice.Add("certificates", "make a cluster's certificates", nullptr);
  AddRun(sluice);
  AddChat(sluice);
  AddPs(sluice);
  AddLogs(sluice);
  AddStatus(sluice);
  AddGenerate(sluice);
  AddBench(sluice);
  AddBenchModel(sluice);
  AddBenchMachine(sluice);
  AddEval(sluice);
  AddTrace(sluice);
  AddInspect(sluice);
  AddConvert(sluice);
  AddHub(sluice);
  AddPacked(sluice);
  AddPlan(sluice);
  AddDoctor(sluice);
  AddProbe(sluice);
  AddResetTerm(sluice);
  AddCompletion(sluice);
}

}  // namespace sluice::cli
