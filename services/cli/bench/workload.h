#ifndef SLUICE_SERVICES_CLI_BENCH_WORKLOAD_H_
#define SLUICE_SERVICES_CLI_BENCH_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "services/cli/bench/load_generator.h"
#include "services/cli/bench/prompt_maker.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// Numbers of tokens, evenly distributed from low to high.
struct LengthRange {
  int64_t low = 0, high = 0;
  // "128", or "64:256".
  static StatusOr<LengthRange> Parse(std::string_view text);
};

struct WorkloadOptions {
  bool chat = false;
  std::string model;
  LengthRange prompt_tokens{128, 128};
  LengthRange output_tokens{128, 128};
  std::string file;   // JSONL of prompts or lengths; empty: none
  std::string extra;  // a JSON object: fields for every body
  double temperature = 0;
  // ignore_eos and return_token_ids, which not every server knows.
  bool extensions = true;
  uint64_t seed = 0;
  bool warmup = false;  // WarmupRequest will be called
};

// The requests of a run. The request of an index is a function of the options
// and the index alone. Threadless.
class Workload {
 public:
  // Reads the file and asks the server's /tokenize how to make prompts of
  // exact lengths. Where it has none, a word is taken for a token, and
  // lengths are what the server's usage tells.
  static StatusOr<Workload> Prepare(const WorkloadOptions& options,
                                    const BaseUrl& base);
  LoadRequest Request(int64_t index) const;

  // A request of the same kind and about the same length, whose prompt is
  // made even where the file gives one: a server that has seen the prompts of
  // a run has them in its cache. Needs options.warmup.
  LoadRequest WarmupRequest(int64_t index) const;

  // How many of the first `requests` send a prompt of the file that an
  // earlier one has sent.
  int64_t Repeated(int64_t requests) const;

  // How prompts are made, and whether their lengths are exact: for the report.
  const std::string& prompt_kind() const { return kind_; }
  bool exact() const { return exact_; }

 private:
  // One line of the file: a prompt, lengths, or both.
  struct FileLine {
    std::optional<Json> prompt;    // text or token ids
    std::optional<Json> messages;  // a chat's
    std::optional<int64_t> prompt_tokens, output_tokens;
    int64_t RoughTokens(int64_t otherwise) const;
  };

  static StatusOr<FileLine> ParseLine(const Json& json, bool chat);
  LoadRequest Make(int64_t index, bool given_prompts) const;

  WorkloadOptions options_;
  Json fields_;  // of every body
  std::vector<FileLine> lines_;
  PromptMaker maker_;
  std::string kind_ = "from the file";
  bool exact_ = false;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_WORKLOAD_H_
