// Known ids and renderings of the families at hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/text/chat_template.h"
#include "common/text/jinja.h"
#include "tests/testing/default_model.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/text/chat_cases.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

#define REQUIRE_TOKENIZER(name, relative)                \
  const Tokenizer* const name = TestTokenizer(relative); \
  if (name == nullptr) GTEST_SKIP() << "needs build/data/" << (relative)

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
  EXPECT_GE(count, 46);
  EXPECT_EQ(equal, count);
}

struct VectorCase {
  const char* vocabulary;
  const char* vectors;
};

class VectorTest : public ::testing::TestWithParam<VectorCase> {};

TEST_P(VectorTest, GivesTheKnownIds) {
  REQUIRE_TOKENIZER(tokenizer, GetParam().vocabulary);
  const std::string base =
      *TestData("vectors") + "/ggml-vocab-" + GetParam().vectors;
  ExpectVectors(*tokenizer, base + ".gguf.inp", base + ".gguf.out");
}

INSTANTIATE_TEST_SUITE_P(
    Families, VectorTest,
    ::testing::Values(
        VectorCase{"vocab/llama3-tokenizer.model", "llama-bpe"},
        VectorCase{"tokenizers/llama3_2", "llama-bpe"},
        VectorCase{"vocab/ggml-vocab-llama-spm.gguf", "llama-spm"},
        VectorCase{"vocab/ggml-vocab-gpt-2.gguf", "gpt-2"},
        VectorCase{"vocab/ggml-vocab-phi-3.gguf", "phi-3"},
        VectorCase{"vocab/ggml-vocab-starcoder.gguf", "starcoder"},
        VectorCase{"vocab/ggml-vocab-command-r.gguf", "command-r"},
        VectorCase{"vocab/ggml-vocab-deepseek-coder.gguf", "deepseek-coder"},
        VectorCase{"vocab/ggml-vocab-deepseek-llm.gguf", "deepseek-llm"},
        VectorCase{"vocab/ggml-vocab-falcon.gguf", "falcon"},
        VectorCase{"vocab/ggml-vocab-gemma-4.gguf", "gemma-4"},
        VectorCase{"vocab/ggml-vocab-llama-bpe.gguf", "llama-bpe"},
        VectorCase{"vocab/ggml-vocab-mpt.gguf", "mpt"},
        VectorCase{"vocab/ggml-vocab-qwen2.gguf", "qwen2"},
        VectorCase{"vocab/ggml-vocab-qwen35.gguf", "qwen35"},
        VectorCase{"vocab/ggml-vocab-refact.gguf", "refact"},
        VectorCase{"vocab/r50k_base.tiktoken", "gpt-2"},
        VectorCase{"tokenizers/qwen3", "qwen2"}));

// Ids of mistral_common 1.13.1.
TEST(GoldenTest, TekkenGivesMistralsIds) {
  REQUIRE_TOKENIZER(tokenizer, "vocab/tekken_240911");
  EXPECT_EQ(tokenizer->vocab_size(), 131072);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_ids(), Ids({2}));
  EXPECT_EQ(tokenizer->vocabulary().Find("[TOOL_CALLS]"), 9);
  EXPECT_EQ(tokenizer->vocabulary().Find("<SPECIAL_999>"), 999);
  const std::pair<const char*, Ids> texts[] = {
      {"Hello World", {22177, 5325}},
      {"  three   spaces\n\n\tand a tab ",
       {1032, 3300, 1256, 18971, 1267, 1009, 1421, 1261, 10271, 1032}},
      {"ALLCaps camelCase 12345 3.14 it's I'LL",
       {4286, 13515, 4677, 98537, 11139, 1032, 1049, 1050, 1051, 1052, 1053,
        1032, 1051,  1046, 1049,  1052,  1494, 1681, 1362, 1039, 23947}},
      {"Köln, 東京 🦙🦙 नमस्ते",
       {130553, 4876, 1044, 48798, 119685, 1166, 1153, 1240, 1159, 1166, 1153,
        4148, 3525, 22475, 1803}},
      {"a/b\r\n//x != [y]",
       {1097, 15836, 1013, 1010, 1555, 1120, 3942, 1766, 1121, 1093}},
  };
  EncodeOptions plain = kRaw;
  plain.parse_special_tokens = false;
  for (const auto& [text, expected] : texts) {
    EXPECT_EQ(*tokenizer->Encode(text, kRaw), expected) << text;
    EXPECT_EQ(*tokenizer->Decode(expected, false), text);
  }
  // Names of control tokens in a user's text stay text.
  EXPECT_EQ(tokenizer->Encode("<s>[INST] x</s>", plain)->size(), 10u);
}

TEST(GoldenTest, HarmonyIdsComeBackFromTheirText) {
  REQUIRE_TOKENIZER(tokenizer, "vocab/o200k_base.tiktoken");
  int files_of_ids = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(*TestData("harmony"))) {
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

TEST(GoldenTest, ChatRenderingsAreThoseOfJinja2) {
  SLUICE_REQUIRE_TEST_DATA(templates, "templates");
  const std::vector<ChatCase> cases = ChatRenderings();
  EXPECT_EQ(cases.size(), 557u);
  for (const ChatCase& one : cases) {
    const auto compiled =
        JinjaTemplate::Compile(ReadFileOrDie(Cat(templates, "/", one.source)));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    Json context = one.kwargs;
    context["messages"] = one.messages;
    context["tools"] = one.tools;
    context["documents"] = nullptr;
    context["add_generation_prompt"] = one.add_generation_prompt;
    const auto variables = JinjaVariables::Parse(DumpJson(context));
    ASSERT_TRUE(variables.ok()) << variables.status();
    // 2025-06-28 12:00
    const auto text = (*compiled)->Render("{}", *variables, 1751112000);
    EXPECT_TRUE(text.ok()) << one.source << one.chat << text.status();
    if (!text.ok()) continue;
    EXPECT_EQ(Sha256Of(*text), one.sha256)
        << one.source << " " << one.chat << " is here:\n"
        << *text;
  }
}

TEST(GoldenTest, ChatIdsAreThoseOfTheReference) {
  int equal = 0;
  int guarded = 0;
  for (const ChatCase& one : ChatsWithIds()) {
    SLUICE_REQUIRE_TEST_DATA(model, "tokenizers/" + one.source);
    const Tokenizer* tokenizer = TestTokenizer("tokenizers/" + one.source);
    const auto chat = ChatTemplate::Load(model, *tokenizer);
    ASSERT_TRUE(chat.ok()) << chat.status();
    RenderOptions options;
    options.kwargs = one.kwargs;
    const std::string text = *(*chat)->Render(one.messages, one.tools, options);
    EXPECT_EQ(Sha256Of(text), one.sha256)
        << one.source << " " << one.chat << " is here:\n"
        << text;
    const auto ids = (*chat)->RenderIds(one.messages, one.tools, options);
    ASSERT_TRUE(ids.ok()) << ids.status();
    if (one.chat == "spelled_special") {
      EXPECT_NE(*ids, one.ids);
      EXPECT_EQ(*tokenizer->Decode(*ids, false), text);
      ++guarded;
    } else {
      EXPECT_EQ(*ids, one.ids) << one.source << " " << one.chat;
      ++equal;
    }
  }
  EXPECT_EQ(equal, 12);
  EXPECT_EQ(guarded, 2);
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
