// Formats whose markup is text: what is read, and what becomes of outputs that
// are not as they should be.
#include <gtest/gtest.h>

#include "common/base/cat.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

std::string Qwen(std::string_view text, OutputEnd end = OutputEnd::kStopped) {
  return Told(kIntellect, WithTools(), AsText(text), end);
}

std::string Hermes(std::string_view text, OutputEnd end = OutputEnd::kStopped) {
  return Told(kHermes, WithTools(), AsText(text), end);
}

std::string Llama(std::string_view text, OutputEnd end = OutputEnd::kStopped) {
  return Told(kLlama, WithTools(), AsText(text), end);
}

// Reasoning ----------------------------------------------------------------

TEST(OutputThinkTest, ReasoningAndContentAreToldApart) {
  EXPECT_EQ(Glm("\n<think>Let me\nsee. </think>\n\nIt is  blue.\n"),
            "think[Let me\nsee.] text[It is  blue.\n]");
}

TEST(OutputThinkTest, WithoutTagsAllIsContent) {
  EXPECT_EQ(Glm("\nIt is a <b>bold</b> < 3 claim."),
            "text[It is a <b>bold</b> < 3 claim.]");
  EXPECT_EQ(Glm(""), "");
  EXPECT_EQ(Glm(" \n "), "");
}

TEST(OutputThinkTest, APrefilledTagNeedsNoOther) {
  EXPECT_EQ(Told(kIntellect, InReasoning(), AsText("Hm.\n</think>\nYes.")),
            "think[Hm.] text[Yes.]");
  EXPECT_EQ(Told(kGlm, InReasoning(), AsText("<think>Hm.</think>Yes.")),
            "think[Hm.] text[Yes.]");
}

TEST(OutputThinkTest, WhiteSpaceIsHeldBackOnlyWhereACallMayFollow) {
  for (const bool with_tools : {false, true}) {
    const auto parser =
        NewOutputParser(kHermes, HarmonyTokenizer().vocabulary(),
                        with_tools ? WithTools() : WithoutTools());
    EXPECT_EQ(Show(parser->Feed(-1, "<think>Hm.</think>\n\nYes.")),
              "think[Hm.] text[Yes.]");
    EXPECT_EQ(Show(parser->Feed(-1, "\n\n")), with_tools ? "" : "text[\n\n]");
  }
}

TEST(OutputThinkTest, EmptyReasoningIsNone) {
  EXPECT_EQ(Glm("<think></think>\nYes."), "text[Yes.]");
  EXPECT_EQ(Glm("</think>Yes."), "text[Yes.]");
  EXPECT_EQ(Glm("<think></think>\n<think>Wait.</think>Yes."),
            "think[Wait.] text[Yes.]");
}

TEST(OutputThinkTest, ReasoningThatNeverEndsIsReasoning) {
  EXPECT_EQ(Glm("<think>I go on ", OutputEnd::kCutShort), "think[I go on]");
  EXPECT_EQ(Glm("<think>I go on</thi"), "think[I go on</thi]");
}

TEST(OutputThinkTest, TagsWithinContentAreContent) {
  EXPECT_EQ(Glm("Write <think>..</think> around it."),
            "text[Write <think>..</think> around it.]");
}

TEST(OutputThinkTest, WithoutAReasoningFormatTagsAreContent) {
  const OutputFormat format = {ToolFormat::kGlm, ReasoningFormat::kNone};
  EXPECT_EQ(Told(format, WithTools(), AsText("\n<think>Hm.</think>\nYes.\n")),
            "text[\n<think>Hm.</think>\nYes.\n]");
}

// GLM ----------------------------------------------------------------------

TEST(OutputGlmTest, ACallIsReadAsTheTemplateWritesIt) {
  EXPECT_EQ(Glm("<think>Look.</think>\nI look.\n<tool_call>get_weather\n"
                "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
                "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
                "</tool_call>"),
            "think[Look.] text[I look.] "
            "get_weather[{\"city\": \"Paris\", \"days\": 3}]");
}

TEST(OutputGlmTest, ACallNeedsNoWhiteSpace) {
  EXPECT_EQ(Glm("</think>I look.<tool_call>get_weather<arg_key>city</arg_key>"
                "<arg_value> Paris </arg_value></tool_call>"),
            "text[I look.] get_weather[{\"city\": \" Paris \"}]");
}

TEST(OutputGlmTest, SeveralCallsAndTextBetweenAndBehind) {
  EXPECT_EQ(Glm("First\n<tool_call>get_current_time\n</tool_call>\n"
                "<tool_call>get_current_time</tool_call>\nthen more\n"),
            "text[First] get_current_time[{}] get_current_time[{}] "
            "text[\n\n\nthen more]");
}

TEST(OutputGlmTest, ValuesAreTypedByTheSchema) {
  EXPECT_EQ(
      Glm("<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>12</"
          "arg_value>\n<arg_key>limit</arg_key>\n<arg_value> 12 </arg_value>\n"
          "<arg_key>deep</arg_key>\n<arg_value>True</arg_value>\n"
          "<arg_key>tags</arg_key>\n<arg_value>['a', \"b's\"]</arg_value>\n"
          "<arg_key>options</arg_key>\n<arg_value>{\"x\": [1.50]}</arg_value>\n"
          "<arg_key>ratio</arg_key>\n<arg_value>None</arg_value>\n"
          "<arg_key>note</arg_key>\n<arg_value>null</arg_value>\n"
          "</tool_call>"),
      "search[{\"query\": \"12\", \"limit\": 12, \"deep\": true, \"tags\": "
      "[\"a\", \"b's\"], \"options\": {\"x\": [1.50]}, \"ratio\": null, "
      "\"note\": null}]");
}

TEST(OutputGlmTest, AValueThatIsNotWhatTheSchemaSaysIsAString) {
  EXPECT_EQ(Glm("<tool_call>search<arg_key>limit</arg_key><arg_value>about 12"
                "</arg_value><arg_key>note</arg_key><arg_value>7</arg_value>"
                "</tool_call>"),
            "search[{\"limit\": \"about 12\", \"note\": \"7\"}]");
}

// A stream has sent the first value.
TEST(OutputGlmTest, OfAParameterThatComesTwiceTheFirstValueStands) {
  EXPECT_EQ(Glm("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome"
                "</arg_value><arg_key> city </arg_key><arg_value>\"Paris\""
                "</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>"
                "<arg_key>days</arg_key><arg_value>[\"</arg_value>\"]"
                "</arg_value></tool_call>"),
            "get_weather[{\"city\": \"Rome\", \"days\": 2}]");
  EXPECT_EQ(Glm("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome"
                "</arg_value></tool_call><tool_call>get_weather<arg_key>city"
                "</arg_key><arg_value>Bern</arg_value></tool_call>"),
            "get_weather[{\"city\": \"Rome\"}] "
            "get_weather[{\"city\": \"Bern\"}]");
  EXPECT_EQ(Qwen("<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n"
                 "</parameter>\n<parameter=\"city\">\nParis\n</parameter>\n"
                 "</function>\n</tool_call>"),
            "get_weather[{\"city\": \"Rome\"}]");
}

TEST(OutputGlmTest, StringsOfAnEnumStayStrings) {
  OutputRequest request;
  request.tools = {{"f", R"({"$ref": "#/$defs/f", "$defs": {
      "f": {"properties": {
          "a": {"type": ["string", "integer"], "enum": ["1", 2, "null"]},
          "b": {"type": ["boolean", "string"], "const": "true"},
          "c": {"$ref": "#/$defs/c"}, "d": {"enum": ["1", 1]},
          "e": {"type": ["integer", "string"], "enum": ["1"]}}},
      "c": {"enum": [" 3 ", 4, {"x": 1}]}}})"}};
  const auto call = [&](std::string_view name, std::string_view value) {
    return Told(kGlm, request,
                AsText("<tool_call>f<arg_key>" + std::string(name) +
                       "</arg_key><arg_value>" + std::string(value) +
                       "</arg_value></tool_call>"),
                OutputEnd::kStopped);
  };
  EXPECT_EQ(call("a", "1"), "f[{\"a\": \"1\"}]");
  EXPECT_EQ(call("a", "2"), "f[{\"a\": 2}]");
  EXPECT_EQ(call("a", "null"), "f[{\"a\": \"null\"}]");
  EXPECT_EQ(call("b", "true"), "f[{\"b\": \"true\"}]");
  EXPECT_EQ(call("b", "false"), "f[{\"b\": false}]");
  EXPECT_EQ(call("c", " 3 "), "f[{\"c\": \" 3 \"}]");
  EXPECT_EQ(call("c", "4"), "f[{\"c\": 4}]");
  EXPECT_EQ(call("c", "{\"x\": 1}"), "f[{\"c\": {\"x\": 1}}]");
  EXPECT_EQ(call("d", "1"), "f[{\"d\": 1}]");
  EXPECT_EQ(call("e", "7"), "f[{\"e\": 7}]");
}

TEST(OutputGlmTest, WithoutASchemaJsonIsJsonAndTheRestStrings) {
  EXPECT_EQ(Glm("<tool_call>free<arg_key>a</arg_key><arg_value>7</arg_value>"
                "<arg_key>b</arg_key><arg_value>seven</arg_value></tool_call>"),
            "free[{\"a\": 7, \"b\": \"seven\"}]");
  // Python's lists and words are read, its numbers are not.
  for (const char* text : {"007", "+49171", "1_000", "0x1F", ".5", "(5)"}) {
    EXPECT_EQ(Glm(Cat("<tool_call>free<arg_key>a</arg_key><arg_value>", text,
                      "</arg_value></tool_call>")),
              Cat("free[{\"a\": \"", text, "\"}]"));
  }
  EXPECT_EQ(Glm("<tool_call>free<arg_key>a</arg_key><arg_value>['x', True]"
                "</arg_value></tool_call>"),
            "free[{\"a\": [\"x\", true]}]");
}

TEST(OutputGlmTest, StringsMaySpellMarkup) {
  EXPECT_EQ(Glm("<tool_call>write_file<arg_key>path</arg_key><arg_value>a "
                "</arg_value> b </tool_call> c <arg_key>d</arg_key>\n\"\\\t"
                "</arg_value></tool_call>"),
            "write_file[{\"path\": \"a </arg_value> b </tool_call> c "
            "<arg_key>d</arg_key>\\n\\\"\\\\\\t\"}]");
}

TEST(OutputGlmTest, StringsWithinJsonMaySpellAllMarkup) {
  EXPECT_EQ(Glm("<tool_call>search\n<arg_key>tags</arg_key>\n<arg_value>[\"a"
                "</arg_value></tool_call><tool_call>\\\"</arg_value>\"]"
                "</arg_value>\n</tool_call>"),
            "search[{\"tags\": [\"a</arg_value></tool_call><tool_call>\\\""
            "</arg_value>\"]}]");
  // A string of JSON has no line feed: the model broke this one off.
  EXPECT_EQ(Glm("<tool_call>search\n<arg_key>tags</arg_key>\n<arg_value>[\"a\n"
                "</arg_value>\n</tool_call>"),
            "search[{\"tags\": \"[\\\"a\\n\"}]");
}

TEST(OutputGlmTest, MissingClosingTagsArePutIn) {
  const std::string call = "get_weather[{\"city\": \"Paris\"}]";
  const std::string begun =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris";
  EXPECT_EQ(Glm(begun), call);
  EXPECT_EQ(Glm(begun + "</arg_va"), call);
  EXPECT_EQ(Glm(begun + "</arg_value>\n"), call);
  EXPECT_EQ(Glm(begun + "</arg_value>\n</tool_"), call);
  EXPECT_EQ(Glm(begun + "</tool_call>"), call);
  EXPECT_EQ(Glm(begun + "</tool_call>\n<tool_call>get_current_time"),
            call + " get_current_time[{}]");
  EXPECT_EQ(Glm(begun + "</arg_value>\n<tool_call>get_current_time"),
            call + " get_current_time[{}]");
  EXPECT_EQ(Glm("<tool_call>get_weather<arg_key>city<arg_value>Paris"
                "</arg_value></tool_call>"),
            call);
}

TEST(OutputGlmTest, AnOutputThatIsCutShortLeavesTheCallOpen) {
  EXPECT_EQ(Glm("<tool_call>get_weather\n<arg_key>city</arg_key>\n"
                "<arg_value>Par",
                OutputEnd::kCutShort),
            "get_weather[{\"city\": \"Par...");
  EXPECT_EQ(Glm("<tool_call>get_weather\n<arg_key>city</arg_key>\n"
                "<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>"
                "<arg_value>1",
                OutputEnd::kCutShort),
            "get_weather[{\"city\": \"Paris\", \"days\": ...");
  EXPECT_EQ(Glm("<tool_call>get_wea", OutputEnd::kCutShort),
            "text[<tool_call>get_wea]");
}

TEST(OutputGlmTest, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>", "<tool_call> to call",
        "<tool_call>two words</tool_call>", "<tool_call></tool_call>",
        "<tool_call>unknown", "</tool_call>",
        "<tool_call>{\"name\": 7}</tool_call>", "<tool_call>{\"no\": 1}",
        "<tool_call><function=>x", "a <arg_key>b</arg_key>"}) {
    EXPECT_EQ(Glm(text), "text[" + text + "]");
  }
}

TEST(OutputGlmTest, AFunctionThatWasNotOfferedIsACallAllTheSame) {
  EXPECT_EQ(Glm("<tool_call>rm\n<arg_key>f</arg_key><arg_value>x</arg_value>"
                "</tool_call>"),
            "rm[{\"f\": \"x\"}]");
}

TEST(OutputGlmTest, WhatBelongsToNoParameterIsDropped) {
  EXPECT_EQ(Glm("<tool_call>get_weather\n<arg_key>x</arg_key> and "
                "<arg_key>city</arg_key>=<arg_value>Paris</arg_value>\n"
                "</tool_call>"),
            "get_weather[{\"city\": \"Paris\"}]");
}

TEST(OutputGlmTest, WithoutToolsMarkupIsContent) {
  const std::string text = "<tool_call>get_current_time</tool_call>";
  EXPECT_EQ(Told(kGlm, WithoutTools(), AsText("<think>a</think>" + text)),
            "think[a] text[" + text + "]");
}

TEST(OutputGlmTest, JsonBetweenTheTagsIsReadToo) {
  EXPECT_EQ(Glm("<tool_call>{\"name\": \"get_weather\", \"arguments\": "
                "{\"city\": \"Paris\"}}</tool_call>"),
            "get_weather[{\"city\": \"Paris\"}]");
}

// Qwen3-Coder --------------------------------------------------------------

TEST(OutputQwenCoderTest, ACallIsReadAsTheTemplateWritesIt) {
  EXPECT_EQ(Told(kIntellect, InReasoning(),
                 AsText("Look.</think>\nI look.\n<tool_call>\n"
                        "<function=get_weather>\n<parameter=city>\nParis\n"
                        "</parameter>\n<parameter=days>\n3\n</parameter>\n"
                        "</function>\n</tool_call>")),
            "think[Look.] text[I look.] "
            "get_weather[{\"city\": \"Paris\", \"days\": 3}]");
}

TEST(OutputQwenCoderTest, OneLineFeedOnEitherSideIsNotTheValues) {
  EXPECT_EQ(Qwen("<tool_call><function=write_file><parameter=path>\n\n a\n\n\n"
                 "</parameter><parameter=content></parameter></function>"
                 "</tool_call>"),
            "write_file[{\"path\": \"\\n a\\n\\n\", \"content\": \"\"}]");
}

TEST(OutputQwenCoderTest, TheOuterTagMayBeMissing) {
  EXPECT_EQ(Qwen("I look.\n<function=get_weather>\n<parameter=city>\nParis\n"
                 "</parameter>\n</function>\n</tool_call>\n<function="
                 "get_current_time></function>"),
            "text[I look.] get_weather[{\"city\": \"Paris\"}] "
            "get_current_time[{}]");
}

TEST(OutputQwenCoderTest, StringsMaySpellMarkup) {
  EXPECT_EQ(Qwen("<tool_call><function=write_file><parameter=path>\n"
                 "<parameter=x>\n</parameter>\n</function> </tool_call>\n"
                 "</parameter></function></tool_call>"),
            "write_file[{\"path\": \"<parameter=x>\"}] "
            "text[</parameter></function></tool_call>]");
  EXPECT_EQ(Qwen("<tool_call><function=write_file><parameter=path>\n"
                 "<p></parameter> or </function>.\n</parameter>\n</function>\n"
                 "</tool_call>"),
            "write_file[{\"path\": \"<p></parameter> or </function>.\"}]");
}

TEST(OutputQwenCoderTest, StringsWithinJsonMaySpellAllMarkup) {
  const std::string begin =
      "<tool_call>\n<function=search>\n<parameter=tags>\n";
  const std::string end = "\n</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(Told(kIntellect, WithTools(),
                 AsText(begin +
                        "[\"a</function></tool_call>b\", "
                        "\"</parameter></function>\"]" +
                        end)),
            "search[{\"tags\": [\"a</function></tool_call>b\", "
            "\"</parameter></function>\"]}]");
  EXPECT_EQ(Told(kIntellect, WithTools(), AsText(begin + "[\"a" + end)),
            "search[{\"tags\": \"[\\\"a\"}]");
}

TEST(OutputQwenCoderTest, MissingClosingTagsArePutIn) {
  const std::string call = "get_weather[{\"city\": \"Paris\"}]";
  const std::string begun =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis";
  for (const std::string end :
       {"", "\n", "\n</param", "\n</parameter>", "\n</parameter>\n</function>",
        "\n</function>\n</tool_call>", "\n</parameter>\n</tool_call>",
        "\n</parameter>\n</function>\n</tool"}) {
    EXPECT_EQ(Qwen(begun + end), call) << end;
  }
  EXPECT_EQ(Qwen(begun + "\n</parameter>\n<tool_call>\n"
                         "<function=get_current_time>"),
            call + " get_current_time[{}]");
}

TEST(OutputQwenCoderTest, AnOutputThatIsCutShortLeavesTheCallOpen) {
  EXPECT_EQ(Qwen("<tool_call>\n<function=get_weather>\n<parameter=city>\nPa\n",
                 OutputEnd::kCutShort),
            "get_weather[{\"city\": \"Pa...");
}

TEST(OutputQwenCoderTest, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"<function=", "<function=a b>", "<function=></function>",
        "<tool_call>\n<function", "</function>"}) {
    EXPECT_EQ(Qwen(text), "text[" + text + "]");
  }
}

// Hermes, Qwen3 ------------------------------------------------------------

TEST(OutputHermesTest, ACallIsReadAsTheTemplateWritesIt) {
  EXPECT_EQ(Hermes("<think>\nLook.\n</think>\n\nI look.\n<tool_call>\n{\"name\""
                   ": \"get_weather\", \"arguments\": {\"city\": \"P}a\\\"\"}}"
                   "\n</tool_call>\n<tool_call>\n{\"arguments\": null, \"name\""
                   ": \"get_current_time\"}\n</tool_call>"),
            "think[Look.] text[I look.] get_weather[{\"city\": \"P}a\\\"\"}] "
            "get_current_time[{}]");
}

TEST(OutputHermesTest, ArgumentsWithinAStringAreTakenOut) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"get_weather\", \"arguments\": "
                   "\"{\\\"city\\\": \\\"Paris\\\"}\"}</tool_call>"),
            "get_weather[{\"city\": \"Paris\"}]");
}

TEST(OutputHermesTest, MissingEndsArePutIn) {
  const std::string call = "get_weather[{\"city\": \"Paris\"}]";
  const std::string begun =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
      "{\"city\": \"Paris";
  for (const std::string end :
       {"", "\"", "\"}", "\"}}", "\"}}\n</tool", "\"}}\n</tool_call>\n",
        "\"}\n</tool_call>", "\"}, \"id\": \"x}\"}</tool_call>"}) {
    EXPECT_EQ(Hermes(begun + end), call) << end;
  }
}

TEST(OutputHermesTest, ControlCharactersInStringsAreEscaped) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"free\", \"arguments\": {\"a\":\n"
                   "\"b\nc\"}}</tool_call>"),
            "free[{\"a\":\n\"b\\nc\"}]");
  EXPECT_EQ(Hermes("<tool_call>{\"arguments\": {\"a\":\n\"b\nc\"}, \"name\": "
                   "\"free\"}</tool_call>"),
            "free[{\"a\":\n\"b\\nc\"}]")
      << "in either order";
}

TEST(OutputHermesTest, AnOutputThatIsCutShortLeavesTheCallOpen) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"free\", \"arguments\": {\"a\": [1",
                   OutputEnd::kCutShort),
            "free[{\"a\": [1...");
}

// Llama --------------------------------------------------------------------

TEST(OutputLlamaTest, ACallIsReadAsTheTemplateWritesIt) {
  const std::string call =
      "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}";
  const std::string shown = "get_weather[{\"city\": \"Paris\"}]";
  EXPECT_EQ(Llama(call), shown);
  EXPECT_EQ(Llama("<|python_tag|>" + call), shown);
  EXPECT_EQ(Llama("\n" + call + "; " + call), shown + " " + shown);
  EXPECT_EQ(Llama("{\"type\": \"function\", \"name\": \"get_current_time\"}"),
            "get_current_time[{}]");
}

TEST(OutputLlamaTest, OtherJsonIsContent) {
  for (const std::string text :
       {"{\"answer\": 42}", "{\"name\": \"Ada\", \"parameters\": {}}", "{",
        "{\"name\": \"get_weather\", \"parameters\": }", "{}", "{\"name\"",
        "[{\"name\": \"get_weather\", \"parameters\": {}}]",
        "So: {\"name\": \"get_weather\", \"parameters\": {}}"}) {
    EXPECT_EQ(Llama(text), "text[" + text + "]");
  }
}

TEST(OutputLlamaTest, ATagWithoutACallIsNotShown) {
  EXPECT_EQ(Llama("<|python_tag|>brave_search.call(query=\"x\")"),
            "text[brave_search.call(query=\"x\")]");
}

TEST(OutputLlamaTest, WithoutToolsTheTextIsAsItIs) {
  const std::string text =
      " \n{\"name\": \"get_weather\", \"parameters\": {}} ";
  EXPECT_EQ(Told(kLlama, WithoutTools(), AsText(text)), "text[" + text + "]");
}

TEST(OutputLlamaTest, WhiteSpaceAroundContentStays) {
  EXPECT_EQ(Llama("\n Hello. \n"), "text[\n Hello. \n]");
}

}  // namespace
}  // namespace sluice::testing
