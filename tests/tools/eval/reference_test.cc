#include "common/tools/eval/reference.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>

#include "common/tools/eval/logits_file.h"
#include "tests/testing/golden_model.h"

namespace sluice::eval {
namespace {

std::string Path(const std::string& ending) {
  return Cat(::testing::TempDir(), "reference-", getpid(), ending);
}

// What ReadReference says of a JSON file with `text`.
StatusOr<std::vector<ReferencePrompt>> FromText(const std::string& text) {
  const std::string path = Path(".json");
  std::ofstream(path) << text;
  auto read = ReadReference(path);
  std::remove(path.c_str());
  return read;
}

TEST(ReferenceTest, JsonIsReadUnderEitherNames) {
  const auto read =
      FromText(R"({"prompts":[{"ids":[1,2],"prompt_logprobs":[null,-1.5],)"
               R"("greedy_ids":[3],"greedy_logprobs":[-0.5],"gaps":[0.2],)"
               R"("logits":[[1,2,3],[4,5,6]]},)"
               R"({"prompt_ids":[7],"greedy_ids":[8],"logprobs":[-1]}]})");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].vocab_size, 3u);
  EXPECT_EQ((*read)[0].logits.size(), 6u);
  EXPECT_TRUE(std::isnan((*read)[0].prompt_logprobs[0]));
  EXPECT_EQ((*read)[1].ids, std::vector<int64_t>{7});
  EXPECT_EQ((*read)[1].greedy_logprobs, std::vector<double>{-1});
}

TEST(ReferenceTest, NamesAndLikeliestIdsAreRead) {
  const auto read =
      FromText(R"({"prompts":[{"name":"chat","ids":[1,2],"greedy_ids":[3],)"
               R"("top_ids":[[],[2,5],[3,4]],)"
               R"("top_logprobs":[[],[-0.5,-2],[-0.25,-3]]},{"ids":[1]}]})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)[0].name, "chat");
  ASSERT_EQ((*read)[0].top.size(), 3u);
  EXPECT_EQ((*read)[0].top[2][1], std::make_pair(int64_t{4}, -3.0));
  EXPECT_EQ((*read)[1].name, "prompt_1");
}

TEST(ReferenceTest, WhatDoesNotFitTogetherIsTold) {
  for (const char* text :
       {"[]", "{}", R"({"prompts":[]})", R"({"prompts":[{}]})",
        R"({"prompts":[{"ids":["a"]}]})", R"({"prompts":[{"ids":3}]})",
        R"({"prompts":[{"ids":[1],"greedy_ids":[1],"gaps":[1,2]}]})",
        R"({"prompts":[{"ids":[1,2],"prompt_logprobs":[1]}]})",
        R"({"prompts":[{"ids":[1,2],"logits":[[1,2]]}]})",
        R"({"prompts":[{"ids":[1,2],"logits":[[1,2],[1]]}]})",
        R"({"prompts":[{"ids":[1,2],"top_ids":[[],[1]]}]})",
        R"({"prompts":[{"ids":[1,2],"top_ids":[[]],"top_logprobs":[[]]}]})",
        R"({"prompts":[{"ids":[1,2],"top_ids":[[],[1,2]],)"
        R"("top_logprobs":[[],[-1]]}]})",
        R"({"prompts":[{"ids":[1,2],"top_ids":[[],[]],)"
        R"("top_logprobs":[[],[]]}]})",
        R"({"prompts":[{"ids":[1,2],"top_ids":[[],["a"]],)"
        R"("top_logprobs":[[],[-1]]}]})"}) {
    EXPECT_EQ(FromText(text).status().code(), StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_EQ(ReadReference("nowhere.json").status().code(),
            StatusCode::kNotFound);
}

TEST(ReferenceTest, IdsThatTheLogitsHaveNoColumnForAreRefused) {
  for (const char* ids : {"[2,0]", "[0,2]", "[-1,0]", "[0,9223372036854775807]",
                          "[0,18446744073709551615]"}) {
    const auto read = FromText(
        Cat(R"({"prompts":[{"ids":)", ids, R"(,"logits":[[1,2],[3,4]]}]})"));
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << ids;
    EXPECT_NE(Message(read.status()).find("must be 0 to 1"), std::string::npos)
        << read.status();
  }
}

TEST(ReferenceTest, RowsOfUnequalLengthAreRefusedThoughTheirSumFits) {
  // 3 + 1 + 2 values: as many as three rows of two.
  const auto read =
      FromText(R"({"prompts":[{"ids":[0,1,0],"logits":[[1,2,3],[4],[5,6]]}]})");
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(read.status()).find("every row must have 3 values"),
            std::string::npos)
      << read.status();
}

TEST(ReferenceTest, WhatIsWrittenReadsTheSame) {
  ReferencePrompt prompt;
  prompt.ids = {1, 2};
  prompt.prompt_logprobs = {std::numeric_limits<double>::quiet_NaN(), -0.1};
  prompt.greedy_ids = {4};
  prompt.greedy_logprobs = {-0.30000000000000004};
  prompt.name = "first";
  prompt.top = {{}, {{2, -0.1}, {7, -2.5}}, {{4, -0.25}}};
  const auto read = FromText(ReferenceJson("m", {prompt}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)[0].ids, prompt.ids);
  EXPECT_EQ((*read)[0].greedy_logprobs, prompt.greedy_logprobs);
  EXPECT_EQ((*read)[0].prompt_logprobs[1], -0.1);
  EXPECT_EQ((*read)[0].name, "first");
  EXPECT_EQ((*read)[0].top, prompt.top);
}

TEST(ReferenceTest, LogSoftmaxSumsToOne) {
  const float row[] = {1000, 999, -50};
  const auto logprobs = LogSoftmax(row, 3);
  EXPECT_NEAR(std::exp(logprobs[0]) + std::exp(logprobs[1]), 1, 1e-12);
  EXPECT_NEAR(logprobs[0] - logprobs[1], 1, 1e-12);
}

TEST(ReferenceTest, AGoldenModelIsAReference) {
  const auto read = ReadReference(testing::GoldenModel("llama3-tied"));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 4u);
  const size_t tokens[] = {1, 7, 40, 150};
  for (size_t i = 0; i < read->size(); ++i) {
    EXPECT_EQ((*read)[i].ids.size(), tokens[i]);
    EXPECT_EQ((*read)[i].greedy_ids.size(), 64u);
    EXPECT_TRUE((*read)[i].logits.empty());  // not of all positions
  }
}

TEST(ReferenceTest, LogitsOfAllPositionsAreReadFromSafetensors) {
  std::string header =
      R"({"prompt_0.ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
      R"("prompt_0.logits":{"dtype":"F32","shape":[2,3],)"
      R"("data_offsets":[16,40]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  file += header;
  for (const int64_t id : {2, 1}) {
    file.append(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  const float logits[] = {0.5f, -1, 2, 3, 0, 1};
  file.append(reinterpret_cast<const char*>(logits), sizeof(logits));
  const std::string path = Path(".safetensors");
  std::ofstream(path, std::ios::binary) << file;
  const auto read = ReadReference(path);
  std::remove(path.c_str());
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ((*read)[0].ids, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ((*read)[0].vocab_size, 3u);
  EXPECT_EQ((*read)[0].logits,
            std::vector<float>(std::begin(logits), std::end(logits)));
}

TEST(TensorsTest, ADumpOfLogitsIsRead) {
  const std::vector<int64_t> ids = {5, 6};
  const LogitRows logits = {2, {1, 2, 3, 4}};
  const std::string path = Path(".safetensors");
  ASSERT_TRUE(WriteLogitsFile(path, ids, logits).ok());
  auto read = ReadTensors(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)["ids"].ints, ids);
  EXPECT_EQ((*read)["logits"].floats, logits.values);
  EXPECT_EQ((*read)["logits"].shape, (std::vector<int64_t>{2, 2}));
  std::remove(path.c_str());
}

TEST(TensorsTest, DamagedFilesAreTold) {
  const std::string path = Path(".safetensors");
  const auto file = [](const std::string& header, const std::string& data) {
    std::string out(8, '\0');
    out[0] = static_cast<char>(header.size());
    return out + header + data;
  };
  const std::string begin = R"({"a":{"dtype":"F32","shape":)";
  for (const std::string& bytes :
       {std::string("short"), std::string(8, '\xff'), file("{", ""),
        file("[]", ""), file(begin + "[1]}}", "1234"),
        file(begin + R"([2],"data_offsets":[0,4]}})", "1234"),
        file(begin + R"([-1],"data_offsets":[0,4]}})", "1234"),
        file(begin + R"([1],"data_offsets":[0,8]}})", "1234"),
        file(begin + R"([1],"data_offsets":[4,0]}})", "1234"),
        file(begin + R"([4294967296,4294967296,4294967296],)"
                     R"("data_offsets":[0,4]}})",
             "1234")}) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EQ(ReadTensors(path).status().code(), StatusCode::kInvalidArgument)
        << bytes;
  }
  std::remove(path.c_str());
}

TEST(PromptFileTest, LinesAreTextOrIds) {
  const std::string path = Path(".jsonl");
  std::ofstream(path) << "{\"prompt\": \"a\"}\n\n{\"prompt\": [1, 2]}\n";
  const auto read = ReadPromptLines(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (std::vector<std::string>{"\"a\"", "[1,2]"}));
  std::ofstream(path) << "{\"text\": \"a\"}\n";
  EXPECT_EQ(ReadPromptLines(path).status().code(),
            StatusCode::kInvalidArgument);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace sluice::eval
