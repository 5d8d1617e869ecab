// The formats of calls and reasoning that families write each in their own
// marks: as their templates show them, and not quite so.
#include <gtest/gtest.h>

#include <map>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/text/jinja.h"
#include "tests/testing/test_data.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

std::string Read(ToolFormat tools, std::string_view text,
                 OutputEnd end = OutputEnd::kStopped,
                 ReasoningFormat reasoning = ReasoningFormat::kNone) {
  return Told({tools, reasoning}, WithTools(), AsText(text), end);
}

TEST(OutputFamiliesTest, MistralWritesANameOrAList) {
  constexpr char kTwo[] =
      R"(get_weather[{"city": "Bern", "days": 2}] get_current_time[{}])";
  EXPECT_EQ(Read(ToolFormat::kMistral,
                 R"([TOOL_CALLS]get_weather[ARGS]{"city": "Bern", "days": 2})"
                 "[TOOL_CALLS]get_current_time[ARGS]{}"),
            kTwo);
  EXPECT_EQ(Read(ToolFormat::kMistral,
                 "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]"
                 R"({"city": "Bern", "days": 2})"
                 "[TOOL_CALLS]get_current_time[CALL_ID]abcdefghj[ARGS]{}"),
            kTwo);
  for (const auto format : {ToolFormat::kMistral, ToolFormat::kMistralList}) {
    EXPECT_EQ(
        Read(format, R"([TOOL_CALLS] [{"name": "get_weather", "arguments": )"
                     R"({"city": "Bern", "days": 2}, "id": "abcdefghi"}, )"
                     R"({"name": "get_current_time", "arguments": {}}])"),
        kTwo);
  }
  EXPECT_EQ(Read(ToolFormat::kMistral, "I look. [TOOL_CALLS]free[ARGS]{}"),
            "text[I look.] free[{}]");
  EXPECT_EQ(Read(ToolFormat::kMistral, "Write [TOOL_CALLS] there. [x]"),
            "text[Write [TOOL_CALLS] there. [x]]");
}

TEST(OutputFamiliesTest, MistralReasonsInMarksOfItsOwn) {
  const OutputFormat format = {ToolFormat::kMistral, ReasoningFormat::kMistral};
  EXPECT_EQ(Told(format, WithTools(),
                 AsText("[THINK]Bern [x]?[/THINK]\nSo: [TOOL_CALLS]"
                        R"(get_weather[ARGS]{"city": "Bern"})")),
            R"(think[Bern [x]?] text[So:] get_weather[{"city": "Bern"}])");
  EXPECT_EQ(Told(format, InReasoning(), AsText("Hm.[/THINK]Yes.")),
            "think[Hm.] text[Yes.]");
}

constexpr char kSection[] = "<｜tool▁calls▁begin｜>";
constexpr char kSectionEnd[] = "<｜tool▁calls▁end｜>";

TEST(OutputFamiliesTest, DeepSeekWritesATypeAndABlock) {
  EXPECT_EQ(
      Read(ToolFormat::kDeepSeekV3,
           Cat("I look.", kSection,
               "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```"
               "json\n"
               "{\"city\": \"Bern\"}\n```<｜tool▁call▁end｜>\n"
               "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_current_time\n"
               "```json\n{}\n```<｜tool▁call▁end｜>",
               kSectionEnd)),
      R"(text[I look.] get_weather[{"city": "Bern"}] get_current_time[{}])");
  // The shape of the next release, and no arguments.
  EXPECT_EQ(Read(ToolFormat::kDeepSeekV3,
                 Cat(kSection, "<｜tool▁call▁begin｜>free<｜tool▁sep｜>",
                     "{\"a\": \"`\"}<｜tool▁call▁end｜>", kSectionEnd)),
            R"(free[{"a": "`"}])");
  EXPECT_EQ(Read(ToolFormat::kDeepSeekV3,
                 Cat(kSection,
                     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>free\n"
                     "<｜tool▁call▁end｜>",
                     kSectionEnd)),
            "free[{}]");
}

TEST(OutputFamiliesTest, DeepSeekWritesANameAndJson) {
  const std::string calls = Cat(
      kSection,
      "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Bern\"}"
      "<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_current_time<｜tool▁sep｜>{}"
      "<｜tool▁call▁end｜>",
      kSectionEnd);
  EXPECT_EQ(Read(ToolFormat::kDeepSeekV31, calls),
            R"(get_weather[{"city": "Bern"}] get_current_time[{}])");
  EXPECT_EQ(Read(ToolFormat::kDeepSeekV31, "<think>x</think>" + calls,
                 OutputEnd::kStopped, ReasoningFormat::kThink),
            R"(think[x] get_weather[{"city": "Bern"}] get_current_time[{}])");
  EXPECT_EQ(Read(ToolFormat::kDeepSeekV31,
                 Cat(kSection, "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>",
                     "{\"city\": \"Be"),
                 OutputEnd::kCutShort),
            R"(get_weather[{"city": "Be...)");
}

TEST(OutputFamiliesTest, DeepSeekTellsStrings) {
  for (const bool is_new : {false, true}) {
    const std::string name = is_new ? "tool_calls" : "function_calls";
    EXPECT_EQ(
        Read(is_new ? ToolFormat::kDeepSeekV4 : ToolFormat::kDeepSeekV32,
             Cat("I look.\n\n<｜DSML｜", name, ">\n",
                 "<｜DSML｜invoke name=\"search\">\n"
                 "<｜DSML｜parameter name=\"query\" string=\"true\">a < b\n"
                 "</｜DSML｜parameter>\n"
                 "<｜DSML｜parameter name=\"limit\" string=\"false\">2"
                 "</｜DSML｜parameter>\n"
                 "<｜DSML｜parameter name=\"tags\" string=\"false\">[\"x\"]"
                 "</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
                 "<｜DSML｜invoke name=\"free\">\n"
                 "<｜DSML｜parameter name=\"a\" string=\"true\">1"
                 "</｜DSML｜parameter>\n"
                 "<｜DSML｜parameter name=\"b\" string=\"false\">1"
                 "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜",
                 name, ">")),
        R"(text[I look.] search[{"query": "a < b\n", "limit": 2, )"
        R"("tags": ["x"]}] free[{"a": "1", "b": 1}])");
  }
}

TEST(OutputFamiliesTest, MiniMaxWritesInvocations) {
  EXPECT_EQ(Read(ToolFormat::kMiniMax,
                 "I look.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n"
                 "<parameter name=\"city\">\nBern</parameter>\n"
                 "<parameter name=\"days\">2</parameter>\n</invoke>\n"
                 "<invoke name=\"get_current_time\">\n</invoke>\n"
                 "</minimax:tool_call>"),
            R"(text[I look.] get_weather[{"city": "\nBern", "days": 2}] )"
            "get_current_time[{}]");
  EXPECT_EQ(Read(ToolFormat::kMiniMax, "A <b> and </minimax:tool_call>."),
            "text[A <b> and </minimax:tool_call>.]");
  EXPECT_EQ(Read(ToolFormat::kMiniMax, "Write <invoke name=\"Foo\"> there."),
            "text[Write <invoke name=\"Foo\"> there.]");
}

TEST(OutputFamiliesTest, SeedHasTagsOfItsOwn) {
  const OutputFormat format = {ToolFormat::kSeed, ReasoningFormat::kSeed};
  EXPECT_EQ(Told(format, WithTools(),
                 AsText("<seed:think>Bern?</seed:think>\n<seed:tool_call>\n"
                        "<function=get_weather>\n<parameter=city>Bern"
                        "</parameter>\n<parameter=days>2</parameter>\n"
                        "</function>\n</seed:tool_call>\n<seed:tool_call>\n"
                        "<function=get_current_time>\n</function>\n"
                        "</seed:tool_call>")),
            R"(think[Bern?] get_weather[{"city": "Bern", "days": 2}] )"
            "get_current_time[{}]");
}

TEST(OutputFamiliesTest, KimiNumbersItsCalls) {
  EXPECT_EQ(Read(ToolFormat::kKimi,
                 "I look.<|tool_calls_section_begin|><|tool_call_begin|>"
                 "functions.get_weather:0<|tool_call_argument_begin|>"
                 R"({"city": "Bern <|x|>"}<|tool_call_end|><|tool_call_begin|>)"
                 "functions.get_current_time:1<|tool_call_argument_begin|>{}"
                 "<|tool_call_end|><|tool_calls_section_end|>"),
            R"(text[I look.] get_weather[{"city": "Bern <|x|>"}] )"
            "get_current_time[{}]");
  EXPECT_EQ(Read(ToolFormat::kKimi,
                 "<|tool_call_begin|>free<|tool_call_argument_begin|>{"),
            "free[{}]");
}

TEST(OutputFamiliesTest, ListsOfJsonStandBetweenTags) {
  const std::map<ToolFormat, std::pair<std::string, std::string>> kTags = {
      {ToolFormat::kGranite, {"<|tool_call|>", ""}},
      {ToolFormat::kPhi, {"<|tool_call|>", "<|/tool_call|>"}},
      {ToolFormat::kHunyuan, {"<tool_calls>", "</tool_calls>"}},
      {ToolFormat::kFirefunction, {"functools", ""}},
      {ToolFormat::kLongCat, {"<longcat_tool_call>", "</longcat_tool_call>"}},
      {ToolFormat::kGigaChat, {"<|function_call|>", ""}},
      {ToolFormat::kApertus, {"<|tools_prefix|>", "<|tools_suffix|>"}},
      {ToolFormat::kNemotron, {"<TOOLCALL>", "</TOOLCALL>"}},
      {ToolFormat::kLfm, {"<|tool_call_start|>", "<|tool_call_end|>"}}};
  for (const auto& [format, tags] : kTags) {
    SCOPED_TRACE(ToolFormatName(format));
    const auto& [open, close] = tags;
    EXPECT_EQ(
        Read(format, Cat("I look. ", open, "[{\"name\": \"get_weather\", ",
                         "\"arguments\": {\"city\": \"B]n\"}}, ",
                         "{\"name\": \"get_current_time\", \"arguments\": {}}]",
                         close, " So.")),
        R"(text[I look.] get_weather[{"city": "B]n"}] get_current_time[{}] )"
        "text[  So.]");
    EXPECT_EQ(
        Read(format,
             Cat(open, "{\"name\": \"free\", \"arguments\": ", "{\"a\": [1")),
        R"(free[{"a": [1]}])");
    EXPECT_EQ(Read(format, Cat("A ", open, "[1, 2]", close, " list.")),
              Cat("text[A ", open, "[1, 2]", close, " list.]"));
  }
}

TEST(OutputFamiliesTest, ObjectsMayHaveALineEach) {
  constexpr char kTwo[] = R"(get_weather[{"city": "Bern"}] free[{}])";
  constexpr char kLines[] =
      "\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n"
      "{\"name\": \"free\", \"arguments\": {}}\n";
  EXPECT_EQ(
      Read(ToolFormat::kHunyuan, Cat("<tool_calls>", kLines, "</tool_calls>")),
      kTwo);
  EXPECT_EQ(Read(ToolFormat::kHunyuan, Cat("<tool_calls>", kLines)), kTwo);
  EXPECT_EQ(Read(ToolFormat::kHunyuan,
                 Cat("<tool_calls>", kLines, "{\"a\": 1}</tool_calls>")),
            Cat(kTwo, " text[{\"a\": 1}</tool_calls>]"));
  EXPECT_EQ(
      Read(ToolFormat::kLongCat,
           "<longcat_tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
           "{\"city\": \"Bern\"}}\n</longcat_tool_call>\n<longcat_tool_call>\n"
           "{\"name\": \"free\", \"arguments\": {}}\n</longcat_tool_call>"),
      kTwo);
}

TEST(OutputFamiliesTest, ApertusNamesCallsByKeys) {
  const OutputFormat format = {ToolFormat::kApertus, ReasoningFormat::kApertus};
  EXPECT_EQ(
      Told(format, WithTools(),
           AsText("<|inner_prefix|>Hm.<|inner_suffix|>I look.<|tools_prefix|>"
                  R"([{"get_weather": {"city": "B}]n", "days": 2}}, )"
                  R"({"get_current_time": {}}]<|tools_suffix|>So.)")),
      R"(think[Hm.] text[I look.] get_weather[{"city": "B}]n", "days": 2}] )"
      "get_current_time[{}] text[So.]");
  EXPECT_EQ(Read(ToolFormat::kApertus,
                 R"(<|tools_prefix|>[{"a\u0062": null}, {"x": [1)"),
            R"(ab[{}] x[[1]])");
  OutputRequest request;
  request.tools = {{"name", ""}};
  EXPECT_EQ(
      Told(format, request, AsText(R"(<|tools_prefix|>[{"name": {"a": 1}}])")),
      R"(name[{"a": 1}])");
}

TEST(OutputFamiliesTest, CommandPlansAndActs) {
  const OutputFormat format = {ToolFormat::kCommand, ReasoningFormat::kCommand};
  EXPECT_EQ(
      Told(format, WithTools(),
           AsText("<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n"
                  "    {\"tool_call_id\": \"0\", \"tool_name\": "
                  "\"get_weather\", \"parameters\": {\"city\": \"Bern\"}},\n"
                  "    {\"tool_call_id\": \"1\", \"tool_name\": "
                  "\"get_current_time\", \"parameters\": {}}\n"
                  "]<|END_ACTION|>")),
      R"(think[I look.] get_weather[{"city": "Bern"}] get_current_time[{}])");
  for (const OutputRequest& request : {WithTools(), WithoutTools()}) {
    EXPECT_EQ(Told(format, request,
                   AsText("<|START_THINKING|>Hm.<|END_THINKING|>"
                          "<|START_RESPONSE|>It is <b>.<|END_RESPONSE|>")),
              "think[Hm.] text[It is <b>.]");
  }
}

TEST(OutputFamiliesTest, LfmWritesPython) {
  EXPECT_EQ(
      Read(ToolFormat::kLfm,
           "<|tool_call_start|>[search(query=\"a, b) \\\"c\\\"\\n\", limit=2, "
           "deep=True, tags=['x', \"y\"], options={'k': None}), "
           "get_current_time()]<|tool_call_end|>I look."),
      R"(search[{"query": "a, b) \"c\"\n", "limit": 2, "deep": true, )"
      R"("tags": ["x", "y"], "options": {"k": null}}] get_current_time[{}] )"
      "text[I look.]");
  EXPECT_EQ(Read(ToolFormat::kLfm,
                 "<|tool_call_start|>[free(a='it\\'s \\u00e9', b=-1.5)]"),
            R"(free[{"a": "it's é", "b": -1.5}])");
  EXPECT_EQ(Read(ToolFormat::kLfm, "<|tool_call_start|>[free(a=\"x",
                 OutputEnd::kCutShort),
            R"(free[{"a": "x...)");
  EXPECT_EQ(Read(ToolFormat::kLfm, "<|tool_call_start|>[free(a=\"x"),
            R"(free[{"a": "x"}])");
}

TEST(OutputFamiliesTest, GemmaWritesNamesWithoutQuotes) {
  const OutputFormat format = {ToolFormat::kGemma, ReasoningFormat::kGemma};
  EXPECT_EQ(
      Told(format, WithTools(),
           AsText("<|channel>thought\nHm.\n<channel|><|tool_call>call:search{"
                  "deep:true,limit:2,options:{k:<|\"|>v<|\"|>,<|\"|>l<|\"|>:[1,"
                  "<|\"|>a < \"b\"<|\"|>]},query:<|\"|>a, {b}\n<|\"|>}"
                  "<tool_call|><|tool_call>call:get_current_time{}"
                  "<tool_call|>")),
      R"(think[Hm.] search[{"deep": true, "limit": 2, "options": {"k": "v", )"
      R"("l": [1, "a < \"b\""]}, "query": "a, {b}\n"}] get_current_time[{}])");
  EXPECT_EQ(Read(ToolFormat::kGemma,
                 R"(<|tool_call>call:free{"a": "x\"", "b": [1, {}]})"
                 "<tool_call|>So."),
            R"(free[{"a": "x\"", "b": [1, {}]}] text[So.])");
  EXPECT_EQ(Read(ToolFormat::kGemma, "<|tool_call>call:free{a:[<|\"|>x"),
            R"(free[{"a": ["x"]}])");
}

// Templates, and what they show.
struct Family {
  const char* file;
  ToolFormat tools;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool renders_calls = true;
};

constexpr Family kFamilies[] = {
    {"Apertus-8B-Instruct", ToolFormat::kApertus, ReasoningFormat::kApertus,
     false},
    {"ByteDance-Seed-OSS", ToolFormat::kSeed, ReasoningFormat::kSeed},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", ToolFormat::kCommand,
     ReasoningFormat::kCommand},
    {"CohereForAI-c4ai-command-r-plus-tool_use", ToolFormat::kCommandPlus},
    {"HuggingFaceTB-SmolLM3-3B", ToolFormat::kNone, ReasoningFormat::kThink,
     false},
    {"Kimi-K2-Thinking", ToolFormat::kKimi, ReasoningFormat::kThink, false},
    {"LFM2.5-8B-A1B", ToolFormat::kLfm, ReasoningFormat::kThink},
    {"MiniMax-M3", ToolFormat::kMiniMaxM3, ReasoningFormat::kMiniMaxM3},
    {"MiniMax-M2", ToolFormat::kMiniMax, ReasoningFormat::kThink},
    {"Mistral-Small-3.2-24B-Instruct-2506", ToolFormat::kMistral},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ToolFormat::kQwenCoder,
     ReasoningFormat::kThink},
    {"NVIDIA-Nemotron-Nano-v2", ToolFormat::kNemotron, ReasoningFormat::kThink},
    {"Qwen-QwQ-32B", ToolFormat::kHermes, ReasoningFormat::kThink},
    {"Qwen3.5-4B", ToolFormat::kQwenCoder, ReasoningFormat::kThink},
    {"deepseek-ai-DeepSeek-V3.1", ToolFormat::kDeepSeekV31,
     ReasoningFormat::kThink},
    {"deepseek-ai-DeepSeek-V3.2", ToolFormat::kDeepSeekV32,
     ReasoningFormat::kThink},
    {"deepseek-ai-DeepSeek-V4", ToolFormat::kDeepSeekV4,
     ReasoningFormat::kThink},
    {"llama-cpp-deepseek-r1", ToolFormat::kDeepSeekV3, ReasoningFormat::kThink},
    {"google-gemma-4-31B-it", ToolFormat::kGemma, ReasoningFormat::kGemma},
    {"ibm-granite-granite-4.0", ToolFormat::kHermes},
    {"mistralai-Ministral-3-14B-Reasoning-2512", ToolFormat::kMistral,
     ReasoningFormat::kMistral},
    {"mistralai-Mistral-Nemo-Instruct-2407", ToolFormat::kMistralList},
    {"moonshotai-Kimi-K2", ToolFormat::kKimi},
    {"unsloth-mistral-Devstral-Small-2507", ToolFormat::kMistral},
};

// What the template renders of a user's question and of an answer with two
// calls, behind the question.
std::string RenderedCalls(const std::string& source) {
  const Json call = {
      {"id", "abcdefghi"},
      {"type", "function"},
      {"function",
       {{"name", "search"},
        {"arguments",
         {{"query", "a \"b\", {c}"}, {"limit", 2}, {"tags", {"x", "y"}}}}}}};
  const Json other = {
      {"id", "abcdefghj"},
      {"type", "function"},
      {"function",
       {{"name", "get_weather"}, {"arguments", {{"city", "Bern"}}}}}};
  const Json tool = {
      {"type", "function"},
      {"function",
       {{"name", "search"},
        {"description", "Finds."},
        {"parameters",
         {{"type", "object"},
          {"properties",
           {{"query", {{"type", "string"}, {"description", "x"}}}}}}}}}};
  const Json context = {{"messages",
                         {{{"role", "user"}, {"content", "THE-QUESTION"}},
                          {{"role", "assistant"},
                           {"content", ""},
                           {"reasoning_content", "Hm."},
                           {"tool_calls", {call, other}}}}},
                        {"tools", {tool}},
                        {"add_generation_prompt", false},
                        {"bos_token", ""},
                        {"eos_token", ""}};
  const auto compiled = JinjaTemplate::Compile(source);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  const auto variables = JinjaVariables::Parse(DumpJson(context));
  EXPECT_TRUE(variables.ok()) << variables.status();
  const auto text = (*compiled)->Render("{}", *variables, 0);
  EXPECT_TRUE(text.ok()) << text.status();
  constexpr std::string_view kQuestion = "THE-QUESTION";
  return text.ok() ? text->substr(text->rfind(kQuestion) + kQuestion.size())
                   : "";
}

TEST(OutputFamiliesTest, CallsThatTemplatesRenderAreReadBack) {
  const auto templates = TestData("templates");
  if (!templates) GTEST_SKIP() << "needs build/data/templates";
  const OutputRequest request = WithTools();
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.file);
    const std::string source =
        ReadFileOrDie(Cat(*templates, "/", family.file, ".jinja"));
    const auto format =
        ChooseOutputFormat(source, HarmonyTokenizer().vocabulary());
    ASSERT_TRUE(format.ok()) << format.status();
    EXPECT_EQ(ToolFormatName(format->tools), ToolFormatName(family.tools));
    EXPECT_EQ(ReasoningFormatName(format->reasoning),
              ReasoningFormatName(family.reasoning));
    if (!family.renders_calls) continue;
    const std::string text = RenderedCalls(source);
    std::vector<std::string> names;
    std::vector<std::string> arguments;
    for (const OutputEvent& event :
         ParseStream(*format, request, CutIntoBytes(AsText(text)))) {
      if (event.kind == OutputEvent::Kind::kCallBegin) {
        names.push_back(event.text);
        arguments.emplace_back();
      }
      if (event.kind == OutputEvent::Kind::kArguments) {
        arguments.back() += event.text;
      }
    }
    ASSERT_EQ(names, (std::vector<std::string>{"search", "get_weather"}))
        << text;
    const Json first = {
        {"query", "a \"b\", {c}"}, {"limit", 2}, {"tags", {"x", "y"}}};
    // Without order: some templates sort.
    EXPECT_EQ(nlohmann::json::parse(arguments[0]),
              nlohmann::json::parse(DumpJson(first)))
        << text;
    EXPECT_EQ(*ParseJson(arguments[1]), (Json{{"city", "Bern"}})) << text;
  }
}

}  // namespace
}  // namespace sluice::testing
