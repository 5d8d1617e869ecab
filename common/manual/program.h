#ifndef SLUICE_COMMON_MANUAL_PROGRAM_H_
#define SLUICE_COMMON_MANUAL_PROGRAM_H_

#include <string>
#include <utility>
#include <vector>

namespace sluice {

// An option, "--seed", or an argument, "MODEL".
struct ProgramOption {
  std::string name;
  std::string value;  // the name of its value, "INT"; empty: no value
  std::string about;
  std::vector<std::string> choices;  // the only values; empty: there are more
  // The kind of `sluice words` that lists values; empty: no list.
  std::string words;
  bool required = false;  // of an argument
  bool many = false;      // an argument that may be given several times
};

struct ProgramCommand {
  std::string name;                      // "chat"
  std::string about;                     // a line
  std::vector<std::string> description;  // paragraphs
  std::vector<ProgramOption> arguments;
  std::vector<ProgramOption> options;
};

// A command line as data.
struct Program {
  std::string name;                      // "sluice"
  std::string version;                   // "0.1.0"
  std::string about;                     // a line
  int section = 1;                       // of the manual
  std::vector<std::string> description;  // paragraphs
  std::vector<ProgramOption> options;    // of a program without commands
  std::vector<ProgramCommand> commands;
  // Further sections of the page: a heading, and its paragraphs.
  std::vector<std::pair<std::string, std::vector<std::string>>> sections;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MANUAL_PROGRAM_H_
