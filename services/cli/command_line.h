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

// Returns `status` with another exit code than that of its kind.
Status WithExitCode(Status status, int code);
// Returns the exit code of this process after `status`: 0 for OK, the code of
// WithExitCode, 2 for INVALID_ARGUMENT, else 1.
int ExitCodeOf(const Status& status);

// The command line of `sluice`: one CLI11 command per word. An option's value
// is the command line's, else its environment variable's (EnvName), else the
// configuration file's, else its default. Threadless.
class CommandLine {
 public:
  // --version prints `version`, which ends with a new line.
  explicit CommandLine(const std::string& version);

  // Adds a command. The caller adds options to the App, which write to objects
  // that `run` holds. Without `run` the command is the launcher's (launcher.h),
  // with options of its own.
  CLI::App& Add(const std::string& name, const std::string& about,
                std::function<Status()> run);

  // Adds the command `command`-`name`, which is also written as two words.
  CLI::App& AddPart(const std::string& command, const std::string& name,
                    const std::string& about, std::function<Status()> run) {
    return Add(command + "-" + name, about, std::move(run));
  }

  // Words behind "--" of the command `name` are written to `rest`, for the
  // launcher's `up`; those of other commands are arguments.
  void TakeUpOptions(const std::string& name, Words& rest) {
    up_options_[name] = &rest;
  }

  // Runs the command of `words` (those behind "sluice"), or prints the
  // requested help or version. Options may stand before the command.
  // INVALID_ARGUMENT for a wrong command line, else the command's status.
  Status Run(Words words);

  // Leaves a command out of help, pages and completions.
  static void Hide(CLI::App& command) { command.group(""); }

  const std::string& version() const { return version_; }
  std::string Help() const { return app_.help(); }
  // Returns the commands with their options, for completions.
  const CLI::App& app() const { return app_; }

 private:
  const CLI::App* Find(const std::string& name) const;
  // Returns the command that begins at words[at]: the word, or a part of that
  // command where the next word names one.
  std::string NameAt(const Words& words, size_t at) const;
  // Returns `words` with the command first, "--name=value" as two words, and
  // the words that are no options behind "--".
  StatusOr<Words> Ordered(const Words& words) const;
  StatusOr<Words> Checked(const CLI::App& command, const Words& words) const;
  // Writes the options' values, from every source, to the command's objects.
  Status Parse(const Words& words);

  const std::string version_;
  CLI::App app_;
  std::map<std::string, std::function<Status()>> commands_;
  std::map<std::string, Words*> up_options_;
};

// Returns an option's environment variable: SLUICE_URL, SLUICE_RUN_DIR and
// SLUICE_API_KEY for all commands, else "--top-k" of chat is SLUICE_CHAT_TOP_K.
std::string EnvName(const CLI::App& command, const CLI::Option& option);

// Refuses all but numbers from `low` to `high`; Above refuses `low`, too.
CLI::Validator Within(double low, double high);
CLI::Validator Above(double low, double high);

// Adds an option whose text `parse` turns into a value. An error of `parse` is
// an error of the command line.
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

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_COMMAND_LINE_H_
