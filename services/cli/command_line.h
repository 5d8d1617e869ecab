#ifndef SLUICE_SERVICES_CLI_COMMAND_LINE_H_
#define SLUICE_SERVICES_CLI_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

using Words = std::vector<std::string>;

// The command line of `sluice`: one CLI11 command for each word. An option's
// value is the command line's, else its environment variable's (EnvName), else
// the configuration file's, else its default. Threadless.
class CommandLine {
 public:
  // `version` is what --version tells.
  explicit CommandLine(const std::string& version);

  // A command. The caller adds options to the App, which writes into what
  // `run` holds. Without `run` it is a script, deploy/local/`name`, which knows
  // its options itself.
  CLI::App& Add(const std::string& name, const std::string& about,
                std::function<Status()> run);

  // Runs the command that `words`, those behind "sluice", name, or prints the
  // help or the version that they ask for. Options may stand before the
  // command too. INVALID_ARGUMENT for a wrong command line, else what the
  // command returns.
  Status Run(Words words);

  std::string Help() const { return app_.help(); }
  // The commands with their options, for the completions.
  const CLI::App& app() const { return app_; }

 private:
  const CLI::App* Find(const std::string& name) const;
  // `words` with the command first, "--name=value" as two words, and behind
  // "--" all that is no option.
  StatusOr<Words> Ordered(const Words& words) const;
  StatusOr<Words> Checked(const CLI::App& command, const Words& words) const;
  // Writes the options' values, of every source, where the command has them.
  Status Parse(const Words& words);

  CLI::App app_;
  std::map<std::string, std::function<Status()>> commands_;
};

// The environment variable of an option: SLUICE_URL, SLUICE_RUN_DIR and
// SLUICE_API_KEY for all commands, else "--top-k" of chat is
// SLUICE_CHAT_TOP_K.
std::string EnvName(const CLI::App& command, const CLI::Option& option);

// Refuses all but numbers from `low` to `high`; Above refuses `low` as well.
CLI::Validator Within(double low, double high);
CLI::Validator Above(double low, double high);

// An option whose text `parse` turns into a value; its error is the command
// line's.
template <typename T, typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, T& target,
                       Parse parse, const std::string& about) {
  return app.add_option_function<std::string>(
      name,
      [&target, name, parse](const std::string& text) {
        auto value = parse(text);
        if (!value.ok()) {
          throw CLI::ValidationError(name, Message(value.status()));
        }
        target = *std::move(value);
      },
      about);
}

// The script by which `shell` (bash, zsh or fish) completes the command line.
// INVALID_ARGUMENT for another shell.
StatusOr<std::string> CompletionScript(const CLI::App& sluice,
                                       const std::string& shell);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_COMMAND_LINE_H_
