#include <gtest/gtest.h>

#include "tests/testing/test_data.h"
#include "tests/text/output_fixtures.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

const Vocabulary& Harmonies() { return HarmonyTokenizer().vocabulary(); }

TEST(OutputFormatTest, TheTemplateShowsTheFormat) {
  const auto plain = TinyTokenizer();
  const std::pair<std::string, OutputFormat> kTemplates[] = {
      {"GLM-4.6.jinja", kGlm},
      {"GLM-4.7-Flash.jinja", kGlm},
      {"Qwen-Qwen2.5-7B-Instruct.jinja",
       {ToolFormat::kHermes, ReasoningFormat::kNone}},
      {"Qwen-Qwen3-0.6B.jinja", kHermes},
      {"Qwen3-Coder.jinja", {ToolFormat::kQwenCoder, ReasoningFormat::kNone}},
      {"meta-llama-Llama-3.1-8B-Instruct.jinja", kLlama},
      {"meta-llama-Llama-3.2-3B-Instruct.jinja", kLlama},
      {"meta-llama-Llama-3.3-70B-Instruct.jinja", kLlama},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja",
       {ToolFormat::kHermes, ReasoningFormat::kNone}},
      {"ibm-granite-granite-3.3-2B-Instruct.jinja",
       {ToolFormat::kGranite, ReasoningFormat::kThinkResponse}},
      {"CohereForAI-c4ai-command-r-plus-tool_use.jinja",
       {ToolFormat::kCommandPlus, ReasoningFormat::kNone}},
      // Its answers are in a form of their own.
      {"muse-glimmer.jinja", {}},
      {"Apriel-1.6-15b-Thinker-fixed.jinja",
       {ToolFormat::kHunyuan, ReasoningFormat::kApriel}},
      {"Apertus-8B-Instruct.jinja",
       {ToolFormat::kApertus, ReasoningFormat::kApertus}},
      {"fireworks-ai-llama-3-firefunction-v2.jinja",
       {ToolFormat::kFirefunction, ReasoningFormat::kNone}},
      {"GigaChat3.1-10B-A1.8B.jinja",
       {ToolFormat::kGigaChat, ReasoningFormat::kNone}},
      {"MiniMax-M1.jinja", {ToolFormat::kHunyuan, ReasoningFormat::kNone}},
      {"MiniMax-M3.jinja",
       {ToolFormat::kMiniMaxM3, ReasoningFormat::kMiniMaxM3}},
  };
  for (const auto& [file, format] : kTemplates) {
    SLUICE_REQUIRE_TEST_DATA(path, "templates/" + file);
    const std::string source = ReadFileOrDie(path);
    EXPECT_EQ(*ChooseOutputFormat(source, plain->vocabulary()), format) << file;
    EXPECT_EQ(*ChooseOutputFormat(source, Harmonies()), format) << file;
  }
  SLUICE_REQUIRE_TEST_DATA(path, "templates/openai-gpt-oss-120b.jinja");
  EXPECT_EQ(*ChooseOutputFormat(ReadFileOrDie(path), Harmonies()), kHarmony);
  // LFM2.5 shows its tools alone.
  const std::string listed = "List of tools: [";
  EXPECT_EQ(ChooseOutputFormat(listed, Harmonies())->tools, ToolFormat::kNone);
  // A tag alone tells of no other format.
  EXPECT_EQ(
      ChooseOutputFormat("{{ tools|tojson }}<tool_call>", Harmonies())->tools,
      ToolFormat::kHermes);
}

TEST(OutputFormatTest, MarksAroundAnswersTellTheirFormat) {
  const auto reasoning = [](std::string_view shown) {
    return ChooseOutputFormat(shown, Harmonies())->reasoning;
  };
  EXPECT_EQ(reasoning("<think> <answer>"), ReasoningFormat::kThinkAnswer);
  EXPECT_EQ(reasoning("<think> <response></response>"),
            ReasoningFormat::kThinkResponse);
  // MiniMax M2 has the results of calls between such marks.
  EXPECT_EQ(reasoning("<think> <response>"), ReasoningFormat::kThink);
  EXPECT_EQ(reasoning("<answer>"), ReasoningFormat::kNone);
}

TEST(OutputFormatTest, NothingShownIsNoFormat) {
  EXPECT_EQ(*ChooseOutputFormat("", Harmonies()), OutputFormat{});
}

TEST(OutputFormatTest, NamesOverrideTheTemplate) {
  const std::string glm = "<arg_key> <think>";
  EXPECT_EQ(*ChooseOutputFormat(glm, Harmonies(), "none", "auto"),
            (OutputFormat{ToolFormat::kNone, ReasoningFormat::kThink}));
  EXPECT_EQ(*ChooseOutputFormat(glm, Harmonies(), "hermes", "none"),
            (OutputFormat{ToolFormat::kHermes, ReasoningFormat::kNone}));
  EXPECT_EQ(*ChooseOutputFormat(glm, Harmonies(), "harmony", "auto"), kHarmony);
  EXPECT_EQ(*ChooseOutputFormat("<|channel|>", Harmonies(), "none", "none"),
            OutputFormat{});
  for (int i = 0; i <= static_cast<int>(ToolFormat::kApertus); ++i) {
    const auto format = static_cast<ToolFormat>(i);
    const auto name = ToolFormatName(format);
    EXPECT_EQ(ChooseOutputFormat("", Harmonies(), name)->tools, format);
  }
  EXPECT_EQ(ReasoningFormatName(ReasoningFormat::kThink), "think");
}

TEST(OutputFormatTest, BadNamesAreRefusedByName) {
  const auto message = [](auto&& format) { return Message(format.status()); };
  EXPECT_EQ(message(ChooseOutputFormat("", Harmonies(), "xml")),
            "tool format 'xml': none of auto, none, glm, qwen3-coder, hermes, "
            "llama3-json, harmony, generic, mistral, mistral-list, "
            "deepseek-v3, deepseek-v3.1, deepseek-v3.2, deepseek-v4, "
            "minimax-m2, seed-oss, kimi-k2, granite, phi4, command, lfm2, "
            "hunyuan, nemotron, gemma4, command-r-plus, minimax-m3, "
            "firefunction, longcat, gigachat3.1, apertus");
  EXPECT_EQ(message(ChooseOutputFormat("", Harmonies(), "auto", "r1")),
            "reasoning format 'r1': none of auto, none, think, harmony, "
            "mistral, seed-oss, command, gemma4, apertus, think-answer, "
            "think-response, minimax-m3, apriel");
  EXPECT_EQ(message(ChooseOutputFormat("", Harmonies(), "harmony", "think")),
            "tool format 'harmony' with reasoning format 'think': harmony is "
            "both or neither");
  const auto plain = TinyTokenizer();
  EXPECT_FALSE(ChooseOutputFormat("", plain->vocabulary(), "harmony").ok());
}

TEST(OutputFormatTest, KeptTokensAreTheSpecialOnesOfTheMarkup) {
  const auto plain = TinyTokenizer();
  EXPECT_EQ(KeptTokens(kGlm, plain->vocabulary()), Ids());  // <think> is text
  EXPECT_EQ(KeptTokens(kHarmony, Harmonies()), (Ids{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(KeptTokens(OutputFormat{}, Harmonies()), Ids());
}

TEST(OutputFormatTest, APromptMayEndInReasoning) {
  EXPECT_TRUE(EndsInReasoning(kIntellect, "<|im_start|>assistant\n<think>"));
  EXPECT_TRUE(EndsInReasoning(kGlm, "<|assistant|><think>\n"));
  EXPECT_FALSE(EndsInReasoning(kGlm, "<|assistant|>\n<think></think>"));
  EXPECT_FALSE(EndsInReasoning(kGlm, "<|assistant|>"));
  EXPECT_FALSE(EndsInReasoning(kLlama, "<think>"));
  EXPECT_FALSE(EndsInReasoning(kHarmony, "<think>"));
  const OutputFormat gemma = {ToolFormat::kGemma, ReasoningFormat::kGemma};
  EXPECT_TRUE(EndsInReasoning(gemma, "<|turn>model\n<|channel>thought\n"));
  const OutputFormat apriel = {ToolFormat::kNone, ReasoningFormat::kApriel};
  EXPECT_TRUE(EndsInReasoning(
      apriel, "<|begin_assistant|>\nHere are my reasoning steps:\n"));
  EXPECT_FALSE(EndsInReasoning(gemma, "<|channel>thought\n<channel|>"));
}

}  // namespace
}  // namespace sluice::testing
