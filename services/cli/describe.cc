#include "services/cli/describe.h"

#include <map>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "services/cli/child_process.h"
#include "services/cli/command_line.h"

namespace sluice::cli {
namespace {

// The kinds of `sluice words`, by the names of options and arguments.
const std::map<std::string, std::string>& WordKinds() {
  static const std::map<std::string, std::string> kinds = {
      {"MODEL", "models"},
      {"--model", "models"},
      {"NAME", "clusters"},
      {"--process", "processes"}};
  return kinds;
}

std::string KindOf(const std::string& name) {
  const auto found = WordKinds().find(name);
  return found == WordKinds().end() ? "" : found->second;
}

// Returns the words of "{a,b,c}" in a type's name; none if it has no such list.
std::vector<std::string> ChoicesIn(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

ProgramOption DescribeOption(const CLI::Option& option) {
  ProgramOption described;
  described.name = option.get_name();
  described.about = option.get_description();
  described.required = option.get_required();
  described.many = option.get_items_expected_max() > 1;
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    described.choices = ChoicesIn(type);
    described.value = type.substr(0, type.find_first_of(":{ "));
    if (described.value.empty()) described.value = "WORD";
    described.words = KindOf(described.name);
  }
  return described;
}

// Returns the paragraphs of a text: empty lines part them.
std::vector<std::string> Paragraphs(const std::string& text) {
  std::vector<std::string> paragraphs;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find("\n\n", begin), text.size());
    if (end > begin) paragraphs.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return paragraphs;
}

// Returns the options of the launcher's command of that name.
StatusOr<std::vector<ProgramOption>> LauncherOptions(const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(const Words argv,
                          LauncherCommand({name, "--describe"}));
  sigset_t none;
  sigemptyset(&none);
  SLUICE_ASSIGN_OR_RETURN(const auto child,
                          ChildProcess::Start(argv, {none, {}}));
  while (child->ReadOutput()) {
  }
  if (const int code = child->Wait(); code != 0) {
    return Unavailable(argv[0], " --describe: exit code ", code);
  }
  SLUICE_ASSIGN_OR_RETURN(const Json list, ParseJson(child->text()));
  if (!list.is_array()) {
    return InvalidArgument(argv[0], " --describe: no list of options");
  }
  std::vector<ProgramOption> options;
  for (const Json& item : list) {
    ProgramOption option;
    option.name = FindText(item, "name");
    option.value = FindText(item, "value");
    option.about = FindText(item, "about");
    for (const Json& choice : FindList(item, "choices")) {
      if (choice.is_string()) option.choices.push_back(choice);
    }
    if (!option.value.empty()) option.words = KindOf(option.name);
    options.push_back(std::move(option));
  }
  return options;
}

ProgramCommand DescribeCommand(const CLI::App& app) {
  ProgramCommand command;
  command.name = app.get_name();
  command.about = app.get_description();
  command.description = Paragraphs(app.get_footer());
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? command.arguments : command.options)
        .push_back(DescribeOption(*option));
  }
  return command;
}

}  // namespace

StatusOr<Program> DescribeProgram(const CLI::App& sluice,
                                  const std::string& version, bool launcher) {
  Program program;
  program.name = sluice.get_name();
  program.version = version;
  program.about = "runs and measures clusters that serve language models";
  program.description = Paragraphs(sluice.get_footer());
  for (const CLI::App* app : sluice.get_subcommands({})) {
    if (app->get_group().empty()) continue;
    ProgramCommand command = DescribeCommand(*app);
    if (launcher && (command.name == "up" || command.name == "down")) {
      SLUICE_ASSIGN_OR_RETURN(command.options, LauncherOptions(command.name));
    }
    program.commands.push_back(std::move(command));
  }
  program.sections = {
      {"environment",
       {"SLUICE_URL, SLUICE_RUN_DIR and SLUICE_API_KEY are options of every "
        "command that has them; SLUICE_CHAT_TOP_K is --top-k of chat, and so "
        "on. The command line goes before the environment, and the "
        "environment before the file of options."}},
      {"files",
       {"~/.config/sluice.toml, or the file that SLUICE_CONFIG names: a table "
        "of options per command, and above the tables options of all "
        "commands.",
        "${XDG_STATE_HOME:-~/.local/state}/sluice: a run folder per "
        "cluster."}}};
  return program;
}

}  // namespace sluice::cli
