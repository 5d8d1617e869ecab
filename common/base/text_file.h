#ifndef SLUICE_COMMON_BASE_TEXT_FILE_H_
#define SLUICE_COMMON_BASE_TEXT_FILE_H_

#include <string>

#include "common/base/status.h"

namespace sluice {

// Returns the bytes of a file. NOT_FOUND for an unreadable one.
StatusOr<std::string> ReadTextFile(const std::string& path);

// Writes a whole file. UNAVAILABLE if that fails.
Status WriteTextFile(const std::string& path, const std::string& text);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_TEXT_FILE_H_
