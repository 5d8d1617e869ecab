#ifndef SLUICE_SERVICES_CLI_COMMAND_TABLE_H_
#define SLUICE_SERVICES_CLI_COMMAND_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "services/cli/arguments.h"
#include "services/cli/commands.h"

namespace sluice::cli {

// An option of a command: "--name VALUE", or "--name" alone where `value` is
// null.
struct OptionSpec {
  const char* name;
  const char* value;
  const char* about;
};

// One command: what it takes, and what its --help says.
struct CommandSpec {
  const char* name;
  const char* words;  // positional ones, for people
  const char* about;
  Status (*run)(const Words& words);
  std::vector<OptionSpec> options;
  const char* help = nullptr;  // in the place of what the options make
  // Its options are those of a script, which also has the --help.
  bool is_script = false;
};

const std::vector<CommandSpec>& Commands();
// Null for an unknown name.
const CommandSpec* FindCommand(std::string_view name);

// "sluice --help", and "sluice COMMAND --help".
std::string UsageText();
std::string HelpText(const CommandSpec& command);

// Whether --help or -h stands among a command's words, other than as the value
// of an option or behind "--".
bool AsksForHelp(const CommandSpec& command, const Words& words);

// The words of `command`, which is one of Commands(). INVALID_ARGUMENT for an
// option that it does not have names the nearest that it has.
StatusOr<Arguments> ParseArguments(const char* command, const Words& words);

// Options may stand before the command, too: moves them behind it. `words`
// begin with the first behind "sluice". INVALID_ARGUMENT for an option that no
// command has.
StatusOr<Words> CommandFirst(const Words& words);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_COMMAND_TABLE_H_
