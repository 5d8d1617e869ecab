#include "services/cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "common/manual/nearest_word.h"
#include "services/cli/launcher.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// The payload of a status that has an exit code of its own.
constexpr char kExitCode[] = "sluice.exit_code";

// Options that mean the same to every command.
constexpr std::string_view kShared[] = {"--url", "--run-dir", "--api-key"};

bool TakesValue(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

bool IsHelp(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

// Returns whether the option has a meaning without text: no system prompt, no
// key.
bool MayBeEmpty(std::string_view name) {
  return name == "--system" || name.ends_with("api-key");
}

std::string NameIn(const std::string& word) {
  return word.substr(0, word.find('='));
}

// Returns whether the word has an option's form: "--name", "-x" or "-abc".
bool IsOption(std::string_view word) {
  if (word.starts_with("--")) return true;
  return word.size() > 1 && word[0] == '-' &&
         std::all_of(word.begin() + 1, word.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

// Returns the nearest option of `command`, if one is near, and where to read.
std::string Hint(const CLI::App& command, const std::string& name) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    if (!IsHelp(option->get_name())) known.push_back(option->get_name());
  }
  const std::string meant = NearestWord(name, known);
  return Cat(meant.empty() ? "" : Cat("; did you mean ", meant, "?"),
             "; sluice ", command.get_name(), " --help lists its options");
}

// Returns the variable's value; empty if it is not set.
std::string Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// Returns SLUICE_CONFIG, else the user's file. The current folder has no say: a
// stranger's file could send the user's key to another server.
std::string ConfigFile() {
  std::string path = Environment("SLUICE_CONFIG");
  if (!path.empty()) return path;
  path = Environment("XDG_CONFIG_HOME");
  if (path.empty()) path = Environment("HOME") + "/.config";
  return path + "/sluice.toml";
}

// CLI11's reader of TOML for one command: the command's section, and above all
// sections the shared options. Drops items whose environment variable is set,
// since CLI11 would prefer the file.
class CommandConfig : public CLI::ConfigTOML {
 public:
  // The file does not set option `hidden`.
  CommandConfig(const CLI::App& all, const CLI::App& command,
                std::string hidden)
      : all_(all), command_(command), hidden_(std::move(hidden)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& file) const override {
    std::vector<CLI::ConfigItem> kept;
    for (CLI::ConfigItem& item : CLI::ConfigTOML::from_config(file)) {
      if (item.name == "++" || item.name == "--")
        continue;  // CLI11's marks of sections
      if ("--" + item.name == hidden_) continue;
      const bool shared = item.parents.empty();
      if (!shared && item.parents[0] != command_.get_name()) continue;
      const CLI::Option* option =
          command_.get_option_no_throw("--" + item.name);
      if (option == nullptr && shared && OfAny(item.name)) continue;
      if (option == nullptr) {
        throw CLI::ConfigError(
            Cat("the file of options: there is no ", item.fullname()));
      }
      if (!Environment(EnvName(command_, *option)).empty()) continue;
      item.parents = {command_.get_name()};
      kept.push_back(std::move(item));
    }
    return kept;
  }

 private:
  bool OfAny(const std::string& name) const {
    const auto commands = all_.get_subcommands({});
    return std::any_of(commands.begin(), commands.end(), [&](const auto* one) {
      return one->get_option_no_throw("--" + name) != nullptr;
    });
  }

  const CLI::App& all_;
  const CLI::App& command_;
  const std::string hidden_;
};

Status Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return OkStatus();
}

CLI::Validator NumberThat(std::string about,
                          std::function<bool(double)> holds) {
  return CLI::Validator(
      [about, holds](std::string& text) {
        double value = 0;
        const bool fits =
            CLI::detail::lexical_cast(text, value) && holds(value);
        return fits ? std::string() : Cat("must be ", about, ", got ", text);
      },
      "");
}

}  // namespace

Status WithExitCode(Status status, int code) {
  status.SetPayload(kExitCode, absl::Cord(std::to_string(code)));
  return status;
}

int ExitCodeOf(const Status& status) {
  if (status.ok()) return 0;
  if (const auto code = status.GetPayload(kExitCode)) {
    return std::atoi(std::string(*code).c_str());
  }
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

CLI::Validator Within(double low, double high) {
  return NumberThat(
      Cat("between ", low, " and ", high),
      [low, high](double value) { return value >= low && value <= high; });
}

CLI::Validator Above(double low, double high) {
  return NumberThat(
      Cat("above ", low, " and at most ", high),
      [low, high](double value) { return value > low && value <= high; });
}

std::string EnvName(const CLI::App& command, const CLI::Option& option) {
  const std::string name = option.get_name();
  std::string words = name;
  if (std::find(std::begin(kShared), std::end(kShared), name) ==
      std::end(kShared)) {
    words = Cat("--", command.get_name(), "-", name.substr(2));
  }
  std::string variable = "SLUICE_";
  for (const char c : words.substr(2)) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  }
  return variable;
}

CommandLine::CommandLine(const std::string& version)
    : version_(version),
      app_("The one command of Sluice for people.", "sluice") {
  app_.get_formatter()->label("Usage", "usage");
  app_.get_formatter()->label("SUBCOMMAND", "COMMAND ...");
  app_.option_defaults()->take_last();
  app_.set_help_flag("-h,--help", "What a command does and takes");
  app_.set_version_flag("--version", version);
  app_.set_config("--config", ConfigFile(),
                  "TOML: a section per command, and above them what all take; "
                  "else SLUICE_CONFIG, ~/.config/sluice.toml",
                  !Environment("SLUICE_CONFIG").empty());
  app_.require_subcommand(1);
  app_.footer(
      R"(sluice COMMAND --help tells its options. They may stand before and behind the
other words, those of up and down behind the command alone; "--" ends them.

Exit status: 0 done, 1 it failed (status: a process is dead or the cluster is
not ready; bench: a request was not answered; eval: a check failed), 2 the
command line was wrong; run, chat and stop also end as the launcher does that
they run: 3 set-up failed, 4 the build failed, 5 no model, 6 a process died or
the cluster was not ready in time, 7 a port or run folder is in use; run, chat
and logs with 128 and the number of the signal that ended them (130: Ctrl-C).)");
}

CLI::App& CommandLine::Add(const std::string& name, const std::string& about,
                           std::function<Status()> run) {
  CLI::App* command = app_.add_subcommand(name, about);
  command->fallthrough();  // --version and --config stand anywhere
  command->group("Commands")->footer(std::string());
  commands_[name] = std::move(run);
  return *command;
}

const CLI::App* CommandLine::Find(const std::string& name) const {
  if (!commands_.contains(name)) return nullptr;
  return app_.get_subcommand(name);
}

std::string CommandLine::NameAt(const Words& words, size_t at) const {
  if (at + 1 == words.size()) return words[at];
  const std::string part = Cat(words[at], "-", words[at + 1]);
  return Find(part) == nullptr ? words[at] : part;
}

StatusOr<Words> CommandLine::Ordered(const Words& words) const {
  size_t at = 0;
  while (at < words.size() && words[at].starts_with("-")) {
    const std::string name = NameIn(words[at]);
    const CLI::Option* option = app_.get_option_no_throw(name);
    for (const CLI::App* command : app_.get_subcommands({})) {
      if (option == nullptr) option = command->get_option_no_throw(name);
    }
    if (option == nullptr) {
      return InvalidArgument("unknown option ", words[at],
                             "; sluice --help lists the commands");
    }
    at += TakesValue(*option) && name == words[at] ? 2 : 1;
  }
  if (at >= words.size()) {
    return InvalidArgument("no command is named; sluice --help lists them");
  }
  const std::string name = NameAt(words, at);
  const CLI::App* command = Find(name);
  if (command == nullptr) {
    return InvalidArgument("unknown command '", words[at], "'\n", Help());
  }
  Words others = words;
  const auto begin = others.begin() + static_cast<std::ptrdiff_t>(at);
  others.erase(begin, begin + (name == words[at] ? 1 : 2));
  if (commands_.at(name)) return Checked(*command, others);
  others.insert(others.begin(), name);
  return others;
}

StatusOr<Words> CommandLine::Checked(const CLI::App& command,
                                     const Words& words) const {
  Words options = {command.get_name()};
  Words others;
  Status wrong = OkStatus();
  bool asks_version = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      const auto rest = up_options_.find(command.get_name());
      if (rest != up_options_.end()) {
        rest->second->assign(words.begin() + std::ptrdiff_t(i) + 1,
                             words.end());
        break;
      }
      others.insert(others.end(), words.begin() + std::ptrdiff_t(i) + 1,
                    words.end());
      break;
    }
    if (!IsOption(word)) {
      others.push_back(word);
      continue;
    }
    const std::string name = NameIn(word);
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr) option = app_.get_option_no_throw(name);
    if (option == nullptr) {
      wrong = InvalidArgument("unknown option ", word, Hint(command, name),
                              up_options_.contains(command.get_name())
                                  ? ", options of up stand behind --"
                                  : "");
      continue;
    }
    if (IsHelp(name)) return Words{command.get_name(), "--help"};
    asks_version = asks_version || name == "--version";
    options.push_back(name);
    const bool has_value = name != word;
    if (!TakesValue(*option)) {
      if (has_value) wrong = InvalidArgument(name, " takes no value");
      continue;
    }
    std::string value;
    if (has_value) {
      value = word.substr(name.size() + 1);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    if (value.empty() && !MayBeEmpty(name)) {
      wrong = InvalidArgument(name, " needs a value");
    }
    options.push_back(std::move(value));
  }
  SLUICE_RETURN_IF_ERROR(wrong);
  if (asks_version) return Words{command.get_name(), "--version"};
  if (others.empty()) return options;
  options.emplace_back("--");
  options.insert(options.end(), others.begin(), others.end());
  return options;
}

Status CommandLine::Parse(const Words& words) {
  CLI::App* command = app_.get_subcommand(words[0]);
  // With --run-dir no other source may name another server.
  const bool names_cluster =
      std::find(words.begin(), words.end(), "--run-dir") != words.end();
  const std::string hidden = names_cluster ? "--url" : "";
  for (CLI::Option* option : command->get_options()) {
    if (option->get_positional() || IsHelp(option->get_name())) continue;
    if (option->get_name() == hidden) continue;
    option->envname(EnvName(*command, *option));
  }
  app_.config_formatter(
      std::make_shared<CommandConfig>(app_, *command, hidden));
  try {
    app_.parse(Words(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    const std::string help = command->help("sluice");
    const size_t usage = help.find("usage:");
    return InvalidArgument(error.what(), "\n",
                           help.substr(usage, help.find('\n', usage) - usage),
                           "; sluice ", words[0], " --help lists its options");
  }
  return OkStatus();
}

Status CommandLine::Run(Words words) {
  if (words.empty()) return InvalidArgument("no command is named\n", Help());
  if (IsHelp(words[0]) && (words.size() == 1 || IsHelp(words[1]))) {
    return Print(Help());
  }
  if (words[0] == "--version") return Print(app_.version());
  // "help chat" and "--help chat" are "chat --help".
  if (IsHelp(words[0])) words = {NameAt(words, 1), "--help"};
  SLUICE_ASSIGN_OR_RETURN(words, Ordered(words));
  const std::function<Status()>& run = commands_.at(words[0]);
  if (!run) {
    SLUICE_ASSIGN_OR_RETURN(Words argv, LauncherCommand(words));
    return Become(std::move(argv));
  }
  // Help and version do not read the file of options, which may be bad.
  if (words.size() == 2 && words[1] == "--help") {
    return Print(app_.get_subcommand(words[0])->help("sluice"));
  }
  if (words.size() == 2 && words[1] == "--version") {
    return Print(app_.version());
  }
  SLUICE_RETURN_IF_ERROR(Parse(words));
  return run();
}

}  // namespace sluice::cli
