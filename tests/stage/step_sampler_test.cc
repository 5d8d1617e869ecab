// A step's rows over a team of threads: the results of each row alone.
#include "common/stage/step_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/device/cpu/row_sampler.h"

namespace sluice {
namespace {

constexpr int64_t kRowLogits = 20000;

// Sequences of which each samples one token, and one that has prompt
// logprobs besides.
class Step {
 public:
  explicit Step(int sequences) {
    std::mt19937 random(9);
    std::normal_distribution<float> logit(0, 3);
    for (int i = 0; i < sequences; ++i) {
      Stage::SequenceState& state = states_.emplace_back();
      const int32_t tokens = i == 1 ? 5 : 1;
      state.tokens.assign(static_cast<size_t>(tokens), 3 + i);
      state.num_prompt_tokens = tokens;
      state.sampling.seed = static_cast<uint64_t>(i);
      state.sampling.temperature = i % 4 == 2 ? 0.0f : 0.8f;
      state.sampling.top_p = i % 3 == 1 ? 0.9f : 1.0f;
      state.sampling.logprobs = i % 2 == 0 ? 3 : -1;
      state.sampling.repetition_penalty = i % 5 == 3 ? 1.5f : 1.0f;
      Chunk& chunk = parts_.emplace_back();
      chunk.sequence = SequenceId(static_cast<uint64_t>(i + 1));
      chunk.tokens = state.tokens;
      chunk.logits = i == 1 ? LogitsWanted::kAll : LogitsWanted::kLast;
      chunk.samples = true;
      chunks_.push_back({&chunk, &state});
      rows_ += i == 1 ? 5 : 1;
    }
    logits_.resize(static_cast<size_t>(rows_ * kRowLogits));
    for (float& value : logits_) value = logit(random);
  }

  // In runs of `at_once` rows.
  std::vector<SequenceResult> Results(const kernels::Context& context,
                                      int64_t at_once) {
    StepSampler step(chunks_, kRowLogits, kRowLogits);
    EXPECT_EQ(std::ssize(step.rows()), rows_);
    StepIo io;
    step.Request(io);
    RowSampler sampler(context);
    size_t done = 0;
    for (int64_t begin = 0; begin < rows_; begin += at_once) {
      const int64_t rows = std::min(at_once, rows_ - begin);
      size_t end = done;
      while (end < io.tasks.size() && io.tasks[end].row < begin + rows) ++end;
      sampler.Run(
          {logits_.data() + begin * kRowLogits, rows, kRowLogits, kRowLogits},
          static_cast<int32_t>(begin), io.tasks.subspan(done, end - done),
          io.answers.subspan(done, end - done));
      done = end;
    }
    EXPECT_EQ(done, io.tasks.size());
    return step.Finish();
  }

  float& logit(int64_t row, int64_t id) {
    return logits_[static_cast<size_t>(row * kRowLogits + id)];
  }

 private:
  std::deque<Stage::SequenceState> states_;
  std::deque<Chunk> parts_;
  std::vector<Stage::ChunkInput> chunks_;
  std::vector<float> logits_;
  int64_t rows_ = 0;
};

TEST(StepSamplerTest, ThreadsAndRunsOfRowsChangeNoBit) {
  const kernels::Isa isa = kernels::DetectIsa();
  for (const int sequences : {1, 2, 3, 7}) {
    Step step(sequences);
    const auto want = step.Results({nullptr, isa}, 1);
    ASSERT_EQ(want.size(), static_cast<size_t>(sequences));
    for (const int threads : {1, 2, 3, 5, 16}) {
      ThreadTeam team({.num_threads = threads});
      for (const int64_t at_once : {1, 3, 64}) {
        const auto got = step.Results({&team, isa}, at_once);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(got[i].prompt.size(), i == 1 ? 4u : 0u);
          EXPECT_EQ(got[i].sampled.size(), 1u);
          EXPECT_TRUE(got[i].sampled == want[i].sampled) << threads;
          EXPECT_TRUE(got[i].prompt == want[i].prompt) << threads;
        }
      }
    }
  }
}

TEST(StepSamplerTest, ARowWithNanEndsItsSequenceAlone) {
  Step step(3);
  step.logit(6, 12345) = std::nanf("");  // the third sequence's
  ThreadTeam team({.num_threads = 2});
  for (const int64_t at_once : {1, 64}) {
    const auto got = step.Results({&team, kernels::DetectIsa()}, at_once);
    EXPECT_TRUE(got[0].status.ok() && got[1].status.ok());
    EXPECT_EQ(got[2].status.code(), StatusCode::kInternal);
    EXPECT_EQ(Message(got[2].status), "logit of token 12345 is nan");
    EXPECT_TRUE(got[2].sampled.empty());
  }
}

// Also where the row that a token is drawn from is whole: a sequence that
// failed has no token for a step that goes on from it.
TEST(StepSamplerTest, APromptRowWithNanLeavesItsSequenceNoToken) {
  Step step(3);
  step.logit(2, 7) = std::nanf("");  // the second sequence's, of its prompt
  const auto got = step.Results({nullptr, kernels::DetectIsa()}, 64);
  EXPECT_EQ(got[1].status.code(), StatusCode::kInternal);
  EXPECT_TRUE(got[1].sampled.empty());
  EXPECT_TRUE(got[1].prompt.empty());
  EXPECT_TRUE(got[0].status.ok() && got[2].status.ok());
}

// One sequence with a prompt of two tokens; row i is likeliest to give `i`.
class DraftStep {
 public:
  static constexpr int64_t kVocab = 6;

  explicit DraftStep(std::vector<TokenId> drafts) {
    state_.tokens = {9, 9};
    state_.num_prompt_tokens = 2;
    state_.sampling.temperature = 0;
    state_.sampling.return_logits = true;
    chunk_.sequence = SequenceId(1);
    chunk_.tokens = state_.tokens;
    chunk_.logits = LogitsWanted::kLast;
    chunk_.samples = true;
    chunk_.num_draft_tokens = static_cast<int32_t>(drafts.size());
    chunk_.tokens.insert(chunk_.tokens.end(), drafts.begin(), drafts.end());
    state_.tokens = chunk_.tokens;
    for (size_t row = 0; row <= drafts.size(); ++row) {
      for (int64_t id = 0; id < kVocab; ++id) {
        logits_.push_back(id == static_cast<int64_t>(row) ? 2.0f : 1.0f);
      }
    }
  }

  SequenceResult Result() {
    const std::vector<Stage::ChunkInput> chunks = {{&chunk_, &state_}};
    StepSampler step(chunks, kVocab, kVocab);
    const auto rows = std::ssize(logits_) / kVocab;
    EXPECT_EQ(std::ssize(step.rows()), rows);
    EXPECT_EQ(step.rows()[0], 1);
    StepIo io;
    step.Request(io);
    RowSampler sampler({nullptr, kernels::Isa::kPortable});
    sampler.Run({logits_.data(), rows, kVocab, kVocab}, 0, io.tasks,
                io.answers);
    for (const RawLogits& raw : io.raw_logits) {
      std::copy_n(logits_.begin() + raw.row * kVocab, kVocab, raw.to);
    }
    return step.Finish().at(0);
  }
  std::vector<TokenId> Sampled() {
    std::vector<TokenId> ids;
    const SequenceResult result = Result();
    for (const TokenResult& token : result.sampled) ids.push_back(token.token);
    EXPECT_EQ(result.logits.size(), ids.size() * size_t{kVocab});
    return ids;
  }

  Stage::SequenceState state_;
  Chunk chunk_;
  std::vector<float> logits_;
};

TEST(StepSamplerDraftTest, DraftsAreAcceptedUntilOneIsWrong) {
  const std::vector<TokenId> none = {0}, two = {0, 1, 2}, all = {0, 1, 2, 3};
  EXPECT_EQ(DraftStep({}).Sampled(), none);
  EXPECT_EQ(DraftStep({0, 1, 2}).Sampled(), all);
  EXPECT_EQ(DraftStep({0, 1, 5}).Sampled(), two);
  EXPECT_EQ(DraftStep({5, 1, 2}).Sampled(), none);
}

TEST(StepSamplerDraftTest, ABrokenRowBehindAWrongDraftHarmsNoSequence) {
  DraftStep step({5, 1});
  step.logits_.back() = std::nanf("");
  EXPECT_EQ(step.Sampled(), std::vector<TokenId>{0});
  DraftStep right({0, 1});
  right.logits_.back() = std::nanf("");
  EXPECT_EQ(right.Result().status.code(), StatusCode::kInternal);
}

TEST(StepSamplerDraftTest, EachTokenHasItsOwnMask) {
  DraftStep step({4, 1});
  step.chunk_.masks = {{{{4, 6}}, false}, {{}, true}, {{{2, 3}}, true}};
  EXPECT_EQ(step.Sampled(), (std::vector<TokenId>{4, 1, 0}));
}

// The second row's history has the first draft, whose token is penalised.
TEST(StepSamplerDraftTest, PenaltiesSeeAcceptedDrafts) {
  DraftStep step({0, 0});
  step.logits_[DraftStep::kVocab] = 2.5f;  // token 0 again, unless penalised
  EXPECT_EQ(step.Sampled(), (std::vector<TokenId>{0, 0, 2}));
  step.state_.sampling.presence_penalty = 2;
  step.state_.counts = TokenCounts::Of(std::vector<TokenId>{9, 9}, 2);
  EXPECT_EQ(step.Sampled(), (std::vector<TokenId>{0, 1}));
}

}  // namespace
}  // namespace sluice
