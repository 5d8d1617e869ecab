// Constrained requests of every kind among free ones: the same tokens and
// logprobs, bit for bit, over stages, ranks, batches, chunks and preemption,
// and whether forced tokens are taken several at a time or one by one.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/grammar/grammar_compiler.h"
#include "tests/integration/one_hash.h"
#include "tests/testing/golden_model.h"
#include "tests/text/text_fixtures.h"

namespace sluice {
namespace {

using Kind = GrammarSpec::Kind;

constexpr size_t kConstrained = 12;

// The model's vocabulary read as the tiny tokenizer's: bytes, a few merges,
// and ids that no token has. The model knows nothing of it; the masks hold.
class Grammars {
 public:
  Grammars() : tokenizer_(testing::TinyTokenizer()) {
    eos_ = {*tokenizer_->TokenToId("<|im_end|>")};
    compiler_ = *GrammarCompiler::Create(*tokenizer_, kVocab, eos_, {});
    const std::string person =
        R"({"type":"object","properties":{"name":{"type":"string",
            "minLength":90,"maxLength":110},"age":{"type":"integer","minimum":0,"maximum":120},
            "a long name of a property":{"const":"and a long value of it"}},
            "required":["name","age","a long name of a property"],
            "additionalProperties":false})";
    for (const GrammarSpec& spec : std::vector<GrammarSpec>{
             {Kind::kJsonSchema, person},
             {Kind::kJsonObject, ""},
             {Kind::kRegex, "[a-f]{90,100}(-[0-9]{4}){2}"},
             {Kind::kChoice, R"(["yes, surely","no, not at all","perhaps"])"},
             {Kind::kLark,
              "start: \"<<\" WORD (\", \" WORD)* \">>\"\n"
              "WORD: /[a-z]{80,90}/\n"},
             {Kind::kGbnf, "root ::= \"(\" (root | [0-9]{1,3}) \")\"\n"}}) {
      auto made = compiler_->Compile(spec, "");
      EXPECT_TRUE(made.ok()) << made.status();
      grammars_.push_back(*made);
    }
  }

  // Constrains the first requests, which have long answers, and some of the
  // others.
  ChangeRequest Constrain(bool takes_forced) const {
    return [this, takes_forced](size_t index, GenerateRequest& request) {
      const bool is_long = index < 8;
      if (!is_long && (index < 16 || index >= 16 + kConstrained - 8)) return;
      // Some grammars end early: what goes on fills a small pool alone.
      if (is_long) request.max_tokens += 48;
      GrammarUse use;
      use.grammar = grammars_[index % grammars_.size()];
      use.takes_forced = takes_forced;
      request.eos_token_ids = eos_;
      request.constraint = compiler_->NewConstraint(std::move(use));
    };
  }

  // The text of a record's tokens, and how it ended.
  std::string TextOf(const std::string& record) const {
    std::vector<TokenId> tokens;
    std::istringstream words(record);
    for (std::string word; words >> word;) {
      if (word[0] == 't') tokens.push_back(std::stoi(word.substr(1)));
    }
    return *tokenizer_->Decode(tokens, false);
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<TokenId> eos_;
  std::unique_ptr<GrammarCompiler> compiler_;
  std::vector<std::shared_ptr<const Grammar>> grammars_;
};

struct GrammarCut {
  int stages, ranks, blocks, concurrency, chunk;
  bool takes_forced;
};

TEST(OneHashGrammarTest, GrammarsGiveTheSameBitsOverAllCuts) {
  const std::string model = testing::GoldenModel("stories");
  const Grammars grammars;
  LocalClusterOptions alone = Base(model);
  alone.engine.prefill_chunk = 0;
  alone.engine.prefix_cache = false;
  alone.grpc = false;
  const Outcome reference =
      RunCluster(alone, 1, kVocab, grammars.Constrain(false));
  ASSERT_EQ(reference.records.size(), size_t{kRequests});
  // The answers are what the grammars say: these are complete.
  const std::string choice = grammars.TextOf(reference.records[3]);
  EXPECT_TRUE(choice == "yes, surely" || choice == "no, not at all" ||
              choice == "perhaps")
      << choice;
  EXPECT_TRUE(reference.records[3].ends_with("stop")) << reference.records[3];
  EXPECT_TRUE(grammars.TextOf(reference.records[0]).starts_with("{"));

  Seen seen;
  uint64_t fewest_steps = reference.stats.steps;
  for (const GrammarCut& cut :
       std::vector<GrammarCut>{{1, 1, kPlentyOfBlocks, 1, 0, true},
                               {1, 1, kPlentyOfBlocks, 32, 64, false},
                               {1, 2, kFewBlocks, 16, 16, true},
                               {2, 1, kFewBlocks, 32, 64, true},
                               {2, 2, kPlentyOfBlocks, 16, 16, false},
                               {3, 1, kFewBlocks, 8, 0, false},
                               {3, 3, kPlentyOfBlocks, 32, 16, true}}) {
    for (const Duration ahead :
         {Duration::zero(), Duration(std::chrono::seconds(60))}) {
      LocalClusterOptions options = Base(model);
      options.stages = cut.stages;
      options.stage.ranks = cut.ranks;
      options.stage.kv_blocks = cut.blocks;
      options.engine.prefill_chunk = cut.chunk;
      options.engine.ahead_within = ahead;
      const Outcome outcome = RunCluster(options, cut.concurrency, kVocab,
                                         grammars.Constrain(cut.takes_forced));
      ExpectSame(outcome.records, reference.records,
                 Cat("stages ", cut.stages, " ranks ", cut.ranks, " blocks ",
                     cut.blocks, " at once ", cut.concurrency, " chunk ",
                     cut.chunk, " forced ", cut.takes_forced));
      if (HasFatalFailure()) return;
      if (cut.concurrency == 1 && ahead == Duration::zero()) {
        fewest_steps = outcome.stats.steps;
      }
      seen.Add(outcome.stats);
    }
  }
  EXPECT_GT(seen.preemptions, 0u);
  // Forced tokens save steps.
  EXPECT_LT(fewest_steps, reference.stats.steps);
}

}  // namespace
}  // namespace sluice
