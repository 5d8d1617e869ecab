// Known ids and renderings of the families at hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "common/base/json.h"
#include "common/text/chat_template.h"
#include "common/text/jinja.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/shared_data.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

#define REQUIRE_TOKENIZER(name, relative)                  \
  const Tokenizer* const name = SharedTokenizer(relative); \
  if (name == nullptr) GTEST_SKIP() << "needs the shared data " << (relative)

Json ReadJson(const std::string& path) {
  return *ParseJson(ReadFileOrDie(path), {.max_bytes = size_t{1} << 30});
}

// The test strings and ids of one of llama.cpp's vector files.
void ExpectVectors(const Tokenizer& tokenizer, const std::string& inputs,
                   const std::string& outputs) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::string text = ReadFileOrDie(inputs);
  std::istringstream lines(ReadFileOrDie(outputs));
  int count = 0;
  int equal = 0;
  for (size_t end = 0; end != std::string::npos; ++count) {
    end = text.find(kSeparator);
    const std::string input = text.substr(0, end);
    text.erase(0, end == std::string::npos ? end : end + kSeparator.size());
    // The last string is empty and has no line.
    std::string line;
    std::getline(lines, line);
    std::istringstream numbers(line);
    Ids expected;
    for (TokenId id = 0; numbers >> id;) expected.push_back(id);
    const auto ids = tokenizer.Encode(input, kRaw);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, expected) << "input " << count << ": " << input;
    equal += *ids == expected ? 1 : 0;
  }
  EXPECT_EQ(count, 47);
  EXPECT_EQ(equal, 47);
}

struct VectorCase {
  const char* vocabulary;
  const char* vectors;
};

class VectorTest : public ::testing::TestWithParam<VectorCase> {};

TEST_P(VectorTest, GivesTheKnownIds) {
  REQUIRE_TOKENIZER(tokenizer, GetParam().vocabulary);
  const std::string base =
      *SharedData("data/vectors") + "/ggml-vocab-" + GetParam().vectors;
  ExpectVectors(*tokenizer, base + ".gguf.inp", base + ".gguf.out");
}

INSTANTIATE_TEST_SUITE_P(
    Families, VectorTest,
    ::testing::Values(
        VectorCase{"data/vocab/llama3-tokenizer.model", "llama-bpe"},
        VectorCase{"data/tokenizers/llama3_2", "llama-bpe"},
        VectorCase{"data/vocab/llama2-tokenizer.model", "llama-spm"},
        VectorCase{"data/vocab/ggml-vocab-llama-spm.gguf", "llama-spm"},
        VectorCase{"data/vocab/ggml-vocab-gpt-2.gguf", "gpt-2"},
        VectorCase{"data/vocab/r50k_base.tiktoken", "gpt-2"},
        VectorCase{"data/tokenizers/qwen3", "qwen2"}));

TEST(GoldenTest, O200kGivesTheKnownIds) {
  REQUIRE_TOKENIZER(tokenizer, "data/vocab/o200k_base.tiktoken");
  const Json cases =
      ReadJson(*SharedData("data/derived/o200k_base_vectors_computed.json"));
  EXPECT_EQ(cases.size(), 47u);
  for (const Json& one : cases) {
    const auto ids = tokenizer->Encode(one["text"].get<std::string>(), kRaw);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, one["ids"].get<Ids>()) << one["text"];
  }
}

void ExpectSwiftCases(const Tokenizer& tokenizer, const char* key,
                      bool add_special) {
  const Json all = ReadJson(*SharedData(
      "data/vectors/swift_transformers_tokenizer_tests_subset.json"));
  ASSERT_TRUE(all.contains(key));
  EXPECT_GE(all[key].size(), 18u);
  for (const Json& one : all[key]) {
    EncodeOptions options;
    options.add_special_tokens = add_special;
    const auto ids = tokenizer.Encode(one["input"].get<std::string>(), options);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const Ids expected = one["encoded"]["input_ids"].get<Ids>();
    EXPECT_EQ(*ids, expected) << one["input"];
    // Some of these models ask transformers to clean spaces before
    // punctuation up; that is not decoding.
    if (one["input"].get<std::string>().find(" !") != std::string::npos) {
      continue;
    }
    EXPECT_EQ(*tokenizer.Decode(expected, false),
              one["decoded_with_special"].get<std::string>());
    EXPECT_EQ(*tokenizer.Decode(expected, true),
              one["decoded_without_special"].get<std::string>());
  }
}

TEST(GoldenTest, SwiftTransformersCasesOfLlama3AreEqual) {
  REQUIRE_TOKENIZER(tokenizer, "data/tokenizers/llama3_2");
  ExpectSwiftCases(*tokenizer, "pcuenq/Llama-3.2-1B-Instruct-tokenizer", true);
}

TEST(GoldenTest, SwiftTransformersCasesOfLlama2AreEqual) {
  REQUIRE_TOKENIZER(tokenizer, "data/vocab/llama2-tokenizer.model");
  ExpectSwiftCases(*tokenizer, "coreml-projects/Llama-2-7b-chat-coreml", true);
}

TEST(GoldenTest, SwiftTransformersCasesOfGpt2AreEqual) {
  REQUIRE_TOKENIZER(tokenizer, "data/vocab/ggml-vocab-gpt-2.gguf");
  ExpectSwiftCases(*tokenizer, "distilgpt2", false);
}

TEST(GoldenTest, HarmonyIdsComeBackFromTheirText) {
  REQUIRE_TOKENIZER(tokenizer, "data/vocab/o200k_base.tiktoken");
  int files_of_ids = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(*SharedData("data/harmony"))) {
    const std::string content = ReadFileOrDie(entry.path().string());
    std::istringstream numbers(content);
    Ids ids;
    for (TokenId id = 0; numbers >> id;) ids.push_back(id);
    if (ids.empty()) {  // a rendered conversation
      const auto made = tokenizer->Encode(content, kRaw);
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_EQ(*tokenizer->Decode(*made, false), content);
      EXPECT_GT(std::count(made->begin(), made->end(), 200008), 0)
          << entry.path();
      continue;
    }
    ++files_of_ids;
    const auto text = tokenizer->Decode(ids, false);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_NE(text->find("<|message|>"), std::string::npos);
    EXPECT_EQ(*tokenizer->Encode(*text, kRaw), ids) << entry.path();
  }
  EXPECT_EQ(files_of_ids, 2);
}

TEST(GoldenTest, ChatRenderingsAreByteEqual) {
  SLUICE_REQUIRE_SHARED(path, "data/derived/chat_render_golden.json");
  const Json cases = ReadJson(path);
  EXPECT_EQ(cases.size(), 80u);
  for (const Json& one : cases) {
    const std::string source =
        ReadFileOrDie(*SharedData("data/templates") + "/" +
                      one["template"].get<std::string>());
    const auto compiled = JinjaTemplate::Compile(source);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    Json context = one["kwargs"];
    context["messages"] = one["messages"];
    context["tools"] = one["tools"];
    context["documents"] = nullptr;
    context["add_generation_prompt"] = one["add_generation_prompt"];
    // 2025-06-28 12:00
    const auto variables = JinjaVariables::Parse(DumpJson(context));
    ASSERT_TRUE(variables.ok()) << variables.status();
    const auto text = (*compiled)->Render("{}", *variables, 1751112000);
    if (one["expected"].is_null()) {
      EXPECT_FALSE(text.ok());
      continue;
    }
    ASSERT_TRUE(text.ok()) << one["template"] << one["name"] << text.status();
    EXPECT_EQ(*text, one["expected"].get<std::string>())
        << one["template"] << " " << one["name"];
  }
}

TEST(GoldenTest, ChatIdsAreThoseOfTransformers) {
  SLUICE_REQUIRE_SHARED(path, "data/derived/chat_ids_golden.json");
  int equal = 0;
  int guarded = 0;
  const Json golden = ReadJson(path);
  for (const Json& one : golden["cases"]) {
    const std::string model =
        "data/tokenizers/" + one["tokenizer"].get<std::string>();
    REQUIRE_TOKENIZER(tokenizer, model);
    const auto chat = ChatTemplate::Load(*SharedData(model), *tokenizer);
    ASSERT_TRUE(chat.ok()) << chat.status();
    RenderOptions options;
    options.kwargs = one["template_kwargs"];
    EXPECT_EQ(*(*chat)->Render(one["messages"], one["tools"], options),
              one["text"].get<std::string>());
    const auto ids = (*chat)->RenderIds(one["messages"], one["tools"], options);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const bool is_equal = *ids == one["ids"].get<Ids>();
    if (one["name"] == "spelled_special") {
      EXPECT_FALSE(is_equal);
      EXPECT_EQ(*tokenizer->Decode(*ids, false), one["text"]);
      ++guarded;
    } else {
      EXPECT_TRUE(is_equal) << one["tokenizer"] << " " << one["name"];
      equal += is_equal ? 1 : 0;
    }
  }
  EXPECT_EQ(equal, 20);
  EXPECT_EQ(guarded, 4);
}

TEST(GoldenTest, SmolLm2ChatsGiveTheReferenceIds) {
  const auto model = SmolLm2Path();
  if (!model) GTEST_SKIP() << "needs the SmolLM2 GGUF (set SLUICE_SMOLLM2)";
  const auto tokenizer = Tokenizer::Load(*model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto chat = ChatTemplate::Load(*model, **tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 49152);
  EXPECT_EQ((*tokenizer)->eos_ids(), Ids({2}));
  const Json prompts = ReadJson(SmolLm2Chats())["prompts"];
  EXPECT_EQ(prompts.size(), 10u);
  for (const Json& one : prompts) {
    const auto text = (*chat)->Render(one["messages"], nullptr, {});
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, one["text"].get<std::string>());
    const auto ids = (*chat)->RenderIds(one["messages"], nullptr, {});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, one["prompt_ids"].get<Ids>());
    EXPECT_EQ(*(*tokenizer)->Decode(one["greedy_ids"].get<Ids>(), true),
              one["greedy_text"].get<std::string>());
  }
}

}  // namespace
}  // namespace sluice::testing
