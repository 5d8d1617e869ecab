#ifndef SLUICE_SERVICES_CLI_BENCH_WORKLOAD_H_
#define SLUICE_SERVICES_CLI_BENCH_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"
#include "services/cli/bench/load_generator.h"
#include "services/cli/bench/prompt_maker.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// A number of tokens, evenly distributed from low to high.
struct LengthRange {
  int64_t low = 0, high = 0;
  // Parses "128" or "64:256".
  static StatusOr<LengthRange> Parse(std::string_view text);
};

struct WorkloadOptions {
  bool chat = false;
  std::string model;
  LengthRange prompt_tokens{128, 128};
  LengthRange output_tokens{128, 128};
  std::string extra;  // a JSON object: fields for every body
  double temperature = 0;
  // Adds ignore_eos and return_token_ids, which some servers do not know.
  bool extensions = true;
  uint64_t seed = 0;
};

// The requests of a run. A request is a function of the options and its index.
// Threadless.
class Workload {
 public:
  // Asks the server's /tokenize how to make prompts of exact lengths. Without
  // it a word counts as a token, and the server's usage tells the lengths.
  // INVALID_ARGUMENT for an `extra` that is no JSON object.
  static StatusOr<Workload> Prepare(const WorkloadOptions& options,
                                    const BaseUrl& base);
  LoadRequest Request(int64_t index) const;

  // For the report: the kind of prompts, and whether their lengths are exact.
  std::string prompt_kind() const {
    return maker_.makes_ids() ? "random token ids" : "random words";
  }
  bool exact() const { return maker_.exact(); }

 private:
  WorkloadOptions options_;
  Json fields_;  // of every body
  PromptMaker maker_;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_WORKLOAD_H_
