#include "common/service/describe_flags.h"

#include <absl/flags/usage.h>

#include <algorithm>
#include <utility>

#include "common/base/build_info.h"
#include "common/manual/completion_script.h"
#include "common/manual/manual_page.h"

namespace sluice {
namespace {

// Returns what a flag's value is called: as its type is, where that is plain.
std::string ValueOf(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "";
  if (flag.IsOfType<std::string>()) return "TEXT";
  if (flag.IsOfType<std::vector<std::string>>()) return "TEXT,...";
  return flag.IsOfType<double>() ? "NUMBER" : "N";
}

Program DescribeService(const std::string& service) {
  Program program;
  program.name = "sluice-" + service;
  program.version = std::string(BuildVersion());
  program.section = 8;
  // The first line of the usage tells what the service does, the rest how it
  // is started.
  const std::string usage(absl::ProgramUsageMessage());
  const size_t line = std::min(usage.find('\n'), usage.size());
  program.about = usage.substr(0, line);
  const size_t example = usage.find_first_not_of(" \n", line);
  if (example != std::string::npos) {
    program.sections.emplace_back(
        "example", std::vector<std::string>{usage.substr(example)});
  }
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!IsServiceFlag(*flag)) continue;
    ProgramOption option;
    option.name = OptionNameOf(std::string(name));
    option.value = ValueOf(*flag);
    option.about = std::string(flag->Help());
    const std::string usual = flag->DefaultValue();
    if (!option.value.empty() && !usual.empty()) {
      option.about += Cat(" (default: ", usual, ")");
    }
    if (name == "print") option.choices = {"man", "bash", "zsh", "fish"};
    program.options.push_back(std::move(option));
  }
  std::sort(program.options.begin(), program.options.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  program.sections.push_back(
      {"environment",
       {"An option that the command line leaves out is taken from the "
        "environment, as SLUICE_STAGE_KV_BLOCKS for --kv-blocks of "
        "sluice-stage, and else from the file of --config: a line per option, "
        "as kv-blocks = 64."}});
  program.sections.push_back(
      {"exit status",
       {"0: it was told to end, and did; 1: it could not start, or failed. "
        "The log on standard error says why."}});
  return program;
}

}  // namespace

bool IsServiceFlag(const absl::CommandLineFlag& flag) {
  return flag.Filename().find("absl/flags/") == std::string::npos;
}

std::string OptionNameOf(std::string flag) {
  std::replace(flag.begin(), flag.end(), '_', '-');
  return "--" + flag;
}

StatusOr<std::string> DescribeFlags(const std::string& service,
                                    const std::string& what) {
  const Program program = DescribeService(service);
  if (what == "man") return ManualPage(program);
  auto script = CompletionScript(program, what);
  if (script.ok()) return script;
  return InvalidArgument("--print must be man, bash, zsh or fish, got '", what,
                         "'");
}

}  // namespace sluice
