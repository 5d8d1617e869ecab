// Sampling on a device against the CPU's sampler: the same tokens, log
// probabilities and errors.
#include "common/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/device/cuda/device_backends.h"

namespace sluice::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> GaussianLogits(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> logit(-2, 3);
  std::vector<float> logits(static_cast<size_t>(size));
  for (float& value : logits) value = logit(random);
  return logits;
}

// Rows of logits with a task each.
struct Rows {
  explicit Rows(int64_t size) : vocab(size) {}

  // Adds a row with a draw; the caller keeps the parameters.
  TokenTask& Add(std::vector<float> row, const SamplingParams& params) {
    logits.insert(logits.end(), row.begin(), row.end());
    RowTask& added = tasks.emplace_back();
    added.row = static_cast<int32_t>(tasks.size() - 1);
    added.task.params = &params;
    added.task.point = {added.row, history, 3};
    return added.task;
  }
  void ExpectTheCpus() {
    SLUICE_REQUIRE_DEVICE();
    for (const Turns turns : {Turns::kForward, Turns::kBackward}) {
      ExpectTheCpus(turns);
    }
  }

  const int64_t vocab;
  std::vector<float> logits;
  std::vector<RowTask> tasks;
  std::vector<TokenId> history = {0, 0, 0};

 private:
  void ExpectTheCpus(Turns turns) {
    const auto backend = std::move((*DeviceBackends(turns)({.ranks = 1}))[0]);
    const auto count = static_cast<int64_t>(tasks.size());
    const DeviceMemory memory =
        backend->Allocate(logits.size() * sizeof(float));
    const DeviceMatrix device = {memory.data(), count, vocab, vocab};
    backend->CopyIn(logits.data(), device);
    std::vector<StatusOr<TokenResult>> answers(tasks.size(), TokenResult());
    static const auto* const kStep =
        new StepInputs(StepLimits{.max_step_tokens = 64});
    backend->BeginStep(*kStep);
    backend->Sample(device, 0, tasks, answers);
    EXPECT_FALSE(answers[0].ok()) << "an answer before the step's end";
    backend->EndStep();
    Sampler cpu(kernels::Isa::kPortable);
    for (size_t i = 0; i < tasks.size(); ++i) {
      TokenTask task = tasks[i].task;
      task.logits = std::span(logits).subspan(i * static_cast<size_t>(vocab),
                                              static_cast<size_t>(vocab));
      const auto want = cpu.Run(task);
      ASSERT_EQ(answers[i].ok(), want.ok()) << answers[i].status();
      if (want.ok()) {
        EXPECT_EQ(*answers[i], *want)
            << vocab << " logits, row " << i << ": token " << answers[i]->token
            << " in place of " << want->token;
      } else {
        EXPECT_EQ(answers[i].status(), want.status());
      }
    }
  }
};

SamplingParams Filters(float temperature, int32_t top_k, float top_p,
                       float min_p, int32_t logprobs) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.logprobs = logprobs;
  params.seed = 0x123456789ABCDEF;
  params.choice = 2;
  return params;
}

// Each alone, together, and at their ends.
const std::vector<SamplingParams>& AllFilters() {
  static const auto* const kFilters = new std::vector<SamplingParams>{
      Filters(0, 0, 1, 0, -1), Filters(0, 0, 1, 0, 0), Filters(1, 0, 1, 0, -1),
      Filters(1, 0, 1, 0, 5), Filters(0.7f, 0, 1, 0, 20),
      Filters(2, 0, 1, 0, -1), Filters(1, 40, 1, 0, 3),
      Filters(1, 1000, 1, 0, -1), Filters(1, 2, 1, 0, -1),
      Filters(1, 0, 0.95f, 0, -1), Filters(1.5f, 0, 0.5f, 0, 1),
      Filters(1, 0, 0.9999f, 0, -1), Filters(1, 0, 1, 0.05f, -1),
      Filters(1, 0, 1, 1e-35f, -1), Filters(0.8f, 100, 0.9f, 0, 2),
      Filters(0.9f, 50, 0.8f, 0.02f, -1), Filters(1, 0, 0.9f, 0.01f, -1),
      Filters(1, 1, 1, 0, -1), Filters(1, 0, 1e-9f, 0, -1),
      Filters(1, 0, 1, 1, -1), Filters(100, 0, 0.3f, 0, -1),
      Filters(0.01f, 0, 0.99f, 0, 0),
      // More than the weights, rounded down, add up to.
      Filters(1, 0, 0.99999994f, 0, -1)};
  return *kFilters;
}

TEST(CudaSamplerTest, EveryFilterDrawsTheCpusTokenAtEveryBoundary) {
  for (const int64_t vocab : {1, 2, 17, 255, 256, 257, 513, 2500}) {
    Rows rows(vocab);
    uint32_t seed = 1;
    for (const SamplingParams& params : AllFilters()) {
      rows.Add(GaussianLogits(vocab, ++seed), params);
    }
    rows.ExpectTheCpus();
  }
}

TEST(CudaSamplerTest, EqualLogitsAreOrderedByIdAndZerosAreEqual) {
  Rows rows(700);
  for (const SamplingParams& params : AllFilters()) {
    std::vector<float> logits(700, 0.0f);
    for (size_t i = 0; i < 700; i += 3) logits[i] = -0.0f;
    for (size_t i = 5; i < 700; i += 7) logits[i] = -1.5f;
    rows.Add(logits, params);
  }
  rows.ExpectTheCpus();
}

TEST(CudaSamplerTest, LargeVocabulariesLookAtTheirLargestPiecesAlone) {
  Rows rows(20000);
  for (const size_t i : {0, 3, 6, 9, 10, 14, 15}) {
    rows.Add(GaussianLogits(20000, 7), AllFilters()[i]);
  }
  rows.ExpectTheCpus();
}

TEST(CudaSamplerTest, BiasesMasksStopsAndPenaltiesChangeTheLogits) {
  constexpr int64_t kVocab = 600;
  const TokenMask allowed = {{{0, 3}, {250, 260}, {511, 600}}, false};
  const TokenMask excluded = {{{1, 200}, {256, 512}}, true};
  const TokenMask one = {{{7, 8}}, false};
  Rows rows(kVocab);
  for (TokenId i = 3; i < 40; ++i) rows.history.push_back(i * 13 % kVocab);
  for (TokenId i = 0; i < 5; ++i) rows.history.push_back(39);
  std::vector<SamplingParams> kept;
  kept.reserve(2 * AllFilters().size());
  uint32_t seed = 50;
  const auto add = [&](const SamplingParams& params, const TokenMask* mask) {
    kept.push_back(params);
    rows.Add(GaussianLogits(kVocab, ++seed), kept.back()).mask = mask;
  };
  const TokenMask* const masks[] = {nullptr, &allowed, &excluded, &one};
  for (size_t i = 0; i < AllFilters().size(); ++i) {
    SamplingParams params = AllFilters()[i];
    if (i % 2 == 0) params.logit_bias = {{3, 100}, {255, -7.5f}, {599, 2}};
    if (i % 3 != 0) params.repetition_penalty = i % 2 == 0 ? 1.3f : 0.5f;
    if (i % 4 != 0) params.frequency_penalty = 0.75f;
    if (i % 5 != 0) params.presence_penalty = -1.25f;
    params.min_tokens = i % 3 == 0 ? 1000 : 0;
    params.stop_token_ids = {7, 39, 512};
    add(params, masks[i % 4]);
  }
  rows.ExpectTheCpus();
}

TEST(CudaSamplerTest, ChangedLogitsStayInTheirRange) {
  constexpr int64_t kVocab = 300;
  constexpr float kMost = std::numeric_limits<float>::max();
  Rows rows(kVocab);
  rows.history = {0, 0, 0, 1, 2, 4, 4, 5, 7};
  SamplingParams params = Filters(1, 0, 1, 0, 5);
  // Beyond F32 in both directions, of a token without weight, and of none.
  params.logit_bias = {{1, 100}, {2, -100}, {5, 3}, {300, 9}, {-1, 9}};
  params.repetition_penalty = 0.01f;
  params.frequency_penalty = 2;
  params.presence_penalty = -2;
  params.stop_token_ids = {6, 300, -1};
  params.min_tokens = 1000;
  SamplingParams rarer = params;
  rarer.repetition_penalty = 50;
  rarer.presence_penalty = 2;
  for (const SamplingParams* one : {&params, &rarer}) {
    for (const float value : {kMost, -kMost, 0.99f * kMost}) {
      auto logits = GaussianLogits(kVocab, 8);
      for (const size_t at : {1, 2, 4, 7}) logits[at] = value;
      logits[5] = -kInfinity;
      rows.Add(logits, *one);
    }
  }
  rows.ExpectTheCpus();
}

TEST(CudaSamplerTest, PiecesWithoutWeightAreNeverDrawn) {
  constexpr int64_t kVocab = 1100;
  const TokenMask mask = {{{0, 300}, {512, 768}}, true};
  Rows rows(kVocab);
  std::vector<SamplingParams> kept(24, Filters(1, 0, 1, 0, 0));
  for (size_t i = 0; i < kept.size(); ++i) {
    kept[i].seed = i;
    rows.Add(GaussianLogits(kVocab, 9), kept[i]).mask = &mask;
  }
  rows.ExpectTheCpus();
}

TEST(CudaSamplerTest, TokensAreDescribedWithTheirRanks) {
  Rows rows(800);
  const SamplingParams none;
  for (const int32_t top : {-1, 0, 1, 20}) {
    TokenTask& task = rows.Add(GaussianLogits(800, 90), none);
    task.params = nullptr;
    task.token = 431 + top;
    task.num_top = top;
  }
  rows.ExpectTheCpus();
}

TEST(CudaSamplerTest, NamedTokensAreDescribedBesideTheDraw) {
  Rows rows(800);
  std::vector<SamplingParams> named = {Filters(0, 0, 1, 0, 0),
                                       Filters(1, 40, 1, 0, 20),
                                       Filters(1, 0, 0.9f, 0, 3)};
  named[0].logprob_token_ids = {799};
  named[1].logprob_token_ids = {5, 400, 0, 799};
  for (TokenId id = 0; id < kMaxLogprobTokenIds; ++id) {
    named[2].logprob_token_ids.push_back(6 * id);
  }
  const SamplingParams plain = Filters(1, 0, 1, 0, 2);
  for (const SamplingParams& params : named) {
    rows.Add(GaussianLogits(800, 91), params);
    rows.Add(GaussianLogits(800, 92), plain);
  }
  rows.ExpectTheCpus();
}

TEST(CudaSamplerTest, LogitsThatAreNoNumbersAreNamed) {
  Rows rows(520);
  const SamplingParams& greedy = AllFilters()[0];
  for (const size_t at : {0, 300, 519}) {
    auto logits = GaussianLogits(520, 3);
    logits[at] = at == 300 ? kInfinity : NAN;
    logits[519] = NAN;
    rows.Add(logits, greedy);
  }
  // An infinity below is a token without weight; none is left in the last row.
  auto low = GaussianLogits(520, 4);
  low[3] = -kInfinity;
  rows.Add(low, AllFilters()[3]);
  rows.Add(std::vector<float>(520, -kInfinity), greedy);
  rows.ExpectTheCpus();
}

}  // namespace
}  // namespace sluice::testing
