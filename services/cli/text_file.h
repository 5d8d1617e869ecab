#ifndef SLUICE_SERVICES_CLI_TEXT_FILE_H_
#define SLUICE_SERVICES_CLI_TEXT_FILE_H_

#include <functional>
#include <string>

#include "common/base/json_fwd.h"
#include "common/base/status.h"

namespace sluice::cli {

// Returns the bytes of a file. NOT_FOUND for an unreadable one.
StatusOr<std::string> ReadText(const std::string& path);

// Writes a whole file. UNAVAILABLE if that fails.
Status WriteText(const std::string& path, const std::string& text);

// Gives `add` every line of a file of JSON objects, without blank lines. An
// error of a line or of `add` names the file and the line. INVALID_ARGUMENT for
// a file without lines.
Status ReadJsonLines(const std::string& path,
                     const std::function<Status(const Json&)>& add);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_TEXT_FILE_H_
