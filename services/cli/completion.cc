#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

std::vector<const CLI::App*> CommandsOf(const CLI::App& sluice) {
  return sluice.get_subcommands({});
}

// Returns the options' names: " --seed --top-k".
std::string OptionNames(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) names += " " + option->get_name();
  }
  return names;
}

std::string CommandNames(const CLI::App& sluice, const char* between) {
  std::string names;
  for (const CLI::App* command : CommandsOf(sluice)) {
    names += Cat(names.empty() ? "" : between, command->get_name());
  }
  return names;
}

// Returns `text` in single quotes, valid in each shell.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c != '\'') out += c;
  }
  return out + "'";
}

// Returns the body of a function that finds the command among the words that
// `words` lists, and has a case for every command; `offer` makes a case's line.
template <typename Offer>
std::string Function(const CLI::App& sluice, const char* words, Offer offer) {
  std::string out =
      Cat("  for word in \"", words, R"("; do
    case $word in )",
          CommandNames(sluice, "|"), R"() command=$word; break ;; esac
  done
  case $command in
    '') )",
          offer(CommandNames(sluice, " ")), " ;;\n");
  for (const CLI::App* command : CommandsOf(sluice)) {
    out += Cat("    ", command->get_name(), ") ", offer(OptionNames(*command)),
               " ;;\n");
  }
  return out + "  esac\n}\n";
}

std::string Bash(const CLI::App& sluice) {
  return Cat(
      "_sluice() {\n  local word command= current=${COMP_WORDS[COMP_CWORD]}\n",
      Function(sluice, "${COMP_WORDS[@]:1:COMP_CWORD-1}",
               [](const std::string& words) {
                 return Cat("COMPREPLY=($(compgen -W '", words,
                            "' -- \"$current\"))");
               }),
      "complete -o default -F _sluice sluice\n");
}

std::string Zsh(const CLI::App& sluice) {
  return Cat("#compdef sluice\n_sluice() {\n  local word command=\n",
             Function(sluice, "${(@)words[2,CURRENT-1]}",
                      [](const std::string& words) {
                        return Cat("compadd -- ", words, "; _files");
                      }),
             "compdef _sluice sluice\n");
}

std::string Fish(const CLI::App& sluice) {
  std::string out;
  for (const CLI::App* command : CommandsOf(sluice)) {
    const std::string name = command->get_name();
    out += Cat("complete -c sluice -n __fish_use_subcommand -a ", name, " -d ",
               Quoted(command->get_description()), "\n");
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) continue;
      out += Cat("complete -c sluice -n '__fish_seen_subcommand_from ", name,
                 "' -l ", option->get_lnames().front(),
                 option->get_items_expected_max() > 0 ? " -r" : "", " -d ",
                 Quoted(option->get_description()), "\n");
    }
  }
  return out;
}

}  // namespace

StatusOr<std::string> CompletionScript(const CLI::App& sluice,
                                       const std::string& shell) {
  if (shell == "bash") return Bash(sluice);
  if (shell == "zsh") return Zsh(sluice);
  if (shell == "fish") return Fish(sluice);
  return InvalidArgument("completions are for bash, zsh and fish, not for '",
                         shell, "'");
}

void AddCompletion(CommandLine& sluice) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = sluice.Add(
      "completion", "the script by which a shell completes the command",
      [shell, &sluice]() -> Status {
        SLUICE_ASSIGN_OR_RETURN(const std::string script,
                                CompletionScript(sluice.app(), *shell));
        std::fputs(script.c_str(), stdout);
        return OkStatus();
      });
  command.add_option("SHELL", *shell, "bash, zsh or fish")->required();
}

void AddCommands(CommandLine& sluice) {
  sluice.Add("up", "build if needed and start a cluster", nullptr);
  sluice.Add("down", "drain and stop it", nullptr);
  sluice.Add("certificates", "make a cluster's certificates", nullptr);
  AddStatus(sluice);
  AddChat(sluice);
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
