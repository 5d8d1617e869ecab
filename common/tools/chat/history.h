#ifndef SLUICE_COMMON_TOOLS_CHAT_HISTORY_H_
#define SLUICE_COMMON_TOOLS_CHAT_HISTORY_H_

#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::chat {

// The prompts that a person typed, oldest first, in a file of its user's alone
// (0600): a JSON string a line. Several processes may have the file: each adds
// lines, and sees the others' at its next start.
class History {
 public:
  static constexpr size_t kMaxEntries = 1000;
  static constexpr size_t kMaxEntryBytes = size_t{64} << 10;

  // Reads `path`, whose folder is made; cuts the file to the latest
  // kMaxEntries once it has twice as many. UNAVAILABLE if that fails; the
  // object then has entries in memory alone. Empty: in memory from the start.
  static StatusOr<History> Open(const std::string& path);
  History() = default;

  // Adds a prompt, unless it is the latest one; one above kMaxEntryBytes is not
  // written. UNAVAILABLE if the file cannot be written.
  Status Add(const std::string& prompt);

  const std::vector<std::string>& entries() const { return entries_; }

 private:
  std::string path_;
  std::vector<std::string> entries_;
};

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_HISTORY_H_
