#ifndef SLUICE_SERVICES_CLI_BENCH_MODEL_REPORT_H_
#define SLUICE_SERVICES_CLI_BENCH_MODEL_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "services/cli/bench/model_run.h"

namespace sluice::cli {

// All calls of one operation on one shape within a step. Figures are medians
// over rounds; a share is that of a round's rate in its own limit, and 0 where
// there is no rate or no limit.
struct KernelRow {
  std::string op;
  std::string shape;
  std::string type;
  int64_t tokens = 0;     // rows of activations
  int64_t calls = 0;      // in one step
  double seconds = 0;     // of one call
  double gb_per_s = 0;    // of weights, or of keys and values
  double read_share = 0;  // of the read bandwidth of all threads
  double gop_per_s = 0;   // multiplications and additions
  double peak_share = 0;  // of the peak of byte products, or of F32's
  bool integer = false;   // which of the two
};

// One part of a step's time.
struct StepPart {
  std::string name;
  double seconds = 0;
};

// Where the time of the round with the median time went.
struct StepPicture {
  double seconds = 0;           // of the step: the sum of the parts
  std::vector<StepPart> parts;  // in the order of a step, "between ops" last
  double barriers = 0;          // seconds within the parts, in forks and joins
  int64_t joins = 0;
  double gb_per_s = 0;    // of weights, keys and values
  double read_share = 0;  // of the round's read bandwidth of all threads
};

// In the order of a step. `run` has a round, the same operations in each.
std::vector<KernelRow> KernelRows(const StepRun& run);
StepPicture PictureOf(const StepRun& run);

// Returns the text for a terminal.
std::string KernelsText(const ModelRun& run);
std::string LayersText(const ModelRun& run);

// Returns {"command", "cpu", "model", "limits", "steps": [..]}; seconds.
std::string ModelRunJson(const std::string& command, const ModelRun& run);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_MODEL_REPORT_H_
