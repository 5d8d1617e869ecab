#include "common/service/service_flags.h"

#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/reflection.h>
#include <absl/flags/usage_config.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "common/base/text_file.h"
#include "common/service/describe_flags.h"
#include "common/service/flag_names.h"
#include "common/service/version_text.h"

ABSL_FLAG(std::string, config, "",
          "TOML file of options, `kv-blocks = 64`; what the command line or "
          "the environment (SLUICE_STAGE_KV_BLOCKS) sets goes before it");
ABSL_FLAG(std::string, print, "",
          "write the manual page (man), or the completion script of a shell "
          "(bash, zsh, fish), and end");

namespace sluice {
namespace {

std::string VariableOf(const std::string& service, const std::string& flag) {
  std::string name = Cat("SLUICE_", service, "_", flag);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return name;
}

// `source` says where `value` was found.
Status SetFlag(absl::CommandLineFlag& flag, const std::string& source,
               const std::string& value) {
  std::string error;
  if (flag.ParseFrom(value, &error)) return OkStatus();
  return InvalidArgument(source, ": ", OptionNameOf(std::string(flag.Name())),
                         " '", value, "': ", error);
}

Status SetFromItem(const std::string& file, const CLI::ConfigItem& item) {
  if (!item.parents.empty() || item.name == "++" || item.name == "--") {
    return InvalidArgument(
        file, ": [",
        item.parents.empty() ? std::string() : item.parents.front(),
        "]: a service's file has no tables");
  }
  std::string name = item.name;
  std::replace(name.begin(), name.end(), '-', '_');
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  if (flag == nullptr || !IsServiceFlag(*flag) || name == "config" ||
      name == "print") {
    return InvalidArgument(file, ": there is no option ", OptionNameOf(name));
  }
  return SetFlag(*flag, file, CLI::detail::join(item.inputs, ","));
}

Status SetFromFile(const std::string& file) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
  std::istringstream in(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(in);
  } catch (const CLI::Error& error) {
    return InvalidArgument(file, ": ", error.what());
  }
  for (const CLI::ConfigItem& item : items) {
    SLUICE_RETURN_IF_ERROR(SetFromItem(file, item));
  }
  return OkStatus();
}

Status SetFromEnvironment(const std::string& service) {
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!IsServiceFlag(*flag)) continue;
    const std::string variable = VariableOf(service, std::string(name));
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    SLUICE_RETURN_IF_ERROR(SetFlag(*flag, variable, value));
  }
  return OkStatus();
}

// Returns the value of --config in argv, else the environment's.
std::string ConfigPath(const std::string& service,
                       const std::vector<std::string>& words) {
  std::string path;
  if (const char* set = std::getenv(VariableOf(service, "config").c_str())) {
    path = set;
  }
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    // Abseil takes one dash too.
    const std::string word =
        words[i].starts_with("--") ? words[i].substr(1) : words[i];
    if (word.starts_with("-config=")) path = word.substr(8);
    if (word == "-config" && i + 1 < words.size()) path = words[i + 1];
  }
  return path;
}

}  // namespace

Status ParseServiceFlags(const std::string& service, int argc, char** argv) {
  absl::FlagsUsageConfig shown;
  shown.contains_help_flags = [](absl::string_view file) {
    return file.find("absl/flags/") == absl::string_view::npos;
  };
  shown.version_string = [service] { return VersionText("sluice-" + service); };
  absl::SetFlagsUsageConfig(shown);
  AcceptDashesInFlags(argc, argv);
  const std::vector<std::string> words(argv + 1, argv + argc);
  // Help needs no file, which may be bad.
  const bool asks = std::any_of(words.begin(), words.end(), [](const auto& w) {
    return w.starts_with("--help") || w.starts_with("--version") ||
           w.starts_with("--print");
  });
  if (!asks) {
    const std::string file = ConfigPath(service, words);
    if (!file.empty()) SLUICE_RETURN_IF_ERROR(SetFromFile(file));
    SLUICE_RETURN_IF_ERROR(SetFromEnvironment(service));
  }
  if (const auto rest = absl::ParseCommandLine(argc, argv); rest.size() > 1) {
    return InvalidArgument("unknown argument '", rest[1], "'; see --help");
  }
  const std::string what = absl::GetFlag(FLAGS_print);
  if (asks && !what.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text,
                            DescribeFlags(service, what));
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    std::_Exit(0);
  }
  return OkStatus();
}

}  // namespace sluice
