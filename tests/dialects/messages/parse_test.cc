// Bodies of Messages to chats: field by field and block by block.
#include "common/dialects/messages/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/messages/known_fields.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"

namespace sluice::messages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kHello[] = R"([{"role":"user","content":"hi"}])";

StatusOr<MessagesRequest> Parse(const std::string& body, bool strict = false) {
  return ParseMessagesRequest(body, {.vocab_size = 300, .strict = strict});
}

// Parses a body with `more` members beside the usual.
StatusOr<MessagesRequest> With(const std::string& more) {
  return Parse(Cat(R"({"max_tokens":9,"messages":)", kHello,
                   more.empty() ? "" : ",", more, "}"));
}

// The chat's messages, as JSON; or the error.
std::string Chat(const std::string& messages, const std::string& more = "") {
  const auto parsed = Parse(Cat(R"({"max_tokens":9,"messages":)", messages,
                                more.empty() ? "" : ",", more, "}"));
  if (!parsed.ok()) return std::string(Message(parsed.status()));
  return DumpJson(parsed->chat.messages);
}

std::string User(const std::string& blocks) {
  return Chat(Cat(R"([{"role":"user","content":[)", blocks, "]}]"));
}

// The content of the user's one message.
std::string Read(const std::string& block) {
  const std::string all = User(block);
  const auto json = ParseJson(all);
  return json.ok() ? (*json)[0]["content"].get<std::string>() : all;
}

std::string ErrorOf(const StatusOr<MessagesRequest>& parsed) {
  if (parsed.ok()) return "";
  EXPECT_EQ(serving::ToApiError(parsed.status()).http_status, 400);
  return std::string(Message(parsed.status()));
}

TEST(MessagesParseTest, ReadsTheFields) {
  const auto parsed = With(
      R"("model":"claude-opus-5-5","stream":true,"temperature":0.5,
         "top_p":0.9,"top_k":40,"min_p":0.1,"seed":7,"min_tokens":2,
         "stop_sequences":["a","b"],"stop_token_ids":[5],"ignore_eos":true,
         "frequency_penalty":0.25,"presence_penalty":0.5,
         "repetition_penalty":1.5,"cache_salt":"s",
         "allowed_token_ids":[7,5],"bad_words":["no"],"priority":-3)");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const serving::GenerationFields& fields = parsed->chat.fields;
  EXPECT_EQ(parsed->model, "claude-opus-5-5");
  EXPECT_EQ(fields.model, "") << "any name is served";
  EXPECT_EQ(fields.max_tokens, 9);
  EXPECT_TRUE(fields.cuts_max_tokens);
  EXPECT_TRUE(fields.stream);
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.top_k, 40);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.seed, 7u);
  EXPECT_EQ(fields.min_tokens, 2);
  EXPECT_THAT(fields.stop, ElementsAre("a", "b"));
  EXPECT_THAT(fields.stop_token_ids, ElementsAre(5));
  EXPECT_TRUE(fields.ignore_eos);
  EXPECT_EQ(fields.frequency_penalty, 0.25);
  EXPECT_EQ(fields.presence_penalty, 0.5);
  EXPECT_EQ(fields.repetition_penalty, 1.5);
  EXPECT_EQ(fields.cache_salt, "s");
  EXPECT_THAT(fields.allowed_token_ids, ElementsAre(7, 5));
  EXPECT_THAT(fields.bad_words, ElementsAre("no"));
  EXPECT_EQ(fields.priority, -3);
  EXPECT_TRUE(parsed->chat.tools.tools.is_null());
  EXPECT_TRUE(parsed->chat.chat_template.add_generation_prompt);
  EXPECT_FALSE(parsed->chat.chat_template.continue_final_message);
  EXPECT_NE(fields.digest, 0u);
}

TEST(MessagesParseTest, NamesWhatItRefuses) {
  EXPECT_EQ(ErrorOf(Parse(Cat(R"({"messages":)", kHello, "}"))),
            "max_tokens: Field required");
  EXPECT_EQ(ErrorOf(Parse(R"({"max_tokens":1})")), "messages: Field required");
  EXPECT_EQ(
      ErrorOf(Parse(R"({"max_tokens":0,"messages":[]})")),
      "max_tokens: must be an integer from 1 to 2147483647, got the number 0");
  const std::pair<const char*, const char*> bad[] = {
      {R"("temperature":3)", "temperature: must be a number from 0 to 2"},
      {R"("top_p":-1)", "top_p: "},
      {R"("top_k":-2)", "top_k: "},
      {R"("stream":1)", "stream: "},
      {R"("model":1)", "model: "},
      {R"("stop_sequences":[1])", "stop_sequences: "},
      {R"("stop_token_ids":[300])", "stop_token_ids: "},
      {R"("min_tokens":-1)", "min_tokens: "},
      {R"("system":1)", "system: must be a string or an array of blocks"},
      {R"("system":[1])", "system[0]: must be an object, got the number 1"},
      {R"("system":[{"type":"text"}])", "system[0].text: Field required"},
      {R"("thinking":1)", "thinking: must be an object"},
      {R"("thinking":{})", "thinking.type: "},
      {R"("thinking":{"type":"enabled","budget_tokens":0})",
       "thinking.budget_tokens: "},
      {R"("output_config":1)", "output_config: "},
      {R"("output_config":{"effort":"huge"})",
       "output_config.effort: must be low, medium, high, xhigh or max"},
      {R"("output_config":{"format":{"type":"xml"}})",
       "output_config.format.type: "},
      {R"("output_config":{"format":{"type":"json_schema"}})",
       "output_config.format.schema: Field required"},
      {R"("output_config":{"format":{"type":"json_schema","schema":{}}},
          "output_format":{"type":"json_schema","schema":{}})",
       "output_config.format: cannot go with output_format.schema"},
      {R"("tools":{})", "tools: must be an array"},
      {R"("tools":[1])", "tools[0]: must be an object"},
      {R"("tools":[{"name":"a b"}])", "tools[0].name: must be 1 to 128 of"},
      {R"("tools":[{"name":"a","input_schema":1}])",
       "tools[0].input_schema: must be a JSON schema"},
      {R"("tools":[{"name":"a","defer_loading":1}])",
       "tools[0].defer_loading: "},
      {R"("tool_choice":"auto")", "tool_choice: must be an object"},
      {R"("tool_choice":{"type":"some"})", "tool_choice.type: must be "},
      {R"("tool_choice":{"type":"any"})", "tool_choice: needs a tool"},
      {R"("tool_choice":{"type":"tool"})", "tool_choice.name: Field required"},
      {R"("tool_choice":{"type":"tool","name":"f"})",
       "tool_choice.name: names no tool that the client runs: f"},
      {R"("tools":[{"type":"web_search_20250305","name":"web_search"}],
          "tool_choice":{"type":"tool","name":"web_search"})",
       "tool_choice.name: names no tool that the client runs: web_search"},
      {R"("mcp_servers":[{}])", "mcp_servers: not supported"},
      {R"("container":"c")", "container: not supported"},
  };
  for (const auto& [members, error] : bad) {
    EXPECT_THAT(ErrorOf(With(members)), ::testing::StartsWith(error))
        << members;
  }
  for (const char* body : {"", "[]", "{", R"({"max_tokens":1,"messages":[]})",
                           R"({"max_tokens":1,"messages":{}})"}) {
    EXPECT_FALSE(Parse(body).ok()) << body;
  }
}

TEST(MessagesParseTest, IgnoresWhatItNeedNotKnow) {
  EXPECT_TRUE(With(R"("metadata":{"user_id":"{}"},"service_tier":"auto",
      "context_management":{"edits":[]},"mcp_servers":[],"container":null,
      "cache_control":{"type":"ephemeral"},"of_tomorrow":1)")
                  .ok());
  EXPECT_EQ(ErrorOf(Parse(Cat(R"({"max_tokens":1,"messages":)", kHello,
                              R"(,"metadata":{},"of_tomorrow":1})"),
                          /*strict=*/true)),
            "of_tomorrow: unknown field (the server's --strict-fields)");
}

TEST(MessagesParseTest, SystemIsATextOrBlocks) {
  EXPECT_EQ(Chat(kHello, R"("system":"be brief")"),
            R"([{"role":"system","content":"be brief"},)"
            R"({"role":"user","content":"hi"}])");
  EXPECT_EQ(
      Chat(
          kHello,
          R"("system":[{"type":"text","text":"x-anthropic-billing-header: )"
          R"(cc_version=2.1.332.0b8;"},{"type":"text","text":"a",)"
          R"("cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}])"),
      R"([{"role":"system","content":"a\nb"},{"role":"user","content":"hi"}])")
      << "what changes by the agent's version is not in the prompt";
  for (const char* none : {R"("")", "[]",
                           R"([{"type":"text","text":)"
                           R"("x-anthropic-billing-header: cc_version=1"}])"}) {
    EXPECT_EQ(Chat(kHello, Cat(R"("system":)", none)), kHello);
  }
}

TEST(MessagesParseTest, RolesInMidConversation) {
  const auto parsed = Parse(
      R"({"max_tokens":9,"output_config":{"effort":"low"},"messages":[
      {"role":"user","content":"a"},{"role":"ctx","content":"b"},
      {"role":"assistant","content":"c"},
      {"role":"system","content":[{"type":"text","text":"d"}],
       "output_config":{"effort":"xhigh"}},
      {"role":"msg","content":"e"}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(DumpJson(parsed->chat.messages),
            R"([{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":"c"},)"
            R"({"role":"system","content":"d"},)"
            R"({"role":"user","content":"e"}])");
  EXPECT_EQ(parsed->chat.chat_template.kwargs,
            Json({{"reasoning_effort", "high"}}));
  EXPECT_EQ(Chat(R"([{"role":"tool","content":""}])"),
            "messages[0].role: must be \"user\", \"assistant\" or \"system\"");
  EXPECT_EQ(Chat(R"([{"role":"user"}])"),
            "messages[0].content: Field required");
  EXPECT_EQ(Chat(R"([{"content":"a"}])"), "messages[0].role: Field required");
  EXPECT_EQ(Chat("[1]"), "messages[0]: must be an object, got the number 1");
}

TEST(MessagesParseTest, BlocksThatAreNoText) {
  const std::string note(serving::kImageNote);
  EXPECT_EQ(Read(R"({"type":"text","text":"a"},{"type":"image","source":
      {"type":"base64","media_type":"image/png","data":"AAAA"}})"),
            "a\n" + note);
  EXPECT_EQ(Read(R"({"type":"document","title":"t","context":"c","source":
      {"type":"text","media_type":"text/plain","data":"d"}})"),
            "t\nc\nd");
  EXPECT_EQ(Read(R"({"type":"document","source":{"type":"content","content":
      [{"type":"text","text":"x"},{"type":"image"}]}})"),
            "x\n" + note);
  EXPECT_EQ(Read(R"({"type":"document","source":
      {"type":"base64","media_type":"application/pdf","data":"AA"}})"),
            "[document left out: this model reads text]");
  EXPECT_EQ(Read(R"({"type":"search_result","source":"u","title":"t",
      "content":[{"type":"text","text":"x"}]})"),
            "t\nx");
  EXPECT_EQ(Read(R"({"type":"container_upload","file_id":"f"},
      {"type":"text","text":"a"},{"type":"of_tomorrow"})"),
            "a");
  EXPECT_EQ(Read(R"({"type":"of_tomorrow"})"), "");
  EXPECT_EQ(Read(R"({"type":"text","text":1})"),
            "messages[0].content[0].text: must be a string, got the number 1");
  EXPECT_EQ(Read(R"({"type":"document","source":{"type":"text","data":[1]}})"),
            "messages[0].content[0].source.data[0]: must be an object, got "
            "the number 1");
  EXPECT_EQ(Read(R"({})"), "messages[0].content[0].type: Field required");
}

TEST(MessagesParseTest, ResultsComeBeforeWhatTheUserSays) {
  EXPECT_EQ(
      User(R"({"type":"text","text":"go on"},
      {"type":"tool_result","tool_use_id":"u1","content":"one"},
      {"type":"tool_result","tool_use_id":"u2","is_error":true,"content":[
        {"type":"text","text":"two"},{"type":"image","source":{}}]},
      {"type":"tool_result","tool_use_id":"u3"},
      {"type":"tool_result","tool_use_id":"u4","content":[
        {"type":"tool_reference","tool_name":"WebSearch"}]},
      {"type":"text","text":"Tool loaded."})"),
      Cat(R"([{"role":"tool","content":"one","tool_call_id":"u1"},)",
          R"({"role":"tool","content":"Error: two\n)", serving::kImageNote,
          R"(","tool_call_id":"u2"},)",
          R"({"role":"tool","content":"","tool_call_id":"u3"},)",
          R"({"role":"tool","content":"[tool WebSearch]","tool_call_id":"u4"},)",
          R"({"role":"user","content":"go on\nTool loaded."}])"));
  EXPECT_EQ(User(R"({"type":"tool_result"})"),
            "messages[0].content[0].tool_use_id: Field required");
  EXPECT_EQ(User(Cat(R"({"type":"tool_result","tool_use_id":")",
                     std::string(129, 'x'), R"("})")),
            "messages[0].content[0].tool_use_id: has 129 bytes, limit 128");
}

TEST(MessagesParseTest, AssistantsThinkSayAndCall) {
  EXPECT_EQ(
      Chat(R"([{"role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"x"},
        {"type":"redacted_thinking","data":"?"},
        {"type":"thinking","thinking":"","signature":"sluice:so"},
        {"type":"thinking","thinking":"","signature":"of another"},
        {"type":"text","text":"I look."},
        {"type":"server_tool_use","id":"s","name":"web_search","input":{}},
        {"type":"tool_use","id":"u1","name":"f","input":{"b":1,"a":2}},
        {"type":"tool_use","id":"u2","name":"g"}]},
        {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"u1","content":"r"}]}])"),
      R"([{"role":"assistant","content":"I look.","reasoning_content":"hm\nso",)"
      R"("tool_calls":[{"type":"function","function":{"name":"f",)"
      R"("arguments":{"b":1,"a":2}},"id":"u1"},{"type":"function",)"
      R"("function":{"name":"g","arguments":{}},"id":"u2"}]},)"
      R"({"role":"tool","content":"r","tool_call_id":"u1"}])");
  const auto assistant = [](const std::string& block) {
    return Chat(Cat(R"([{"role":"assistant","content":[)", block, "]}]"));
  };
  EXPECT_EQ(assistant(R"({"type":"tool_use","id":"u"})"),
            "messages[0].content[0].name: Field required");
  EXPECT_EQ(assistant(R"({"type":"tool_use","name":"f"})"),
            "messages[0].content[0].id: Field required");
  EXPECT_EQ(assistant(R"({"type":"tool_use","id":"u","name":""})"),
            "messages[0].content[0].name: must not be empty");
  EXPECT_EQ(
      assistant(R"({"type":"tool_use","id":"u","name":"f","input":1})"),
      "messages[0].content[0].input: must be an object, got the number 1");
  EXPECT_EQ(assistant(R"({"type":"thinking","thinking":1})"),
            "messages[0].content[0].thinking: must be a string, got the number "
            "1");
}

TEST(MessagesParseTest, TheLastMessageOfTheAssistantIsGoneOnWith) {
  const auto parse = [](const std::string& last) {
    return Parse(Cat(R"({"max_tokens":9,"messages":[{"role":"user",)",
                     R"("content":"hi"},{"role":"assistant","content":)", last,
                     "}]}"));
  };
  const auto prefilled = parse(R"([{"type":"text","text":"{\"a\":"}])");
  ASSERT_TRUE(prefilled.ok()) << prefilled.status();
  EXPECT_TRUE(prefilled->chat.chat_template.continue_final_message);
  EXPECT_FALSE(prefilled->chat.chat_template.add_generation_prompt);
  EXPECT_EQ(prefilled->chat.messages.size(), 2u);
  const auto empty = parse(R"("")");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_FALSE(empty->chat.chat_template.continue_final_message);
  EXPECT_EQ(empty->chat.messages.size(), 1u);
  const auto called = parse(R"([{"type":"tool_use","id":"u","name":"f"}])");
  ASSERT_TRUE(called.ok()) << called.status();
  EXPECT_TRUE(called->chat.chat_template.add_generation_prompt);
  EXPECT_EQ(Chat(R"([{"role":"assistant","content":""}])"),
            "messages: has nothing to answer");
}

TEST(MessagesParseTest, TurnsOfTheAssistantInARowAreOne) {
  const auto assistant = [](const std::string& content) {
    return Cat(R"(,{"role":"assistant","content":)", content, "}");
  };
  const auto chat = [](const std::string& turns) {
    return Chat(Cat(R"([{"role":"user","content":"hi"})", turns, "]"));
  };
  const std::string user = R"([{"role":"user","content":"hi"},)";
  EXPECT_EQ(chat(assistant(R"("a")") + assistant(R"([
                {"type":"thinking","thinking":"hm","signature":"x"},
                {"type":"text","text":"b"}])") +
                 assistant(R"("")")),
            user + R"({"role":"assistant","content":"a\nb",)" +
                R"("reasoning_content":"hm"}])");
  const std::string call =
      assistant(R"([{"type":"tool_use","id":"u","name":"f"}])");
  const std::string called =
      R"("tool_calls":[{"type":"function","function":{"name":"f",)"
      R"("arguments":{}},"id":"u"}]})";
  EXPECT_EQ(chat(assistant(R"("a")") + call + assistant(R"("b")")),
            user + R"({"role":"assistant","content":"a",)" + called +
                R"(,{"role":"assistant","content":"b"}])");
  const auto prefilled =
      Parse(Cat(R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"})",
                assistant(R"("a")"), assistant(R"("{")"), "]}"));
  ASSERT_TRUE(prefilled.ok()) << prefilled.status();
  EXPECT_TRUE(prefilled->chat.chat_template.continue_final_message);
  EXPECT_EQ(prefilled->chat.messages.size(), 2u);
  EXPECT_EQ(prefilled->chat.messages[1]["content"], "a\n{");
}

TEST(MessagesParseTest, Thinking) {
  const auto kwargs = [](const std::string& members) {
    const auto parsed = With(members);
    return parsed.ok() ? DumpJson(parsed->chat.chat_template.kwargs)
                       : std::string(Message(parsed.status()));
  };
  EXPECT_EQ(kwargs(""), "{}");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"adaptive"})"), "{}");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"between_tools"})"), "{}");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"enabled","budget_tokens":1024})"),
            R"({"enable_thinking":true,"thinking":true})");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"disabled"})"),
            R"({"reasoning_effort":"none","enable_thinking":false,)"
            R"("thinking":false})");
  for (const char* const effort : {"high", "xhigh", "max"}) {
    EXPECT_EQ(kwargs(Cat(R"("output_config":{"effort":")", effort, R"("})")),
              R"({"reasoning_effort":"high"})");
  }
  const auto budget = [](const char* type) {
    return With(
               Cat(R"("thinking":{"budget_tokens":1024,"type":")", type, "\"}"))
        ->chat.fields.thinking_budget;
  };
  EXPECT_EQ(budget("enabled"), 1024);
  EXPECT_EQ(budget("adaptive"), std::nullopt);
  EXPECT_TRUE(With(R"("thinking":{"type":"disabled","budget_tokens":0})").ok());
  EXPECT_TRUE(With(R"("thinking":{"type":"adaptive","display":"omitted"})")
                  ->omits_thinking);
  EXPECT_FALSE(With(R"("thinking":{"type":"adaptive","display":"summarized"})")
                   ->omits_thinking);
}

TEST(MessagesParseTest, ToolsInTheirOneForm) {
  const auto parsed = With(R"("tools":[
      {"name":"f","description":"d","input_schema":{"$schema":"s",
       "properties":{"a":{"type":"string","minLength":1}}},
       "cache_control":{"type":"ephemeral"}},
      {"type":"web_search_20250305","name":"web_search","max_uses":8},
      {"type":"custom","name":"g","strict":true,
       "input_schema":{"type":"object"}}, {"name":"h"}],
      "tool_choice":{"type":"auto","disable_parallel_tool_use":true})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const serving::ToolFields& tools = parsed->chat.tools;
  EXPECT_EQ(DumpJson(tools.tools),
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object","$schema":"s","properties":)"
            R"({"a":{"type":"string","minLength":1}}}}},)"
            R"({"type":"function","function":{"name":"g",)"
            R"("parameters":{"type":"object"}}},)"
            R"({"type":"function","function":{"name":"h"}}])");
  EXPECT_THAT(tools.strict, ElementsAre(std::nullopt, true, std::nullopt));
  EXPECT_FALSE(tools.parallel);
  EXPECT_EQ(tools.choice, serving::ToolChoice::kAuto);
  const auto hosted = With(R"("tools":[{"type":"web_search_20250305",
      "name":"web_search"}],"tool_choice":{"type":"auto"})");
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  EXPECT_TRUE(hosted->chat.tools.tools.is_null());
}

TEST(MessagesParseTest, NamesOfToolsAreUnique) {
  for (const char* tools :
       {R"([{"name":"f"},{"name":"g"},{"name":"f"}])",
        R"([{"name":"f","defer_loading":true},{"name":"f"}])"}) {
    EXPECT_EQ(ErrorOf(With(Cat(R"("tools":)", tools))),
              "tools: Tool names must be unique");
  }
}

TEST(MessagesParseTest, ToolChoices) {
  const auto choose = [](const std::string& choice) {
    auto parsed = With(Cat(R"("tools":[{"name":"f"},{"name":"g"}],)",
                           R"("tool_choice":{"type":)", choice, "}"));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return std::move(parsed->chat.tools);
  };
  const serving::ToolFields any = choose(R"("any")");
  EXPECT_EQ(any.choice, serving::ToolChoice::kRequired);
  EXPECT_TRUE(any.allowed.empty());
  EXPECT_TRUE(any.parallel);
  const serving::ToolFields one =
      choose(R"("tool","name":"g","disable_parallel_tool_use":true)");
  EXPECT_EQ(one.choice, serving::ToolChoice::kRequired);
  EXPECT_THAT(one.allowed, ElementsAre("g"));
  EXPECT_FALSE(one.parallel);
  EXPECT_TRUE(choose(R"("none")").tools.is_null());
}

TEST(MessagesParseTest, DeferredToolsWaitForAReference) {
  const auto names = [](const std::string& messages, const std::string& more) {
    const auto parsed = Parse(Cat(
        R"({"max_tokens":9,"tools":[{"name":"ToolSearch"},
        {"name":"WebSearch","defer_loading":true},
        {"name":"Deep","defer_loading":true}],"messages":)",
        messages, more, "}"));
    std::string all;
    if (!parsed.ok()) return std::string(Message(parsed.status()));
    for (const Json& tool : parsed->chat.tools.tools) {
      all += tool["function"]["name"].get<std::string>() + " ";
    }
    return all;
  };
  EXPECT_EQ(names(kHello, ""), "ToolSearch ");
  EXPECT_EQ(names(R"([{"role":"user","content":[{"type":"tool_result",
      "tool_use_id":"u","content":[{"type":"tool_reference",
      "tool_name":"WebSearch"}]},{"type":"text","text":"Tool loaded."}]}])",
                  ""),
            "ToolSearch WebSearch ");
  EXPECT_EQ(names(R"([{"role":"assistant","content":[{"type":"tool_use",
      "id":"u","name":"Deep","input":{}}]},{"role":"user","content":"a"}])",
                  ""),
            "ToolSearch Deep ");
  EXPECT_EQ(names(kHello, R"(,"tool_choice":{"type":"tool","name":"Deep"})"),
            "ToolSearch Deep ");
}

TEST(MessagesParseTest, AFormatIsAGrammar) {
  for (const std::string field : {"output_config.format", "output_format"}) {
    const std::string format =
        R"({"type":"json_schema","schema":{"maximum":1.00000000000000000001}})";
    const auto parsed =
        With(field == "output_format"
                 ? Cat(R"("output_format":)", format)
                 : Cat(R"("output_config":{"format":)", format, "}"));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_TRUE(parsed->chat.fields.grammar.has_value());
    const serving::GrammarField& grammar = *parsed->chat.fields.grammar;
    EXPECT_EQ(grammar.name, field + ".schema");
    EXPECT_EQ(grammar.spec.kind, GrammarSpec::Kind::kJsonSchema);
  }
}

TEST(MessagesParseTest, AStrictToolKeepsItsDigits) {
  const auto with_tool = [](bool strict) {
    return With(Cat(R"("tools":[{"type":"bash_20250124","name":"bash"},
        {"name":"f","strict":)",
                    strict ? "true" : "false",
                    R"(,"input_schema":{"maximum":9007199254740993.5}}])"));
  };
  EXPECT_TRUE(with_tool(false).ok());
  EXPECT_THAT(ErrorOf(with_tool(true)),
              ::testing::StartsWith("tools[1].input_schema.maximum: "));
}

TEST(MessagesParseTest, CountsNeedNoLength) {
  const auto counted = ParseMessagesRequest(Cat(R"({"messages":)", kHello, "}"),
                                            {.vocab_size = 9, .counts = true});
  EXPECT_TRUE(counted.ok()) << counted.status();
}

TEST(MessagesParseTest, TheDigestIsOfWhatIsAskedFor) {
  const auto digest = [](const std::string& more) {
    return With(Cat(R"("stream":true)", more))->chat.fields.digest;
  };
  const uint64_t plain = digest("");
  EXPECT_EQ(digest(R"(,"metadata":{"user_id":"x"})"), plain);
  EXPECT_EQ(digest(R"(,"top_p":null)"), plain);
  EXPECT_NE(digest(R"(,"top_p":0.5)"), plain);
  EXPECT_NE(digest(R"(,"system":"a")"), plain);
  EXPECT_EQ(digest(R"(,"thinking":{"type":"adaptive","display":"omitted"})"),
            digest(R"(,"thinking":{"display":"omitted","type":"adaptive"})"));
}

// A value that no field takes.
TEST(MessagesParseTest, EveryFieldThatIsReadIsKnown) {
  for (const serving::RequestField& field : KnownFields()) {
    const std::string body = Cat(R"({"max_tokens":9,"messages":)", kHello,
                                 ",\"", field.name, R"(":[{"?":true}]})");
    const auto parsed = Parse(body, /*strict=*/true);
    if (field.use == serving::FieldUse::kIgnored) {
      EXPECT_TRUE(parsed.ok()) << field.name;
      continue;
    }
    EXPECT_THAT(ErrorOf(parsed),
                ::testing::ContainsRegex(Cat("^", field.name, "[:.[]")))
        << field.name;
  }
}

// Runs in the root of the checkout.
TEST(MessagesParseTest, ThePageHasEveryField) {
  std::ifstream file("services/gateway/MESSAGES.md");
  ASSERT_TRUE(file.is_open());
  std::ostringstream page;
  page << file.rdbuf();
  for (const serving::RequestField& field : KnownFields()) {
    EXPECT_THAT(page.str(), HasSubstr(Cat("`", field.name, "`")));
  }
}

TEST(MessagesParseTest, TextAloneIsPlain) {
  EXPECT_TRUE(IsPlainBody(
      R"({"model":"m","max_tokens":1,"messages":[],"system":"a",
          "thinking":{"type":"adaptive"},"tools":[],"stream":true,
          "tool_choice":{"type": "auto"}})"));
  for (const char* member :
       {R"("tools":[{"name":"f"}])", R"("tool_choice":{"type":"any"})",
        R"("output_config":{"format":{}})", R"("output_format":{})",
        R"("response_format":{})", R"("of_tomorrow":1)"}) {
    EXPECT_FALSE(IsPlainBody(Cat("{", member, "}"))) << member;
  }
}

}  // namespace
}  // namespace sluice::messages
