#include "services/cli/bench/workload.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "common/base/json.h"
#include "services/cli/bench/bench_options.h"
#include "tests/services/cli/one_answer.h"

namespace sluice::cli {
namespace {

// A JSONL file that is gone with the test.
class File {
 public:
  explicit File(const std::string& text)
      : path_(Cat(::testing::TempDir(), "workload-", getpid(), ".jsonl")) {
    std::ofstream(path_) << text;
  }
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

const BaseUrl kNobody{"127.0.0.1", "1", ""};

Json BodyOf(const Workload& workload, int64_t index) {
  return *ParseJson(workload.Request(index).body);
}

TEST(WorkloadTest, LengthsAreANumberOrARange) {
  EXPECT_EQ(LengthRange::Parse("5")->high, 5);
  EXPECT_EQ(LengthRange::Parse("5:9")->low, 5);
  EXPECT_EQ(LengthRange::Parse("5:9")->high, 9);
  for (const char* bad : {"", "0", "-1", "9:5", "5:", "a", "5:9:3", "1e9"}) {
    EXPECT_FALSE(LengthRange::Parse(bad).ok()) << bad;
  }
}

TEST(WorkloadTest, PromptsOfAFileAreTakenInTurn) {
  const File file(
      "{\"prompt\": \"one\"}\n\n{\"prompt\": [1, 2], \"output_tokens\": 7}\n");
  WorkloadOptions options;
  options.model = "m";
  options.file = file.path();
  options.output_tokens = {3, 3};
  const auto workload = Workload::Prepare(options, kNobody);
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(BodyOf(*workload, 0)["prompt"], "one");
  EXPECT_EQ(BodyOf(*workload, 0)["max_tokens"], 3);
  EXPECT_EQ(BodyOf(*workload, 1)["prompt"], (Json{1, 2}));
  EXPECT_EQ(BodyOf(*workload, 1)["max_tokens"], 7);
  EXPECT_EQ(BodyOf(*workload, 2)["prompt"], "one");
  EXPECT_EQ(BodyOf(*workload, 2)["stream_options"]["include_usage"], true);
  EXPECT_EQ(BodyOf(*workload, 2)["ignore_eos"], true);
}

TEST(WorkloadTest, AWarmUpSendsNoPromptOfTheFile) {
  const File file("{\"prompt\": \"one\", \"output_tokens\": 7}\n");
  const testing::OneAnswer no_tokenizer(
      testing::HttpAnswer("404 Not Found", "{}"));
  WorkloadOptions options;
  options.file = file.path();
  options.warmup = true;
  const auto workload = Workload::Prepare(options, no_tokenizer.url());
  ASSERT_TRUE(workload.ok()) << workload.status();
  const Json body = *ParseJson(workload->WarmupRequest(0).body);
  EXPECT_NE(body["prompt"], "one");
  EXPECT_EQ(body["max_tokens"], 7);
  EXPECT_EQ(BodyOf(*workload, 0)["prompt"], "one");
}

TEST(WorkloadTest, PromptsSentBeforeAreCounted) {
  const File file(
      "{\"prompt\": \"one\"}\n{\"prompt\": \"two\"}\n"
      "{\"prompt\": \"one\"}\n");
  WorkloadOptions options;
  options.file = file.path();
  const auto workload = Workload::Prepare(options, kNobody);
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->Repeated(0), 0);
  EXPECT_EQ(workload->Repeated(2), 0);
  EXPECT_EQ(workload->Repeated(3), 1);
  EXPECT_EQ(workload->Repeated(7), 5);
}

TEST(WorkloadTest, LengthsOfARangeVaryAndRepeatWithTheSeed) {
  const File file("{\"prompt\": \"one\"}\n");
  WorkloadOptions options;
  options.file = file.path();
  options.output_tokens = {10, 20};
  options.seed = 5;
  const auto a = Workload::Prepare(options, kNobody);
  const auto b = Workload::Prepare(options, kNobody);
  std::set<int64_t> lengths;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(a->Request(i).body, b->Request(i).body);
    lengths.insert(a->Request(i).output_tokens);
  }
  EXPECT_EQ(lengths.size(), 11u);
  EXPECT_EQ(*lengths.begin(), 10);
}

TEST(WorkloadTest, PlainLeavesOutWhatNotEveryServerKnows) {
  const File file("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
  WorkloadOptions options;
  options.file = file.path();
  options.chat = true;
  options.extensions = false;
  options.extra = R"({"top_p": 0.5})";
  const auto workload = Workload::Prepare(options, kNobody);
  ASSERT_TRUE(workload.ok()) << workload.status();
  const Json body = BodyOf(*workload, 0);
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_FALSE(body.contains("return_token_ids"));
  EXPECT_EQ(body["top_p"], 0.5);
  EXPECT_EQ(body["messages"][0]["content"], "x");
}

TEST(WorkloadTest, AWrongFileIsToldByItsLine) {
  for (const char* text : {"{\"prompt\": \"a\"}\n{", "{\"prompt\": \"a\"}\n3",
                           "{\"prompt\": \"a\"}\n{\"prompt\": []}",
                           "{\"prompt\": \"a\"}\n{\"prompt_tokens\": 0}"}) {
    const File file(text);
    WorkloadOptions options;
    options.file = file.path();
    const auto workload = Workload::Prepare(options, kNobody);
    ASSERT_FALSE(workload.ok()) << text;
    EXPECT_NE(Message(workload.status()).find(".jsonl:2: "), std::string::npos)
        << workload.status();
  }
}

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
                                    {"--burstiness", "2"},
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
  const auto options =
      ParseBenchOptions({"--rate", "2.5", "--burstiness", "inf", "--duration",
                         "10", "--slo", "ttft=100,e2e=2000"});
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
