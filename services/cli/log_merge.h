#ifndef SLUICE_SERVICES_CLI_LOG_MERGE_H_
#define SLUICE_SERVICES_CLI_LOG_MERGE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::cli {

// A line of a process's log.
struct LogLine {
  std::string log;   // the file's name without .log: "stage-0"
  std::string time;  // ISO, as the process wrote it, or the line's before it
  std::string text;
};

// The log of one process: a file that grows, and that a restart may cut or put
// another in the place of. Threadless.
class LogFile {
 public:
  explicit LogFile(std::string path);

  const std::string& name() const { return name_; }

  // Appends the last lines of the file, `count` of them at most, to `lines`.
  // What comes later is for ReadNew. A last line without its end is appended
  // if `with_open_line`.
  void ReadLast(size_t count, bool with_open_line, std::vector<LogLine>& lines);
  // Appends the lines that were written since.
  void ReadNew(std::vector<LogLine>& lines);

 private:
  void Append(const std::string& text, std::vector<LogLine>& lines);

  const std::string path_;
  const std::string name_;
  uint64_t offset_ = 0;  // what is before it was read
  ino_t inode_ = 0;
  std::string open_line_;
  std::string time_;  // of the latest line that has one
};

// Returns the time that a line of a log begins with, as text or as JSON; empty:
// it has none.
std::string TimeOf(const std::string& line);

// Sorts lines by their times; those of one log keep their order.
void MergeByTime(std::vector<LogLine>& lines);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_LOG_MERGE_H_
