#include "common/tools/chat/history.h"

#include <filesystem>
#include <sstream>

#include "common/base/json.h"
#include "common/base/text_file.h"
#include "common/tools/chat/private_file.h"

namespace sluice::chat {
namespace {

std::string LineOf(const std::string& entry) { return DumpJson(entry) + "\n"; }

}  // namespace

StatusOr<History> History::Open(const std::string& path) {
  History history;
  if (path.empty()) return history;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      error);
  SLUICE_RETURN_IF_ERROR(AppendPrivateFile(path, ""));
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const StatusOr<Json> entry = ParseJson(line);
    // A line that a full disk has cut is none.
    if (entry.ok() && entry->is_string()) {
      history.entries_.push_back(entry->get<std::string>());
    }
  }
  history.path_ = path;
  if (history.entries_.size() < 2 * kMaxEntries) return history;
  history.entries_.erase(history.entries_.begin(),
                         history.entries_.end() - kMaxEntries);
  std::string kept;
  for (const std::string& entry : history.entries_) kept += LineOf(entry);
  SLUICE_RETURN_IF_ERROR(WritePrivateFile(path, kept));
  return history;
}

Status History::Add(const std::string& prompt) {
  if (!entries_.empty() && entries_.back() == prompt) return OkStatus();
  entries_.push_back(prompt);
  if (path_.empty() || prompt.size() > kMaxEntryBytes) return OkStatus();
  return AppendPrivateFile(path_, LineOf(prompt));
}

}  // namespace sluice::chat
