#include "services/cli/bench/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace sluice::cli {
namespace {

constexpr double kSecondsPerLine = 5;
constexpr int kBarWidth = 24;
constexpr int kTerminalWidth = 79;  // of any

}  // namespace

ProgressBar::ProgressBar(std::string what, int64_t requests, double duration_s)
    : what_(std::move(what)),
      requests_(requests),
      duration_s_(duration_s),
      terminal_(isatty(STDERR_FILENO) == 1) {}

std::string ProgressBar::Line(const LoadProgress& progress, int width) const {
  double share = 0;
  if (requests_ > 0) {
    share = static_cast<double>(progress.ended) / double(requests_);
  }
  if (duration_s_ > 0)
    share = std::max(share, progress.elapsed_s / duration_s_);
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBarWidth);
  char text[256];
  std::snprintf(
      text, sizeof(text),
      "%s [%s%s] %lld%s requests, %lld in flight, %.0f tokens/s, %.0f s",
      what_.c_str(), std::string(static_cast<size_t>(full), '#').c_str(),
      std::string(static_cast<size_t>(kBarWidth - full), '.').c_str(),
      static_cast<long long>(progress.ended),
      requests_ > 0 ? Cat("/", requests_).c_str() : "",
      static_cast<long long>(progress.in_flight),
      static_cast<double>(progress.tokens) / std::max(progress.elapsed_s, 1e-3),
      progress.elapsed_s);
  std::string line = text;
  if (progress.failed > 0) line += Cat(", ", progress.failed, " failed");
  return line.substr(0, static_cast<size_t>(std::max(width, 1)));
}

void ProgressBar::Show(const LoadProgress& progress) {
  if (terminal_) {
    std::fprintf(stderr, "\r%s\x1b[K", Line(progress, kTerminalWidth).c_str());
    shown_ = true;
  } else if (progress.elapsed_s >= next_line_s_) {
    next_line_s_ = progress.elapsed_s + kSecondsPerLine;
    std::fprintf(stderr, "%s\n", Line(progress, 200).c_str());
  }
}

void ProgressBar::Finish() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

}  // namespace sluice::cli
