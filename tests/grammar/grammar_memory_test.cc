// Too little memory ends one sequence's grammar: other sequences of the same
// grammar go on, and so do later ones.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "common/grammar/grammar_compiler.h"
#include "common/grammar/matcher.h"
#include "tests/testing/fail_each.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

constexpr char kSchema[] =
    R"({"type":"object","required":["name","age"],"properties":{)"
    R"("name":{"type":"string","pattern":"[a-z]{2,30}"},)"
    R"("age":{"type":"integer","minimum":0,"maximum":130}}})";

class GrammarMemoryTest : public ::testing::Test {
 protected:
  GrammarMemoryTest() : tokenizer_(TinyTokenizer()) {
    const std::vector<TokenId> eos = {*tokenizer_->TokenToId("<|im_end|>")};
    compiler_ = *GrammarCompiler::Create(*tokenizer_, tokenizer_->vocab_size(),
                                         eos, {});
  }

  std::shared_ptr<const Grammar> Compile() {
    auto grammar =
        compiler_->Compile({GrammarSpec::Kind::kJsonSchema, kSchema}, "");
    EXPECT_TRUE(grammar.ok()) << Message(grammar.status());
    return *std::move(grammar);
  }

  // The masks along a fixed answer.
  std::string Steps() {
    auto matcher = Matcher::Make(Compile());
    EXPECT_TRUE(matcher.ok()) << Message(matcher.status());
    std::string masks;
    const auto take = [&](std::span<const TokenId> tokens) {
      const ConstraintStep step = (*matcher)->Step(tokens, 0);
      EXPECT_TRUE(step.status.ok()) << Message(step.status);
      if (!step.mask) return;
      for (const TokenRun& run : step.mask->runs) {
        masks +=
            std::to_string(run.begin) + "-" + std::to_string(run.end) + " ";
      }
    };
    take({});
    for (const TokenId id : answer_) take(std::span(&id, 1));
    return masks;
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  const Ids answer_ = *tokenizer_->Encode(R"({"name":"ada","age":36)", kRaw);
  std::unique_ptr<GrammarCompiler> compiler_;
};

TEST_F(GrammarMemoryTest, AMatcherThrowsAndOthersGoOn) {
  ExpectEachFailureThrows("a matcher's steps, 4 KiB", 4 << 10, 200,
                          [&] { return Steps(); });
  ExpectEachFailureThrows("a matcher's steps, any", 1, 200,
                          [&] { return Steps(); });
}

TEST_F(GrammarMemoryTest, ASpoiltGrammarIsCompiledAnew) {
  const auto spoilt = Compile();
  EXPECT_EQ(Compile(), spoilt);
  spoilt->Spoil();
  EXPECT_THROW(Matcher::Make(spoilt).ok(), std::bad_alloc);
  const auto fresh = Compile();
  EXPECT_NE(fresh, spoilt);
  EXPECT_TRUE(Matcher::Make(fresh).ok());
}

TEST_F(GrammarMemoryTest, AConstraintEndsWithUnavailable) {
  const auto grammar = Compile();
  auto constraint = compiler_->NewConstraint({.grammar = grammar});
  std::promise<void> ready;
  {
    // Every allocation of the thread that computes the step; this one waits.
    const auto advance = [&] {
      constraint->Advance({}, [&] { ready.set_value(); });
    };
    const FailingAllocation failing(1, 4 << 10, /*lasts=*/true);
    advance();
    ready.get_future().wait();
  }
  EXPECT_EQ(constraint->Latest()->status.code(), StatusCode::kUnavailable)
      << Message(constraint->Latest()->status);
}

}  // namespace
}  // namespace sluice::testing
