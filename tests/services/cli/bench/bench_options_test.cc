#include "services/cli/bench/bench_options.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

// What the command line says, or what is wrong with it.
StatusOr<BenchOptions> ParseBenchOptions(Words words) {
  BenchOptions options;
  CommandLine sluice("0");
  AddBenchOptions(
      sluice.Add("bench", "", [&] { return CompleteBenchOptions(options); }),
      options);
  words.insert(words.begin(),
               {"bench", "--url", "http://127.0.0.1:1", "--model", "m"});
  SLUICE_RETURN_IF_ERROR(sluice.Run(words));
  return options;
}

TEST(BenchOptionsTest, WrongCommandLinesAreTold) {
  for (const Words& words :
       std::initializer_list<Words>{{"--rate", "1", "--concurrency", "2"},
                                    {"--rate", "0"},
                                    {"--rate", "nan"},
                                    {"--concurrency", "0"},
                                    {"--endpoint", "embeddings"},
                                    {"--requests", "0"},
                                    {"--slo", "ttft=0"},
                                    {"--slo", "x=1"},
                                    {"--prompt-tokens", "0"},
                                    {"word"}}) {
    EXPECT_EQ(ParseBenchOptions(words).status().code(),
              StatusCode::kInvalidArgument)
        << words[0];
  }
}

TEST(BenchOptionsTest, ARateMakesAnOpenLoop) {
  const auto options = ParseBenchOptions(
      {"--rate", "2.5", "--duration", "10", "--slo", "ttft=100,e2e=2000"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->load.concurrency, 0);
  EXPECT_EQ(options->load.rate, 2.5);
  EXPECT_EQ(options->load.num_requests, 0);
  EXPECT_EQ(Seconds(options->load.duration), 10);
  EXPECT_EQ(options->service_level->ttft_ms, 100);
  EXPECT_FALSE(options->service_level->tpot_ms);
}

}  // namespace
}  // namespace sluice::cli
