// sluice: the one command for people.

#include <cstdio>

#include "services/cli/command_table.h"

namespace {

using sluice::Status;
using sluice::StatusOr;
using sluice::cli::CommandSpec;
using sluice::cli::Words;

bool IsHelp(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

Status Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return sluice::OkStatus();
}

StatusOr<const CommandSpec*> Find(const std::string& name) {
  const CommandSpec* command = sluice::cli::FindCommand(name);
  if (command != nullptr) return command;
  return sluice::InvalidArgument("unknown command '", name, "'\n",
                                 sluice::cli::UsageText());
}

// What stands behind "sluice".
Status Run(Words words) {
  if (words[0] == "--version") {
    return Print(sluice::Cat("sluice ", SLUICE_VERSION, "\n"));
  }
  if (IsHelp(words[0]) && (words.size() == 1 || IsHelp(words[1]))) {
    return Print(sluice::cli::UsageText());
  }
  // "help chat" and "--help chat" are "chat --help".
  if (IsHelp(words[0])) words = {words[1], "--help"};
  SLUICE_ASSIGN_OR_RETURN(words, sluice::cli::CommandFirst(words));
  SLUICE_ASSIGN_OR_RETURN(const CommandSpec* command, Find(words[0]));
  words.erase(words.begin());
  if (!command->is_script && sluice::cli::AsksForHelp(*command, words)) {
    return Print(sluice::cli::HelpText(*command));
  }
  return command->run(words);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs(sluice::cli::UsageText().c_str(), stderr);
    return 2;
  }
  const Status done = Run(Words(argv + 1, argv + argc));
  if (done.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", sluice::Message(done).c_str());
  return done.code() == sluice::StatusCode::kInvalidArgument ? 2 : 1;
}
