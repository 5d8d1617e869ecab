#ifndef SLUICE_COMMON_TOOLS_CHAT_PRIVATE_FILE_H_
#define SLUICE_COMMON_TOOLS_CHAT_PRIVATE_FILE_H_

#include <string>

#include "common/base/status.h"

namespace sluice::chat {

// Files that their user alone may read (0600). UNAVAILABLE if that fails.

// Writes a whole file, in the place of one that is there.
Status WritePrivateFile(const std::string& path, const std::string& text);

// Adds `text`, by one write where the system can; makes the file if need be.
Status AppendPrivateFile(const std::string& path, const std::string& text);

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_PRIVATE_FILE_H_
