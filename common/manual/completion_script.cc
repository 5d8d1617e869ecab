#include "common/manual/completion_script.h"

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

using Options = std::vector<ProgramOption>;

// Returns `text` in single quotes, valid in each shell.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c != '\'') out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

std::string Joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) {
    out += Cat(out.empty() ? "" : between, word);
  }
  return out;
}

std::vector<std::string> NamesOf(const Options& options) {
  std::vector<std::string> names;
  for (const ProgramOption& option : options) names.push_back(option.name);
  return names;
}

std::vector<std::string> NamesOf(const Program& program) {
  std::vector<std::string> names;
  for (const ProgramCommand& command : program.commands) {
    names.push_back(command.name);
  }
  return names;
}

// A command of the program, or a program that has none as its one command, "".
std::vector<ProgramCommand> CommandsOf(const Program& program) {
  if (!program.commands.empty()) return program.commands;
  return {{"", program.about, {}, {}, program.options}};
}

// Returns the name of the scripts' function: _sluice_gateway.
std::string FunctionName(const Program& program) {
  std::string name = "_" + program.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string ListWords(const std::string& kind) {
  return Cat("sluice words ", kind, " 2>/dev/null");
}

// Returns the cases of "COMMAND:OPTION" that values are known for, and that of
// the options that have any other value. `offer` makes the shell's command for
// a list of words.
template <typename Offer>
std::string ValueCases(const Program& program, Offer offer,
                       const std::string& otherwise) {
  std::string out;
  std::vector<std::string> others;
  for (const ProgramCommand& command : CommandsOf(program)) {
    for (const ProgramOption& option : command.options) {
      if (option.value.empty()) continue;
      const std::string key = Cat(command.name, ":", option.name);
      if (option.choices.empty() && option.words.empty()) {
        others.push_back(key);
      } else {
        out += Cat("    ", key, ") ", offer(option), "; return ;;\n");
      }
    }
  }
  if (others.empty()) return out;
  return Cat(out, "    ", Joined(others, "|"), ") ", otherwise, " ;;\n");
}

// Returns the lines that find the command among the words before the current
// one; `words` is the shell's list of them.
std::string FindCommand(const Program& program, const char* words) {
  if (program.commands.empty()) return "";
  return Cat("  for word in \"", words, "\"; do\n    case $word in ",
             Joined(NamesOf(program), "|"),
             ") command=$word; break ;; esac\n  done\n");
}

// The argument of a command that has words; null without one.
const ProgramOption* ArgumentWithWords(const ProgramCommand& command) {
  for (const ProgramOption& argument : command.arguments) {
    if (!argument.choices.empty() || !argument.words.empty()) return &argument;
  }
  return nullptr;
}

// Returns words as the shell's quoted ones: 'a' 'b'.
std::string EachQuoted(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += Cat(" ", Quoted(word));
  return out;
}

std::string BashWords(const std::string& function,
                      const ProgramOption& option) {
  const std::string offer = function + "_offer";
  if (!option.choices.empty()) return offer + EachQuoted(option.choices);
  return Cat("mapfile -t listed < <(", ListWords(option.words), "); ", offer,
             " \"${listed[@]}\"");
}

// Returns the function that offers those of its words that begin with the
// current one. Words of a list are names that anyone may have given to a
// folder: nothing expands them, as compgen -W does, and they are offered in the
// form that the command line needs, which the current word may be the beginning
// of.
std::string BashOffer(const std::string& name) {
  return Cat(name,
             "_offer() {\n"
             "  local word quoted current=${COMP_WORDS[COMP_CWORD]}\n"
             "  for word in \"$@\"; do\n"
             "    printf -v quoted %q \"$word\"\n"
             "    if [[ $word == \"$current\"* || "
             "$quoted == \"$current\"* ]]; then\n"
             "      COMPREPLY+=(\"$quoted\")\n"
             "    fi\n"
             "  done\n"
             "}\n");
}

std::string Bash(const Program& program) {
  const std::string function = FunctionName(program);
  const auto words = [&function](const ProgramOption& option) {
    return BashWords(function, option);
  };
  std::string out =
      Cat(BashOffer(function), function,
          "() {\n  local word command= "
          "current=${COMP_WORDS[COMP_CWORD]}\n"
          "  local previous=${COMP_WORDS[COMP_CWORD-1]}\n"
          "  local -a listed\n"
          "  COMPREPLY=()\n",
          FindCommand(program, "${COMP_WORDS[@]:1:COMP_CWORD-1}"),
          "  case $command:$previous in\n",
          ValueCases(program, words, "return"), "  esac\n  case $command in\n");
  ProgramOption names;
  if (!program.commands.empty()) {
    names.choices = NamesOf(program);
    out += Cat("    '') ", words(names), " ;;\n");
  }
  for (const ProgramCommand& command : CommandsOf(program)) {
    names.choices = NamesOf(command.options);
    out += Cat("    ", Quoted(command.name), ") ");
    const ProgramOption* argument = ArgumentWithWords(command);
    if (argument != nullptr) {
      out += Cat("if [[ $current != -* ]]; then ", words(*argument), "; else ",
                 words(names), "; fi");
    } else {
      out += words(names);
    }
    out += " ;;\n";
  }
  return Cat(out, "  esac\n}\ncomplete -o default -F ", function, " ",
             program.name, "\n");
}

std::string ZshWords(const ProgramOption& option) {
  if (option.choices.empty()) {
    return Cat("compadd -- ${(f)\"$(", ListWords(option.words), ")\"}");
  }
  return "compadd --" + EachQuoted(option.choices);
}

// Returns words with their descriptions, as zsh's _describe takes them.
std::string ZshDescribed(
    const char* what,
    const std::vector<std::pair<std::string, std::string>>& words) {
  std::string out = "described=(";
  for (const auto& [name, about] : words) {
    std::string text = about;
    for (size_t at = 0; (at = text.find(':', at)) != std::string::npos;
         at += 2) {
      text.insert(at, "\\");
    }
    out += Cat("\n      ", Quoted(Cat(name, ":", text)));
  }
  return Cat(out, "); _describe ", what, " described");
}

std::string Zsh(const Program& program) {
  const std::string function = FunctionName(program);
  std::string out =
      Cat("#compdef ", program.name, "\n", function,
          "() {\n  local word command= current=$words[CURRENT]\n"
          "  local previous=$words[CURRENT-1]\n  local -a described\n",
          FindCommand(program, "${(@)words[2,CURRENT-1]}"),
          "  case $command:$previous in\n",
          ValueCases(program, ZshWords, "_files; return"),
          "  esac\n  case $command in\n");
  std::vector<std::pair<std::string, std::string>> words;
  for (const ProgramCommand& command : program.commands) {
    words.emplace_back(command.name, command.about);
  }
  if (!words.empty()) {
    out += Cat("    '') ", ZshDescribed("command", words), " ;;\n");
  }
  for (const ProgramCommand& command : CommandsOf(program)) {
    words.clear();
    for (const ProgramOption& option : command.options) {
      words.emplace_back(option.name, option.about);
    }
    out += Cat("    ", Quoted(command.name),
               ")\n      if [[ $current == -* ]]; then ",
               ZshDescribed("-o option", words), "\n      else ");
    const ProgramOption* argument = ArgumentWithWords(command);
    if (argument != nullptr) out += ZshWords(*argument) + "; ";
    out += "_files; fi ;;\n";
  }
  return Cat(out, "  esac\n}\nif [[ $funcstack[1] == ", function, " ]]; then ",
             function, " \"$@\"; else compdef ", function, " ", program.name,
             "; fi\n");
}

// Returns fish's words for a value: " -x -a '..'"; " -r": of any kind.
std::string FishValue(const ProgramOption& option) {
  if (!option.choices.empty()) {
    return Cat(" -x -a ", Quoted(Joined(option.choices, " ")));
  }
  if (!option.words.empty()) {
    return Cat(" -r -a ", Quoted(Cat("(", ListWords(option.words), ")")));
  }
  return option.value.empty() ? "" : " -r";
}

std::string Fish(const Program& program) {
  std::string out;
  for (const ProgramCommand& command : CommandsOf(program)) {
    std::string line = Cat("complete -c ", program.name);
    if (!program.commands.empty()) {
      out += Cat(line, " -n __fish_use_subcommand -a ", command.name, " -d ",
                 Quoted(command.about), "\n");
      line += Cat(" -n '__fish_seen_subcommand_from ", command.name, "'");
    }
    if (const ProgramOption* argument = ArgumentWithWords(command)) {
      const std::string words = argument->choices.empty()
                                    ? Cat("(", ListWords(argument->words), ")")
                                    : Joined(argument->choices, " ");
      out += Cat(line, " -a ", Quoted(words), "\n");
    }
    for (const ProgramOption& option : command.options) {
      out += Cat(line, " -l ", option.name.substr(2), FishValue(option), " -d ",
                 Quoted(option.about), "\n");
    }
  }
  return out;
}

}  // namespace

StatusOr<std::string> CompletionScript(const Program& program,
                                       const std::string& shell) {
  if (shell == "bash") return Bash(program);
  if (shell == "zsh") return Zsh(program);
  if (shell == "fish") return Fish(program);
  return InvalidArgument("completions are for bash, zsh and fish, not for '",
                         shell, "'");
}

}  // namespace sluice
