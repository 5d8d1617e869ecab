#ifndef SLUICE_SERVICES_CLI_BENCH_PROGRESS_H_
#define SLUICE_SERVICES_CLI_BENCH_PROGRESS_H_

#include <cstdint>
#include <string>

#include "services/cli/bench/load_generator.h"

namespace sluice::cli {

// How far a run is, on stderr: a bar that is drawn anew on a terminal, else a
// line every few seconds. Threadless.
class ProgressBar {
 public:
  // The run ends after `requests` (0: unknown) or `duration_s` (0: unknown).
  ProgressBar(std::string what, int64_t requests, double duration_s);

  void Show(const LoadProgress& progress);
  void Finish();

  // The text of one bar, `width` columns at most: what Show draws.
  std::string Line(const LoadProgress& progress, int width) const;

 private:
  const std::string what_;
  const int64_t requests_;
  const double duration_s_;
  const bool terminal_;
  double next_line_s_ = 0;
  bool shown_ = false;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_PROGRESS_H_
