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
  // The parenthesis may be missing.
  for (const char* end : {"", "]", "<|tool_call_end|>", "]<|tool_call_end|>"}) {
    EXPECT_EQ(Calls(Cat("[send(None, None", end)),
              R"(send[{"text": null, "to": null}])");
  }
}

TEST(OutputPythonTest, EscapesArePythons) {
  EXPECT_EQ(
      Closed(R"(free(a='C:\\new', b="C:\\temp", c='C:\\Users\\dir'))"),
      R"(free[{"a": "C:\\new", "b": "C:\\temp", "c": "C:\\Users\\dir"}])");
  // As in Python, \n is a line feed and \U without its digits is text.
  EXPECT_EQ(Closed(R"(free(a='C:\new', b="C:\Users\x", c='\d\/\.'))"),
            R"(free[{"a": "C:\new", "b": "C:\\Users\\x", "c": "\\d\\/\\."}])");
  EXPECT_EQ(Closed("free(a=\"\\101\\0\\x00\\a\\v\\f\\b\\18\", b='a\\\nb', "
                   "c='\\777')"),
            R"(free[{"a": "A\u0000\u0000\u0007\u000b\u000c\u0008\u00018", )"
            R"("b": "ab", "c": "ǿ"}])");
  EXPECT_EQ(Closed("free(a=['\\101\\x41\\u0041\\U00000041', \"\\a\\q\", '\\\n"
                   "'], b=1)"),
            R"(free[{"a": ["AAAA", "\u0007\\q", ""], "b": 1}])");
  EXPECT_EQ(Closed(R"(free(a='\N{DASH}', b=["\ud83d\ude00\ude00"]))"),
            R"(free[{"a": "\\N{DASH}", "b": ["😀�"]}])");
}

TEST(OutputPythonTest, ABackslashBeforeTheLastQuoteMayBeText) {
  EXPECT_EQ(Closed(R"(free(a='C:\dir\'))"), R"(free[{"a": "C:\\dir\\"}])");
  EXPECT_EQ(Closed(R"(free(a='C:\dir\\'))"), R"(free[{"a": "C:\\dir\\"}])");
  EXPECT_EQ(Calls(R"([free(a="C:\")<|tool_call_end|>So.)"),
            R"(free[{"a": "C:\\"}] text[So.])");
  EXPECT_EQ(Closed(R"py(free(a='f(\'x\')', b='g[\'y\']'))py"),
            R"py(free[{"a": "f('x')", "b": "g['y']"}])py");
  EXPECT_EQ(Calls(R"py([free(a='f(\'x\'))py", OutputEnd::kCutShort),
            R"py(free[{"a": "f('x')...)py");
}

TEST(OutputPythonTest, StringsHavePythonsPrefixesAndQuotes) {
  EXPECT_EQ(Closed(R"(free(a=r'C:\new\d', b=R"\"x", c=u'\n'))"),
            R"(free[{"a": "C:\\new\\d", "b": "\\\"x", "c": "\n"}])");
  EXPECT_EQ(Closed("free(a=red, b=r, c=\"\", d='', e=up)"),
            R"(free[{"a": "red", "b": "r", "c": "", "d": "", "e": "up"}])");
  EXPECT_EQ(Closed(R"py(free(a="""say "x", a="y"""", b='''it's''''))py"),
            R"py(free[{"a": "say \"x\", a=\"y\"", "b": "it's'"}])py");
  EXPECT_EQ(Calls("[free(a=\"\"\"x\"\""), R"(free[{"a": "x"}])");
  EXPECT_EQ(Closed("free(a=\"line\ntwo\t{[(\", b='é😀')"),
            R"(free[{"a": "line\ntwo\t{[(", "b": "é😀"}])");
}

TEST(OutputPythonTest, ValuesArePythonsLiterals) {
  EXPECT_EQ(Closed("free(a=(800, 600), b=(1,), c=(), d=(7), e={1, 2}, f={})"),
            R"(free[{"a": [800, 600], "b": [1], "c": [], "d": 7, )"
            R"("e": [1, 2], "f": {}}])");
  EXPECT_EQ(Closed("free(a=-74.5, b=+1, c=07, d=1_000, e=0x1F, f=.5, g=5., "
                   "h=-1e5, i=--2, j=00)"),
            R"(free[{"a": -74.5, "b": 1, "c": 7, "d": 1000, "e": 31, )"
            R"("f": 0.5, "g": 5.0, "h": -1e5, "i": 2, "j": 0}])");
  EXPECT_EQ(Closed("free(a=[1, [2, {'k': [True, None]}],], b={'x': {'y': "
                   "false}, 1: 'a', None: (1, 2)}, c=[{}, []])"),
            R"(free[{"a": [1, [2, {"k": [true, null]}]], "b": {"x": {"y": )"
            R"(false}, "1": "a", "null": [1, 2]}, "c": [{}, []]}])");
  EXPECT_EQ(Closed("free(a=['x' 'y', 'it' 's'], b=[r'\\d', \"\"\"q\"\"\"])"),
            R"(free[{"a": ["xy", "its"], "b": ["\\d", "q"]}])");
  // What is no literal is a string.
  EXPECT_EQ(Closed("free(a=2*3, b=[x], c={'k'}, d={'k': 1, 2}, e=0x, f=1j)"),
            R"(free[{"a": "2*3", "b": "[x]", "c": ["k"], )"
            R"("d": "{'k': 1, 2}", "e": "0x", "f": "1j"}])");
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  EXPECT_EQ(Closed(Cat("free(a=", deep, ")")),
            Cat(R"(free[{"a": ")", deep, R"("}])"));
}

TEST(OutputPythonTest, CallsFollowOneAnother) {
  EXPECT_EQ(Closed("free(from=1, class='x'), send(), free(a=[')', '('])"),
            R"py(free[{"from": 1, "class": "x"}] send[{}] )py"
            R"py(free[{"a": [")", "("]}])py");
  EXPECT_EQ(Calls("[free()]<|tool_call_end|>\n<|tool_call_start|>[send(\n)]"
                  "<|tool_call_end|>"),
            "free[{}] send[{}]");
  EXPECT_EQ(Calls("[]<|tool_call_end|>"),
            "text[<|tool_call_start|>[]<|tool_call_end|>]");
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
