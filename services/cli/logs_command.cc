// The command logs.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "services/cli/clusters.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/conversation.h"
#include "services/cli/interrupts.h"
#include "services/cli/log_merge.h"

namespace sluice::cli {
namespace {

constexpr int kPollMilliseconds = 200;
constexpr int64_t kDefaultLines = 100;
constexpr double kMaxLines = 1e9;
// A pipe that can be written takes so many bytes without a wait.
constexpr size_t kPieceBytes = PIPE_BUF;

struct LogsOptions {
  std::string name;
  Words processes;
  int64_t lines = kDefaultLines;
  bool follow = false;
};

// The logs of a run folder, those of processes that are started later, too.
class Logs {
 public:
  Logs(std::string run_dir, const LogsOptions& options)
      : run_dir_(std::move(run_dir)), options_(options) {
    FindFiles();
  }

  // NOT_FOUND for a process without a log.
  Status Check() const {
    std::string names;
    for (const auto& [name, file] : files_) names += " " + name;
    for (const std::string& process : options_.processes) {
      if (!files_.contains(process)) {
        return NotFound("there is no log of '", process, "' in ", run_dir_,
                        names.empty() ? "" : ", there are those of", names);
      }
    }
    if (!files_.empty()) return OkStatus();
    return NotFound("there are no logs in ", run_dir_);
  }

  void PrintLast() {
    const auto count = static_cast<size_t>(options_.lines);
    std::vector<LogLine> lines;
    for (auto& [name, file] : files_) {
      if (Shows(name)) file.ReadLast(count, !options_.follow, lines);
    }
    MergeByTime(lines);
    const size_t skipped = lines.size() > count ? lines.size() - count : 0;
    lines.erase(lines.begin(), lines.begin() + static_cast<ptrdiff_t>(skipped));
    PrintPlain(TextOf(lines));
  }

  // CANCELLED for a signal, even while stdout takes nothing.
  Status PrintNew(Interrupts& interrupts) {
    FindFiles();
    std::vector<LogLine> lines;
    for (auto& [name, file] : files_) {
      if (Shows(name)) file.ReadNew(lines);
    }
    MergeByTime(lines);
    const std::string text = TextOf(lines);
    for (std::string_view rest = text; !rest.empty();) {
      if (interrupts.Wait(STDOUT_FILENO, POLLOUT) ==
          Interrupts::Woken::kSignal) {
        return InterruptedBy(interrupts.Take());
      }
      const std::string_view piece = rest.substr(0, kPieceBytes);
      PrintPlain(piece);
      rest.remove_prefix(piece.size());
    }
    return OkStatus();
  }

 private:
  void FindFiles() {
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(run_dir_, error)) {
      if (entry.path().extension() != ".log") continue;
      files_.try_emplace(entry.path().stem().string(), entry.path().string());
    }
  }

  bool Shows(const std::string& name) const {
    const Words& processes = options_.processes;
    return processes.empty() || std::find(processes.begin(), processes.end(),
                                          name) != processes.end();
  }

  std::string TextOf(const std::vector<LogLine>& lines) {
    for (const auto& [name, file] : files_) {
      if (Shows(name)) width_ = std::max(width_, name.size());
    }
    std::string text;
    for (const LogLine& line : lines) {
      text += Cat(line.log, std::string(width_ - line.log.size(), ' '), " | ",
                  line.text, "\n");
    }
    return text;
  }

  const std::string run_dir_;
  const LogsOptions& options_;
  std::map<std::string, LogFile> files_;  // by name
  size_t width_ = 0;                      // of the names
};

Status RunLogs(const LogsOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string run_dir,
                          ChooseRunDir(options.name));
  Logs logs(run_dir, options);
  SLUICE_RETURN_IF_ERROR(logs.Check());
  logs.PrintLast();
  if (!options.follow) return OkStatus();
  Interrupts interrupts;
  for (;;) {
    if (interrupts.Wait(-1, 0, kPollMilliseconds) ==
        Interrupts::Woken::kSignal) {
      return InterruptedBy(interrupts.Take());
    }
    SLUICE_RETURN_IF_ERROR(logs.PrintNew(interrupts));
  }
}

}  // namespace

void AddLogs(CommandLine& sluice) {
  const auto options = std::make_shared<LogsOptions>();
  CLI::App& logs =
      sluice.Add("logs", "the logs of a cluster's processes, merged by time",
                 [options] { return RunLogs(*options); });
  logs.add_option("NAME", options->name,
                  "as ps shows it, or a run folder; none: the only one");
  logs.add_option("--process", options->processes,
                  "a process, as stage-0 or gateway; may be given again")
      ->take_all();
  logs.add_flag("--follow", options->follow,
                "goes on with new lines, until Ctrl-C, also of processes and "
                "clusters that are started again there");
  logs.add_option("--lines", options->lines,
                  Cat("the last lines of all, at most (", kDefaultLines, ")"))
      ->check(Within(0, kMaxLines));
}

}  // namespace sluice::cli
