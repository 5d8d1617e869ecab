// Laws of every format: what is rendered is read back, in any pieces; any
// stream of tokens gives one result, whatever the pieces; nothing raises, and
// little is held back.
#include <gtest/gtest.h>

#include "common/text/output/event_writer.h"
#include "tests/testing/representative.h"
#include "tests/text/output_fixtures.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

using Random = std::mt19937_64;
using Kind = OutputEvent::Kind;

struct NamedFormat {
  const char* name;
  OutputFormat format;
};
constexpr NamedFormat kFormats[] = {{"glm", kGlm},
                                    {"intellect", kIntellect},
                                    {"hermes", kHermes},
                                    {"llama", kLlama},
                                    {"harmony", kHarmony}};

// A message as its parts, and as a model writes it.
struct Argument {
  std::string key;
  std::string written;  // between the tags of a format without JSON
  std::string json;
};
struct Call {
  std::string name;
  std::vector<Argument> arguments;
};
struct Spoken {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
};

constexpr std::string_view kMarkupPieces[] = {"<think>",
                                              "</think>",
                                              "<tool_call>",
                                              "</tool_call>",
                                              "<arg_key>",
                                              "</arg_key>",
                                              "<arg_value>",
                                              "</arg_value>",
                                              "<function=",
                                              "</function>",
                                              "<parameter=",
                                              "</parameter>",
                                              "<|python_tag|>",
                                              "<|channel|>",
                                              "<|end|>",
                                              "<|message|>",
                                              "{\"name\": ",
                                              "\"arguments\"",
                                              "get_weather",
                                              "</",
                                              "<",
                                              "<tool",
                                              "\\",
                                              "\"",
                                              "null",
                                              "True",
                                              "42",
                                              "{\"a\": [1]}",
                                              "'",
                                              ">",
                                              "\n</parameter>",
                                              "</arg_value>\n",
                                              "; ",
                                              "to=functions.free",
                                              "analysis",
                                              "}"};

std::string_view Pick(Random& random, const auto& pieces) {
  return pieces[random() % std::size(pieces)];
}

std::string Words(Random& random, int max_pieces) {
  std::string text;
  for (auto left = random() % static_cast<size_t>(max_pieces); left > 0;
       --left) {
    text += random() % 3 == 0 ? std::string(Pick(random, kMarkupPieces))
                              : RandomText(random, 3);
  }
  return text;
}

size_t SkipBlanks(std::string_view text, size_t at) {
  while (at < text.size() && IsBlank(text[at])) ++at;
  return at;
}

// Whether `tag`, and behind it one of `next`, stands anywhere in `text`.
bool Contains(std::string_view text, std::string_view tag,
              std::initializer_list<std::string_view> next) {
  for (size_t at = text.find(tag); at != text.npos;
       at = text.find(tag, at + 1)) {
    const auto rest = text.substr(SkipBlanks(text, at + tag.size()));
    for (const std::string_view one : next) {
      if (rest.starts_with(one)) return true;
    }
  }
  return false;
}

// What a format cannot write within a string: its own end.
bool EndsValue(ToolFormat format, std::string_view text) {
  if (format == ToolFormat::kGlm) {
    return Contains(text, "</arg_value>",
                    {"<arg_key>", "</tool_call>", "<tool_call>"}) ||
           Contains(text, "</tool_call>", {"<tool_call>"});
  }
  return Contains(text, "</parameter>",
                  {"<parameter=", "</function>", "</tool_call>", "<tool_call>",
                   "<function="}) ||
         Contains(text, "</function>", {"</tool_call>"});
}

// What in running text would be a call: a tag with anything that may begin one
// behind it. More than need be.
bool HoldsCall(std::string_view text) {
  for (const std::string_view tag : {"<tool_call>", "<function="}) {
    for (size_t at = text.find(tag); at != text.npos;
         at = text.find(tag, at + 1)) {
      const size_t next = SkipBlanks(text, at + tag.size());
      if (next == text.size()) return true;
      const char c = text[next];
      if (c == '{' || c == '<' || (c >= '0' && c <= '9') || c == '_' ||
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
          c == '/' || c == '"') {
        return true;
      }
    }
  }
  return false;
}

std::string Reasoning(const NamedFormat& of, Random& random) {
  while (true) {
    const std::string text = Words(random, 12);
    if (of.format.reasoning == ReasoningFormat::kHarmony) return text;
    const std::string trimmed(TrimBlanks(text));
    if (trimmed.find("</think>") == trimmed.npos && !HoldsCall(trimmed) &&
        !trimmed.starts_with("<think>")) {
      return trimmed;
    }
  }
}

std::string Content(const NamedFormat& of, Random& random) {
  while (true) {
    std::string text = Words(random, 12);
    if (of.format.tools == ToolFormat::kHarmony) return text;
    if (of.format.tools == ToolFormat::kLlamaJson) {
      const size_t first = SkipBlanks(text, 0);
      const bool json = first < text.size() && text[first] == '{';
      if (!json && text.find("<|python_tag|>") == text.npos) return text;
      continue;
    }
    text = TrimBlanks(text);
    if (!text.starts_with("<think>") && !text.starts_with("</think>") &&
        !HoldsCall(text)) {
      return text;
    }
  }
}

std::string Quoted(std::string_view text) {
  std::string json = "\"";
  AppendJsonEscaped(text, json);
  return json + "\"";
}

Argument StringArgument(const NamedFormat& of, std::string key,
                        Random& random) {
  std::string text = Words(random, 8);
  while (EndsValue(of.format.tools, text)) text = Words(random, 8);
  return {std::move(key), text, Quoted(text)};
}

Argument TypedArgument(std::string key, std::string_view json, Random& random) {
  const std::string_view blanks[] = {"", " ", "\n", "\t "};
  std::string written(Pick(random, blanks));
  written += json;
  return {std::move(key), written + std::string(Pick(random, blanks)),
          std::string(json)};
}

Call RandomCall(const NamedFormat& of, Random& random) {
  switch (random() % 4) {
    case 0:
      return {"get_current_time", {}};
    case 1:
      return {"mcp__gmail-cleanup__list_filters",
              {StringArgument(of, "label", random)}};
    case 2:
      return {"write_file",
              {StringArgument(of, "path", random),
               StringArgument(of, "content", random)}};
    default: {
      constexpr std::string_view kNumbers[] = {"0", "-12", "1e3", "7"};
      constexpr std::string_view kBooleans[] = {"true", "false"};
      constexpr std::string_view kArrays[] = {
          "[]", "[1, \"</arg_value> <tool\"]", "[\"\\u00e9\", {\"é\": null}]"};
      constexpr std::string_view kObjects[] = {
          "{}", "{\"a\": {\"b\": \"</parameter> x\"}}", "{\"a\":1.50}"};
      return {"search",
              {StringArgument(of, "query", random),
               TypedArgument("limit", Pick(random, kNumbers), random),
               TypedArgument("deep", Pick(random, kBooleans), random),
               TypedArgument("tags", Pick(random, kArrays), random),
               TypedArgument("options", Pick(random, kObjects), random),
               TypedArgument("ratio", "null", random)}};
    }
  }
}

std::string ArgumentsOf(const Call& call) {
  std::string json = "{";
  for (const Argument& argument : call.arguments) {
    if (json.size() > 1) json += ", ";
    json += Quoted(argument.key) + ": " + argument.json;
  }
  return json + "}";
}

Spoken RandomMessage(const NamedFormat& of, Random& random) {
  Spoken message;
  if (of.format.reasoning != ReasoningFormat::kNone && random() % 3 != 0) {
    message.reasoning = Reasoning(of, random);
  }
  for (auto left = random() % 3; left > 0; --left) {
    message.calls.push_back(RandomCall(of, random));
  }
  const bool either = of.format.tools == ToolFormat::kLlamaJson;
  if (!either || message.calls.empty()) message.content = Content(of, random);
  return message;
}

std::string RenderCall(const NamedFormat& of, const Call& call,
                       Random& random) {
  const bool tight = random() % 2 == 0;
  const std::string feed = tight ? "" : "\n";
  const std::string json = "{\"name\": \"" + call.name +
                           "\", \"arguments\": " + ArgumentsOf(call) + "}";
  if (of.format.tools == ToolFormat::kLlamaJson) {
    return "{\"name\": \"" + call.name +
           "\", \"parameters\": " + ArgumentsOf(call) + "}" +
           (tight ? "; " : "\n");
  }
  if (of.format.tools == ToolFormat::kHermes) {
    return "\n<tool_call>" + feed + json + feed + "</tool_call>";
  }
  std::string text = feed + "<tool_call>";
  if (of.format.tools == ToolFormat::kQwenCoder) {
    text = "\n<tool_call>" + feed + "<function=" + call.name + ">" + feed;
    for (const Argument& argument : call.arguments) {
      text += "<parameter=" + argument.key + ">\n" + argument.written +
              "\n</parameter>" + feed;
    }
    return text + "</function>" + feed + "</tool_call>";
  }
  text += call.name + feed;
  for (const Argument& argument : call.arguments) {
    text += "<arg_key>" + argument.key + "</arg_key>" + feed + "<arg_value>" +
            argument.written + "</arg_value>" + feed;
  }
  return text + "</tool_call>";
}

// Texts are pieces of their own, so that a marker that they spell is none.
OutputStream RenderHarmony(const Spoken& message, Random& random) {
  OutputStream stream;
  const auto markup = [&stream](const std::string& text) {
    for (OutputPiece& piece : AsHarmony(text)) stream.push_back(piece);
  };
  std::string start;
  if (!message.reasoning.empty()) {
    markup("<|channel|>analysis<|message|>");
    stream.push_back({-1, message.reasoning});
    start = "<|end|><|start|>assistant";
  }
  if (!message.content.empty()) {
    const bool preamble = !message.calls.empty() || random() % 4 == 0;
    markup(start + "<|channel|>" + (preamble ? "commentary" : "final") +
           "<|message|>");
    stream.push_back({-1, message.content});
    start = "<|end|><|start|>assistant";
  }
  for (const Call& call : message.calls) {
    const std::string to = " to=functions." + call.name;
    markup(start +
           (random() % 2 == 0
                ? "<|channel|>commentary" + to + " <|constrain|>json"
                : to + "<|channel|>commentary json") +
           "<|message|>");
    stream.push_back({-1, ArgumentsOf(call)});
    start = "<|call|><|start|>assistant";
  }
  if (random() % 2 == 0) markup("<|end|>");
  return stream;
}

OutputStream Render(const NamedFormat& of, const Spoken& message,
                    bool prefilled, Random& random) {
  if (of.format.tools == ToolFormat::kHarmony) {
    return RenderHarmony(message, random);
  }
  std::string text;
  if (of.format.reasoning == ReasoningFormat::kThink) {
    const std::string blanks = random() % 2 == 0 ? "\n" : "";
    if (!prefilled) text = blanks + "<think>";
    if (prefilled || !message.reasoning.empty() || random() % 2 == 0) {
      text += blanks + message.reasoning + blanks + "</think>" + blanks;
    } else {
      text.clear();
    }
  }
  text += message.content;
  for (const Call& call : message.calls) text += RenderCall(of, call, random);
  return AsText(text);
}

std::string Expected(const Spoken& message) {
  OutputEvents events;
  if (!message.reasoning.empty()) {
    events.push_back({Kind::kReasoning, -1, message.reasoning});
  }
  if (!message.content.empty()) {
    events.push_back({Kind::kContent, -1, message.content});
  }
  for (const Call& call : message.calls) {
    events.push_back({Kind::kCallBegin, 0, call.name});
    events.push_back({Kind::kArguments, 0, ArgumentsOf(call)});
    events.push_back({Kind::kCallEnd, 0, ""});
  }
  return Show(events);
}

TEST(OutputPropertyTest, WhatIsRenderedIsReadBack) {
  const int rounds = IsLong() ? 10000 : 2000 / kSlowdown;
  for (const NamedFormat& of : kFormats) {
    SCOPED_TRACE(of.name);
    Random random(11);
    for (int round = 0; round < rounds; ++round) {
      const Spoken message = RandomMessage(of, random);
      OutputRequest request = WithTools();
      request.in_reasoning = random() % 2 == 0;
      const OutputStream stream =
          Render(of, message, request.in_reasoning, random);
      std::vector<OutputStream> streams = {stream, CutAtRandom(stream, random)};
      if (round % (IsLong() ? 10 : 100) == 0) {
        for (size_t at = 1; at < TextSize(stream); ++at) {
          streams.push_back(CutAt(stream, at));
        }
      }
      const auto all = ParseStreams(of.format, request, streams);
      ASSERT_EQ(Show(all[0]), Expected(message)) << "round " << round;
      for (size_t i = 1; i < all.size(); ++i) {
        ASSERT_TRUE(all[i] == all[0])
            << "round " << round << ", cut " << i << ": " << Show(all[0]);
      }
    }
  }
}

// Calls are begun, written and ended one after the other.
void ExpectInOrder(const OutputEvents& events, OutputEnd end) {
  int calls = 0;
  bool open = false;
  for (const OutputEvent& event : events) {
    if (event.kind == Kind::kCallBegin) {
      ASSERT_FALSE(open);
      ASSERT_EQ(event.call, calls++);
      open = true;
    } else if (event.kind == Kind::kContent || event.kind == Kind::kReasoning) {
      ASSERT_FALSE(open);
      ASSERT_EQ(event.call, -1);
    } else {
      ASSERT_TRUE(open);
      ASSERT_EQ(event.call, calls - 1);
      open = event.kind != Kind::kCallEnd;
    }
  }
  ASSERT_TRUE(!open || end == OutputEnd::kCutShort);
}

OutputStream RandomStream(Random& random) {
  constexpr std::string_view kMarkers[] = {
      "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
      "<|end|>",   "<|call|>",    "<|return|>"};
  constexpr std::string_view kHeads[] = {
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>",
      "<tool_call>\n<function=search>\n<parameter=limit>\n",
      "<tool_call>{\"name\": \"free\", \"arguments\": {\"a\": ",
      "{\"name\": \"free\", \"parameters\": {\"a\": ",
      "commentary to=functions.free ",
      "assistant"};
  OutputStream stream;
  for (auto left = random() % 24; left > 0; --left) {
    switch (random() % 8) {
      case 0:
      case 1:
        stream.push_back(AsHarmony(Pick(random, kMarkers)).front());
        break;
      case 2:
        stream.push_back({-1, std::string(Pick(random, kHeads))});
        break;
      case 3:
        stream.push_back({-1, RandomText(random, 4)});
        break;
      case 4:
        stream.push_back({-1, std::string(random() % 90, ' ')});
        break;
      default:
        stream.push_back({-1, std::string(Pick(random, kMarkupPieces))});
    }
  }
  return stream;
}

// Neighbouring texts as one piece.
OutputStream Glued(const OutputStream& stream) {
  OutputStream glued;
  for (const OutputPiece& piece : stream) {
    if (piece.id < 0 && !glued.empty() && glued.back().id < 0) {
      glued.back().text += piece.text;
    } else {
      glued.push_back(piece);
    }
  }
  return glued;
}

TEST(OutputPropertyTest, AnyTokensGiveOneResultHoweverTheyAreCut) {
  const int rounds = IsLong() ? 1000000 : 2000 / kSlowdown;
  for (const NamedFormat& of : kFormats) {
    SCOPED_TRACE(of.name);
    Random random(12);
    for (int round = 0; round < rounds; ++round) {
      const OutputStream stream = RandomStream(random);
      OutputRequest request = random() % 8 == 0 ? WithoutTools() : WithTools();
      request.in_reasoning = random() % 2 == 0;
      const auto end =
          random() % 2 == 0 ? OutputEnd::kStopped : OutputEnd::kCutShort;
      const OutputStream glued = Glued(stream);
      const auto all = ParseStreams(
          of.format, request, {stream, glued, CutAtRandom(glued, random)}, end);
      ASSERT_NO_FATAL_FAILURE(ExpectInOrder(all[0], end)) << "round " << round;
      ASSERT_TRUE(all[1] == all[0])
          << "round " << round << ": " << Show(all[0]);
      ASSERT_TRUE(all[2] == all[0])
          << "round " << round << ": " << Show(all[0]);
    }
  }
}

// Feeds `head` and then `filler` without end: all but a bounded rest has been
// given out before the output ends, or, where it does not show, dropped.
TEST(OutputPropertyTest, LittleIsHeldBackHoweverLongTheOutput) {
  const struct {
    OutputFormat format;
    std::string head;
    std::string filler;
    bool shows = true;
  } kCases[] = {
      {kGlm, "<tool_call>", "a"},
      {kGlm, "<tool_call>", " "},
      {kGlm, "a", " "},
      {kGlm, "<tool_call>search<arg_key>", "k", false},
      {kGlm, "<tool_call>search<arg_key>limit</arg_key><arg_value>", "1"},
      {kGlm, "<tool_call>search<arg_key>query</arg_key><arg_value>",
       "</arg_value> "},
      {kIntellect, "<tool_call><function=", "a"},
      {kIntellect, "<tool_call><function=search><parameter=", "k", false},
      {kIntellect, "<tool_call><function=search><parameter=limit>", "\n"},
      {kHermes, "<tool_call>{\"arguments\": {\"a\": \"", "b"},
      {kHermes, "<tool_call>{\"name\": \"free\", \"arguments\": \"", "b"},
      {kHermes, "<tool_call>{\"name\": \"free\", \"arguments\": ", "["},
      {kLlama, "{\"name\": \"", "b"},
      {kHarmony, "<|channel|>", "b"},
      {kHarmony, "", "assistant"},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.head + one.filler);
    const auto parser = NewOutputParser(
        one.format, HarmonyTokenizer().vocabulary(), WithTools());
    for (const OutputPiece& piece : AsHarmony(one.head)) {
      parser->Feed(piece.id, piece.text);
    }
    std::string filler;
    while (filler.size() < 1000) filler += one.filler;
    size_t fed = 0;
    size_t given = 0;
    for (int i = 0; i < 300; ++i) {
      fed += filler.size();
      for (const OutputEvent& event : parser->Feed(-1, filler)) {
        given += event.text.size();
      }
      if (!one.shows) continue;
      ASSERT_GE(given + kMaxHeldBytes + 1024, fed);
    }
    size_t rest = 0;
    for (const OutputEvent& event : parser->Finish(OutputEnd::kStopped)) {
      rest += event.text.size();
    }
    EXPECT_LE(rest, kMaxHeldBytes + 1024);
  }
}

}  // namespace
}  // namespace sluice::testing
