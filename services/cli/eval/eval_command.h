#ifndef SLUICE_SERVICES_CLI_EVAL_EVAL_COMMAND_H_
#define SLUICE_SERVICES_CLI_EVAL_EVAL_COMMAND_H_

namespace sluice::cli {

// The text of `sluice eval --help`.
extern const char kEvalUsage[];

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_EVAL_COMMAND_H_
