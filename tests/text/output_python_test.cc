// Calls in Python: as LFM2's templates write them, without escapes, and as
// Python would.
#include <gtest/gtest.h>

#include "common/base/cat.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

// send(text, to, cc: string or null, lines: array), as the request's only
// function.
OutputRequest WithSend() {
  OutputRequest request;
  request.tools = {{"send", R"({"properties": {
      "text": {"type": "string"}, "to": {"type": "string"},
      "cc": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "lines": {"type": ["array", "string"]}}})"},
                   {"free", ""}};
  return request;
}

std::string Calls(std::string_view calls, OutputEnd end = OutputEnd::kStopped) {
  return Told({ToolFormat::kLfm, ReasoningFormat::kNone}, WithSend(),
              AsText(Cat("<|tool_call_start|>", calls)), end);
}

std::string Closed(std::string_view calls) {
  return Calls(Cat("[", calls, "]<|tool_call_end|>"));
}

TEST(OutputPythonTest, ApostrophesAreTextUnlessAnArgumentOrTheEndFollows) {
  EXPECT_EQ(Closed("send(text='it's raining, isn't it?', to='Bob')"),
            R"(send[{"text": "it's raining, isn't it?", "to": "Bob"}])");
  EXPECT_EQ(Closed(R"py(send(text="say "hi", twice", to="Bob"))py"),
            R"(send[{"text": "say \"hi\", twice", "to": "Bob"}])");
  EXPECT_EQ(
      Closed("send(text='the dogs', he said (the 'big' ones)', to='x')"),
      R"py(send[{"text": "the dogs', he said (the 'big' ones)", "to": "x"}])py");
  EXPECT_EQ(Closed("send(text='f('x'), then', to='call g('y')')"),
            R"py(send[{"text": "f('x'), then", "to": "call g('y')"}])py");
  EXPECT_EQ(Closed("send(text='a ['k'] b'), free(a='it's')"),
            R"(send[{"text": "a ['k'] b"}] free[{"a": "it's"}])");
  EXPECT_EQ(Closed(R"py(send(text='it\'s', to='\\'))py"),
            R"(send[{"text": "it's", "to": "\\"}])");
}

TEST(OutputPythonTest, StringsEndAsPythonMayWriteIt) {
  EXPECT_EQ(Closed("send( text = 'a' ,\n to = \"b\" , )"),
            R"(send[{"text": "a", "to": "b"}])");
  EXPECT_EQ(Closed("send(text='a'); free(a='b')"),
            R"(send[{"text": "a"}] text[; free(a='b')]<|tool_call_end|>])");
  EXPECT_EQ(Calls("[send(text='a', to='b'<|tool_call_end|>So."),
            R"(send[{"text": "a", "to": "b"}] text[So.])");
  EXPECT_EQ(Calls("send(text='a', to='b')<|tool_call_end|>So."),
            R"(send[{"text": "a", "to": "b"}] text[So.])");
  EXPECT_EQ(Calls("[send(text='a')"), R"(send[{"text": "a"}])");
  EXPECT_EQ(Calls("[send(text='a', to"), R"(send[{"text": "a"}])");
  EXPECT_EQ(Calls("[send(text='a'", OutputEnd::kCutShort),
            R"(send[{"text": "a"...)");
  EXPECT_EQ(Calls("[send(text='it's", OutputEnd::kCutShort),
            R"(send[{"text": "it's...)");
  // Behind more white space than is waited for no argument is seen.
  const std::string far(5000, ' ');
  EXPECT_EQ(Calls(Cat("[send(text='a',", far, "to='b')]")),
            Cat(R"(send[{"text": "a',)", far, R"(to='b"}])"));
}

TEST(OutputPythonTest, ListsMayHoldApostrophes) {
  EXPECT_EQ(Closed("free(a=['it's', \"b\"], b={'k': 'isn't'}, c=1)"),
            R"(free[{"a": ["it's", "b"], "b": {"k": "isn't"}, "c": 1}])");
  EXPECT_EQ(Closed(R"py(free(a=['C:\d', 'a\nb', 'it\'s', ")", "]"]))py"),
            R"py(free[{"a": ["C:\\d", "a\nb", "it's", ")", "]"]}])py");
}

TEST(OutputPythonTest, WithoutQuotesPythonsWordsAreValues) {
  EXPECT_EQ(Closed("send(text='None', to=None, cc=None, lines=['a', True])"),
            R"(send[{"text": "None", "to": null, "cc": null, )"
            R"("lines": ["a", true]}])");
  EXPECT_EQ(Closed("send(text=5, to=Bob, cc=Ann)"),
            R"(send[{"text": "5", "to": "Bob", "cc": "Ann"}])");
}

TEST(OutputPythonTest, ArgumentsWithoutNamesHaveTheSchemas) {
  EXPECT_EQ(Closed("send('hello', to='Bob')"),
            R"(send[{"text": "hello", "to": "Bob"}])");
  EXPECT_EQ(Closed("send('it's', 'Bob', None, [1, 2])"),
            R"(send[{"text": "it's", "to": "Bob", "cc": null, )"
            R"("lines": [1, 2]}])");
  EXPECT_EQ(Closed("send('a', 'b', 'c', 'd', 'e', lines=3)"),
            R"(send[{"text": "a", "to": "b", "cc": "c", "lines": "d"}])");
  EXPECT_EQ(Closed("free('a', True, b=1)"), R"(free[{"b": 1}])");
  EXPECT_EQ(Closed("send(words, to='Bob')"), R"(send[{"to": "Bob"}])");
}

TEST(OutputPythonTest, EscapesAreOneCharacter) {
  EXPECT_EQ(Closed(R"(free(a="\ud83d\ude00", b="\u00e9\x41\U0001f600"))"),
            R"(free[{"a": "😀", "b": "éA😀"}])");
  EXPECT_EQ(Closed(R"(free(a="\ud83d", b="\ud83dx", c="\ude00\ud83d"))"),
            R"(free[{"a": "�", "b": "�x", "c": "��"}])");
  EXPECT_EQ(Closed(R"(free(a="\ud83d\u0041", b="\UFFFFFFFF\U00110000"))"),
            R"(free[{"a": "�A", "b": "��"}])");
  EXPECT_EQ(Closed(R"(free(a="\ud83d\n", b="\uzzzz", c="\d"))"),
            R"(free[{"a": "�\n", "b": "\\uzzzz", "c": "\\d"}])");
}

}  // namespace
}  // namespace sluice::testing
