// Drafts change no bit: guesses of perfect, hopeless and mixed oracles, over
// stages, ranks, preemption and layers that see a window, greedy and sampled.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/one_hash.h"
#include "tests/testing/golden_model.h"

namespace sluice {
namespace {

// What the requests got with `records`: prompt and tokens by their seed.
std::map<uint64_t, std::vector<TokenId>> Histories(
    const std::vector<std::string>& records, int vocab) {
  std::map<uint64_t, std::vector<TokenId>> histories;
  size_t i = 0;
  for (const GenerateRequest& request : MixedRequests(vocab)) {
    std::vector<TokenId> tokens = request.prompt_tokens;
    std::istringstream words(records.at(i++));
    for (std::string word; words >> word;) {
      if (word[0] == 't') tokens.push_back(std::stoi(word.substr(1)));
    }
    histories[request.sampling.seed] = std::move(tokens);
  }
  return histories;
}

// Guesses each token of the histories right but every `wrong_every`th; 0:
// all right. What follows them is guessed as well, since a sequence may end.
DraftProposer Oracle(std::map<uint64_t, std::vector<TokenId>> histories,
                     int wrong_every, int vocab) {
  return [=](std::span<const TokenId> tokens, const SamplingParams& sampling,
             int32_t limit) {
    const std::vector<TokenId>& history = histories.at(sampling.seed);
    std::vector<TokenId> drafts;
    for (size_t p = tokens.size(); std::ssize(drafts) < limit; ++p) {
      const TokenId token = p < history.size() ? history[p] : 5;
      const bool wrong = wrong_every > 0 && p % size_t(wrong_every) == 0;
      drafts.push_back(wrong ? (token + 1) % vocab : token);
    }
    return drafts;
  };
}

struct DraftCut {
  int stages = 1;
  int ranks = 1;
  int blocks = kPlentyOfBlocks;
};

// Drafts of perfect, hopeless and mixed oracles over `cuts`.
void ExpectDraftsChangeNothing(const LocalClusterOptions& base, int vocab,
                               const std::vector<DraftCut>& cuts) {
  LocalClusterOptions alone = base;
  alone.engine.prefill_chunk = 0;
  alone.engine.prefix_cache = false;
  alone.grpc = false;
  const Outcome reference = RunCluster(alone, 1, vocab);
  const auto histories = Histories(reference.records, vocab);
  Seen seen;
  for (const DraftCut& cut : cuts) {
    for (const int wrong_every : {0, 1, 3}) {
      LocalClusterOptions options = base;
      options.stages = cut.stages;
      options.stage.ranks = cut.ranks;
      options.stage.kv_blocks = cut.blocks;
      options.engine.propose_drafts = Oracle(histories, wrong_every, vocab);
      const bool one_by_one = cut.stages == 1 && cut.blocks == kPlentyOfBlocks;
      const Outcome outcome = RunCluster(options, one_by_one ? 1 : 16, vocab);
      ExpectSame(outcome.records, reference.records,
                 Cat("stages ", cut.stages, " ranks ", cut.ranks, " blocks ",
                     cut.blocks, " wrong every ", wrong_every));
      if (::testing::Test::HasFatalFailure()) return;
      if (one_by_one) {
        // A right draft saves a step; a wrong one costs none.
        const uint64_t steps = reference.stats.steps;
        if (wrong_every == 0) {
          EXPECT_LT(2 * outcome.stats.steps, steps);
        } else if (wrong_every == 3) {
          EXPECT_LT(outcome.stats.steps, steps);
        }
        EXPECT_GT(outcome.stats.computed_tokens,
                  outcome.stats.generation_tokens);
      }
      seen.Add(outcome.stats);
    }
  }
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GE(seen.most_plans, 2);
}

TEST(OneHashDraftTest, RightAndWrongDraftsGiveTheSameBits) {
  const std::string model = testing::GoldenModel("stories");
  ExpectDraftsChangeNothing(Base(model), kVocab,
                            {{1, 1, kPlentyOfBlocks},
                             {1, 2, kFewBlocks},
                             {2, 1, kFewBlocks},
                             {2, 2, kPlentyOfBlocks},
                             {3, 1, kPlentyOfBlocks},
                             {3, 2, kFewBlocks}});
}

TEST(OneHashDraftTest, DraftsChangeNoBitWithWindowedLayers) {
  const std::string model = testing::GoldenModel("gpt_oss-mxfp4");
  LocalClusterOptions base = Base(model);
  base.stage.max_step_tokens = 64;
  ExpectDraftsChangeNothing(base, 256, {{1, 1, 26}, {2, 2, 26}, {3, 1, 26}});
}

}  // namespace
}  // namespace sluice
