#ifndef SLUICE_SERVICES_CLI_EVAL_PROMPT_FILE_H_
#define SLUICE_SERVICES_CLI_EVAL_PROMPT_FILE_H_

#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

// The prompts of a file of JSON lines {"prompt": text or token ids}, each as
// JSON. INVALID_ARGUMENT names the line that is wrong.
StatusOr<std::vector<std::string>> ReadPromptLines(const std::string& path);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_PROMPT_FILE_H_
