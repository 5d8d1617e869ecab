// What drawing one token costs: microseconds of one thread by vocabulary and
// by what a request asks. See README.md.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/device/cpu/cpu_options.h"
#include "common/sampling/sampler.h"
#include "common/sampling/token_counts.h"
#include "common/tools/measure/machine.h"

namespace sluice {
namespace {

struct Flags {
  std::string isa = "auto";
  int rounds = 15;
  // Standard deviation of the logits: a wide one is like that of a trained
  // model at work, a small one keeps many tokens likely.
  float deviation = 3.0f;
};

// One way to ask for a token.
struct Case {
  std::string name;
  SamplingParams sampling;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name) -> SamplingParams& {
    cases.push_back({name, {}});
    cases.back().sampling.seed = 7;
    return cases.back().sampling;
  };
  add("greedy").temperature = 0;
  add("temperature 1");
  add("temperature 0.7").temperature = 0.7f;
  add("top_p 0.95").top_p = 0.95f;
  add("min_p 0.05").min_p = 0.05f;
  add("top_k 40").top_k = 40;
  SamplingParams& penalties = add("penalties");
  penalties.frequency_penalty = 0.5f;
  penalties.presence_penalty = 0.5f;
  penalties.repetition_penalty = 1.1f;
  add("logprobs 5").logprobs = 5;
  SamplingParams& greedy = add("greedy, logprobs 5");
  greedy.temperature = 0;
  greedy.logprobs = 5;
  return cases;
}

double Micros() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 +
         static_cast<double>(time.tv_nsec) * 1e-3;
}

// Logits rows and histories of one vocabulary, as a step of several sequences
// has them.
class Vocabulary {
 public:
  Vocabulary(int64_t size, const Flags& flags, kernels::Isa isa)
      : rounds_(flags.rounds), sampler_(isa) {
    std::mt19937 random(5);
    std::normal_distribution<float> logit(0, flags.deviation);
    for (auto& row : rows_) {
      row.resize(static_cast<size_t>(size));
      for (float& value : row) value = logit(random);
    }
    for (int i = 0; i < kHistory; ++i) {
      history_.push_back(static_cast<TokenId>(random() % size / (1 + i % 7)));
    }
    counts_ = TokenCounts::Of(history_, kHistory / 2);
  }

  // Median of rounds, in microseconds of this thread's CPU time a token.
  double Measure(const SamplingParams& sampling) {
    std::vector<double> micros;
    for (int round = -1; round < rounds_; ++round) {
      const double start = Micros();
      for (int i = 0; i < kTokens; ++i) {
        const SamplingPoint point = {kHistory + round * kTokens + i, history_,
                                     kHistory / 2, &counts_};
        const auto drawn = sampler_.Run(
            {.logits = rows_[i % kRows], .params = &sampling, .point = point});
        if (!drawn.ok()) std::exit(1);
        sink_ = sink_ + drawn->token;
      }
      if (round >= 0) micros.push_back((Micros() - start) / kTokens);
    }
    std::sort(micros.begin(), micros.end());
    return micros[micros.size() / 2];
  }

 private:
  static constexpr int kRows = 8;
  static constexpr int kTokens = 32;
  static constexpr int kHistory = 4000;

  const int rounds_;
  Sampler sampler_;
  std::vector<float> rows_[kRows];
  std::vector<TokenId> history_;
  TokenCounts counts_;
  volatile int64_t sink_ = 0;
};

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--isa") flags.isa = argv[i + 1];
    if (flag == "--rounds") flags.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--deviation") {
      flags.deviation = static_cast<float>(std::atof(argv[i + 1]));
    }
  }
  const auto isa = ParseIsa(flags.isa);
  if (argc % 2 == 0 || !isa.ok()) {
    std::fprintf(stderr,
                 "usage: sampler_bench [--isa NAME] [--rounds N] "
                 "[--deviation OF_LOGITS]\n");
    return 2;
  }
  std::printf("%sisa %s, one thread, logits of deviation %g\n",
              measure::DescribeCpu().c_str(), kernels::ToString(isa->vectors),
              static_cast<double>(flags.deviation));
  std::printf("%-20s %12s %12s\n", "us a token", "49152", "128256");
  Vocabulary small(49152, flags, isa->vectors);
  Vocabulary large(128256, flags, isa->vectors);
  for (const Case& each : Cases()) {
    std::printf("%-20s %12.1f %12.1f\n", each.name.c_str(),
                small.Measure(each.sampling), large.Measure(each.sampling));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
