#ifndef SLUICE_SERVICES_CLI_BENCH_PROMPT_MAKER_H_
#define SLUICE_SERVICES_CLI_BENCH_PROMPT_MAKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/cli/bench/arrivals.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// Makes prompts of a wanted number of tokens out of common words.
class PromptMaker {
 public:
  // Asks the server's /tokenize for words of one token each, and for the tokens
  // that a chat template adds. Without /tokenize every word counts as one
  // token, and exact() is false.
  static StatusOr<PromptMaker> Learn(const BaseUrl& base,
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

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_PROMPT_MAKER_H_
