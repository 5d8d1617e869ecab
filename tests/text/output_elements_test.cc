// Calls whose parameters are elements: MiniMax M3's.
#include <gtest/gtest.h>

#include "common/base/cat.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

std::string ReadElements(std::string_view text,
                         OutputEnd end = OutputEnd::kStopped) {
  return Told({ToolFormat::kMiniMaxM3, ReasoningFormat::kNone}, WithTools(),
              AsText(text), end);
}

// The text with a mark before each tag.
std::string Marked(std::string_view text) {
  std::string marked;
  for (const char c : text) {
    if (c == '<') marked += "]<]minimax[>[";
    marked += c;
  }
  return marked;
}

std::string MiniMaxM3(std::string_view text,
                      OutputEnd end = OutputEnd::kStopped) {
  return ReadElements(Marked(text), end);
}

TEST(OutputElementsTest, MiniMaxM3WritesElements) {
  EXPECT_EQ(
      MiniMaxM3("I look.<tool_call>\n<invoke name=\"search\"><query>a \"b\" é\n"
                "</query><limit>2</limit><deep>true</deep><tags><item>x</item>"
                "<item>7</item></tags><options><k>v</k><l><item>1</item><item>"
                "<m>{}</m></item></l></options></invoke>\n"
                "<invoke name=\"get_current_time\"></invoke>\n</tool_call>"),
      R"(text[I look.] search[{"query": "a \"b\" é\n", "limit": 2, )"
      R"("deep": true, "tags": ["x", 7], "options": {"k": "v", "l": [1, )"
      R"({"m": {}}]}}] get_current_time[{}])");
  EXPECT_EQ(MiniMaxM3("<tool_call><invoke name=\"search\"><tags></tags>"
                      "<options></options><query></query><a><a>1</a></a>"
                      "</invoke></tool_call>So."),
            R"(search[{"tags": [], "options": {}, "query": "", )"
            R"("a": {"a": 1}}] text[So.])");
  // Signs that are no tags are text, and JSON is read.
  EXPECT_EQ(ReadElements(
                Cat(Marked("<tool_call><invoke name=\"search\"><query>"),
                    "a ] b < c </query> ]<]mini [>[", Marked("</query><tags>"),
                    "[\"<x>\"]", Marked("</tags></invoke></tool_call>"))),
            R"(search[{"query": "a ] b < c </query> ]<]mini [>[", )"
            R"("tags": ["<x>"]}])");
}

TEST(OutputElementsTest, MiniMaxM3KnowsTypesWithinValues) {
  OutputRequest request;
  request.tools = {{"put", R"({"properties": {
      "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
      "any": {}, "one": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Row"}]},
      "map": {"type": "object", "additionalProperties": {"type": "string"}},
      "list": {"type": "array", "items": {"type": "string"}}},
      "$defs": {"Row": {"type": "object", "properties": {
          "id": {"type": "string"}, "n": {"type": "integer"},
          "next": {"$ref": "#/$defs/Row"}}}}})"}};
  EXPECT_EQ(
      Told({ToolFormat::kMiniMaxM3, ReasoningFormat::kMiniMaxM3}, request,
           AsText(Cat("<mm:think>Hm.</mm:think>",
                      Marked("<tool_call>\n<invoke name=\"put\"><rows><item>"
                             "<id>1</id><n>2</n><next><id>3</id></next></item>"
                             "</rows><any><id>1</id><item>2</item></any><one>"
                             "<id>4</id></one><map><a>5</a></map><list><tag>6"
                             "</tag></list></invoke>\n</tool_call>")))),
      R"(think[Hm.] put[{"rows": [{"id": "1", "n": 2, "next": {"id": "3"}}], )"
      R"("any": {"id": 1, "item": 2}, "one": {"id": "4"}, )"
      R"("map": {"a": "5"}, "list": ["6"]}])");
  request.tools = {{"put", R"({"properties": {
      "rows": {"anyOf": [{"type": "array"}, {"type": "null"}]},
      "map": {"type": ["object", "null"]},
      "note": {"type": ["string", "null"]}}})"}};
  EXPECT_EQ(Told({ToolFormat::kMiniMaxM3, ReasoningFormat::kNone}, request,
                 AsText(Marked("<tool_call><invoke name=\"put\"><rows></rows>"
                               "<map>\n</map><note></note></invoke>"
                               "</tool_call>"))),
            R"(put[{"rows": [], "map": {}, "note": ""}])");
}

// Each element is looked up in the schema: without a bound on its branches the
// test would run for about a minute.
TEST(OutputElementsTest, ASchemaOfManyBranchesIsReadInBoundedTime) {
  std::string schema = R"({"properties": {"a": {"$ref": "#/$defs/J"}}, )"
                       R"("$defs": {"J": {"anyOf": [)";
  for (int i = 0; i < 100000; ++i) {
    schema += Cat(i == 0 ? "" : ",", R"({"$ref": "#/$defs/J"})");
  }
  schema += "]}}}";
  OutputRequest request;
  request.tools = {{"f", schema}};
  std::string text = "<tool_call><invoke name=\"f\"><a>";
  std::string items;
  for (int i = 0; i < 1500; ++i) {
    text += "<item></item>";
    items += Cat(i == 0 ? "" : ", ", "\"\"");
  }
  text += "</a></invoke></tool_call>";
  EXPECT_EQ(Show(ParseStream({ToolFormat::kMiniMaxM3, ReasoningFormat::kNone},
                             request, AsText(Marked(text)))),
            Cat("f[{\"a\": [", items, "]}]"));
}

TEST(OutputElementsTest, MiniMaxM3sTagsMayBeMissing) {
  EXPECT_EQ(MiniMaxM3("<tool_call><invoke name=\"search\"><options><k>v"),
            R"(search[{"options": {"k": "v"}}])");
  EXPECT_EQ(MiniMaxM3("<tool_call><invoke name=\"search\"><query>v",
                      OutputEnd::kCutShort),
            R"(search[{"query": "v...)");
  // The last bracket is the value's.
  EXPECT_EQ(MiniMaxM3("<tool_call><invoke name=\"search\"><tags>[1, 2]"),
            R"(search[{"tags": [1, 2]}])");
  EXPECT_EQ(MiniMaxM3("<tool_call><invoke name=\"search\"><query>a[0]"),
            R"(search[{"query": "a[0]"}])");
  EXPECT_EQ(
      ReadElements(Cat(Marked("<tool_call><invoke name=\"search\"><query>v"),
                       "]<]minimax[>[")),
      R"(search[{"query": "v"}])");
  EXPECT_EQ(
      MiniMaxM3("<tool_call><invoke name=\"search\"><options><k>v</k>"
                "<invoke name=\"free\"><a>1</b></c></invoke> </tool_call>"),
      R"(search[{"options": {"k": "v"}}] free[{"a": 1}])");
  EXPECT_EQ(
      MiniMaxM3("<tool_call><invoke name=\"free\">x<a>1</a>y</tool_call>"),
      R"(free[{"a": 1}])");
  EXPECT_EQ(MiniMaxM3("<tool_call>So."),
            Cat("text[", Marked("<tool_call>"), "So.]"));
  EXPECT_EQ(ReadElements("A <tool_call> and ]<] b."),
            "text[A <tool_call> and ]<] b.]");
}

}  // namespace
}  // namespace sluice::testing
