#ifndef SLUICE_COMMON_TOOLS_LOAD_WORKLOAD_H_
#define SLUICE_COMMON_TOOLS_LOAD_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/http/http_client.h"
#include "common/tools/load/arrivals.h"
#include "common/tools/load/load_generator.h"

namespace sluice::load {

// Makes prompts of a wanted number of tokens out of common words.
class PromptMaker {
 public:
  // Asks the server's /tokenize for words of one token each, and for the tokens
  // that a chat template adds. Without /tokenize every word counts as one
  // token, and exact() is false.
  static StatusOr<PromptMaker> Learn(const http::BaseUrl& base,
                                     const std::string& model, bool chat);

  bool exact() const { return exact_; }
  // Returns whether completions are token ids (else words): needs exact().
  bool makes_ids() const { return exact_ && !chat_; }

  std::vector<int64_t> Ids(int64_t tokens, SeededRandom& random) const;
  std::string Text(int64_t tokens, SeededRandom& random) const;

 private:
  std::vector<std::string> words_;  // each with a space before it
  std::vector<int64_t> ids_;        // of words_
  int64_t template_tokens_ = 0;     // a chat's own tokens
  bool exact_ = false;
  bool chat_ = false;
};

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
                                    const http::BaseUrl& base);
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

}  // namespace sluice::load

#endif  // SLUICE_COMMON_TOOLS_LOAD_WORKLOAD_H_
