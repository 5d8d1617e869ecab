#include "common/service/service_main.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "common/base/catch_exceptions.h"
#include "common/service/describe_options.h"
#include "common/service/read_options.h"
#include "common/service/version_text.h"

namespace sluice {
namespace {

// The options that every service has.
struct OwnOptions {
  std::string log_format = "text";
  std::string log_level = "info";
  std::string config;
  std::string print;
};

// A row that sets up the log with its text, so that the errors of rows behind
// it are logged as the operator asked.
OptionValue LogWord(OwnOptions& own, std::string OwnOptions::*member,
                    std::vector<std::string> choices) {
  OptionValue value = option::Parsed(
      &(own.*member),
      [&own, member](const std::string& text) -> StatusOr<std::string> {
        OwnOptions next = own;
        next.*member = text;
        SLUICE_RETURN_IF_ERROR(SetUpLog(next.log_format, next.log_level));
        return text;
      },
      [](const std::string& text) { return text; });
  value.unit = "WORD";
  value.choices = std::move(choices);
  return value;
}

OptionRows RowsOf(OwnOptions& own) {
  OptionRows rows = {
      {"log-format", LogWord(own, &OwnOptions::log_format, {"text", "json"}),
       "lines of the log: text or json"},
      {"log-level",
       LogWord(own, &OwnOptions::log_level,
               {"debug", "info", "warning", "error"}),
       "the least that is logged: debug, info, warning or error"},
      {"config", &own.config,
       "TOML file of options, `kv-blocks = 64`; what the command line or the "
       "environment (SLUICE_STAGE_KV_BLOCKS) sets goes before it"},
      {"print", &own.print,
       "write the manual page (man), the table of options (markdown), their "
       "present values as a file for --config (options), or the completion "
       "script of a shell (bash, zsh, fish), and end"}};
  rows.back().value.choices = {"man",  "markdown", "options",
                               "bash", "zsh",      "fish"};
  return rows;
}

StatusOr<std::string> TextOf(const ServiceProgram& program,
                             const std::string& asked) {
  if (asked == "help") return HelpText(program);
  if (asked == "version") return VersionText("sluice-" + program.name);
  return DescribeOptions(program, asked);
}

// Writes what is asked for, else runs.
Status Main(const ServiceProgram& program,
            const std::vector<std::string>& words,
            const std::function<Status(const sigset_t& signals)>& run) {
  SLUICE_ASSIGN_OR_RETURN(const GivenOptions given,
                          ReadOptions(program, words));
  if (given.asked.empty() || given.asked == "options") {
    SLUICE_RETURN_IF_ERROR(ApplyOptions(program, given));
  }
  if (given.asked.empty()) return run(BlockSignals());
  SLUICE_ASSIGN_OR_RETURN(const std::string text, TextOf(program, given.asked));
  std::fputs(text.c_str(), stdout);
  return OkStatus();
}

}  // namespace

int ServiceMain(int argc, char** argv, ServiceProgram program,
                const std::function<Status(const sigset_t& signals)>& run) {
  OwnOptions own;
  OptionRows rows = RowsOf(own);
  for (OptionRow& row : program.options) rows.push_back(std::move(row));
  program.options = std::move(rows);
  Status status;
  RaiseFileLimit();
  const Status ran = CatchExceptions(program.name.c_str(), [&] {
    status = Main(program, {argv + 1, argv + argc}, run);
  });
  if (!ran.ok()) status = ran;
  if (status.ok()) return 0;
  LogError(Message(status));
  return 1;
}

}  // namespace sluice
