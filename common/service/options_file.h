#ifndef SLUICE_COMMON_SERVICE_OPTIONS_FILE_H_
#define SLUICE_COMMON_SERVICE_OPTIONS_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/service/service_program.h"

namespace sluice {

// An option of a TOML file, or the table that begins there.
struct FileOption {
  std::string name;
  std::string text;  // the items of a list by commas
  std::optional<std::string> table;
};

// Returns the options of a file's text. A '#' inside quotes begins no comment.
// INVALID_ARGUMENT for a text that is no TOML.
StatusOr<std::vector<FileOption>> ParseOptionsFile(const std::string& text);

// Returns the present values of the options as a file for --config.
// INVALID_ARGUMENT naming an option whose text CLI11 would read as another,
// as a text with a newline.
StatusOr<std::string> OptionsFile(const ServiceProgram& program);

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_OPTIONS_FILE_H_
