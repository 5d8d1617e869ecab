#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/dialects/openai/known_fields.h"
#include "services/gateway/dialects.h"

namespace sluice::gateway {
namespace {

bool IsPlain(std::string body, std::string path = "/v1/chat/completions") {
  http::HttpRequest request;
  request.method = "POST";
  request.path = std::move(path);
  request.body = std::move(body);
  return IsPlainRequest(request);
}

TEST(PlainRequestTest, TextAloneIsPlain) {
  for (
      const char* body :
      {"", "{}", " { } ", R"({"prompt":"hi"})",
       R"({"model":"m","messages":[{"role":"user","content":"say \"tools\": [{"}],
            "stream" : true , "temperature":0.5})",
       R"({"messages":[{"role":"assistant","tool_calls":[{"id":"x"}]}]})",
       R"({"prompt":"ends in a \\","n":1})", R"({"prompt":[1,[2,3],{}]})",
       R"({"tools":[],"tool_choice":"auto","response_format":null})",
       R"({"tools":null,"response_format":{ "type" : "text" },"grammar":null})"}) {
    EXPECT_TRUE(IsPlain(body)) << body;
  }
}

TEST(PlainRequestTest, WhatMayBringAGrammarIsNot) {
  for (const char* member :
       {R"("response_format":{"type":"json_object"})",
        R"("response_format":{"type":"json_schema","json_schema":{}})",
        R"("response_format":{"type":"text","type":"json_object"})",
        R"("tools":[{"type":"function"}])",
        R"("tool_choice":"required")",
        R"("tool_choice":{"type":"function"})",
        R"("functions":[{}])",
        R"("guided_json":{})",
        R"("guided_regex":"a")",
        R"("guided_choice":["a"])",
        R"("guided_grammar":"a")",
        R"("structured_outputs":{"regex":"a"})",
        R"("grammar":"root ::= x")",
        R"("json_schema":{})",
        R"("json_schema":true)",
        R"("regex":"a")",
        R"("ebnf":"a")",
        R"("structural_tag":{})",
        R"("of_tomorrow":1)",
        R"("gramm\u0061r":"root ::= x")",
        R"("chat_template":"{{ x }}")"}) {
    EXPECT_FALSE(IsPlain(Cat("{", member, "}"))) << member;
    EXPECT_FALSE(IsPlain(Cat(R"({"prompt":"a]}","n":1 , )", member, " }")))
        << member;
    EXPECT_FALSE(IsPlain(Cat("{", member, R"(,"grammar":null})"))) << member;
  }
}

TEST(PlainRequestTest, EachMemberThatBringsAGrammarIsKnownHere) {
  for (const openai::KnownField& field : openai::KnownFields()) {
    const std::string name(field.name);
    for (const char* part : {"guided", "grammar", "schema", "regex", "ebnf",
                             "struct", "tools", "function", "format"}) {
      if (name.find(part) == name.npos) continue;
      EXPECT_FALSE(IsPlain(Cat("{\"", name, "\":{\"a\":1}}"))) << name;
    }
  }
}

TEST(PlainRequestTest, WhatIsNoObjectIsNot) {
  for (const char* body :
       {"x", "[]", "null", "{", "{\"", "{\"n\"", "{\"n\":", "{\"n\":}",
        "{\"n\":1", "{\"n\":1,}", "{\"n\":1}}", "{\"n\":1} {", "{\"n\":[}",
        "{\"prompt\":\"a}", "{\"prompt\":\"a\\", "{n:1}", "\xef\xbb\xbf{}"}) {
    EXPECT_FALSE(IsPlain(body)) << body;
  }
}

TEST(PlainRequestTest, AStreamByItsIdMayHaveAnyBody) {
  EXPECT_FALSE(IsPlain("", "/v1/streams/some-id"));
  EXPECT_TRUE(IsPlain("", "/v1/models"));
}

TEST(PlainRequestTest, TheLookIsLinear) {
  const auto seconds_of = [](const std::string& body) {
    const TimePoint begin = Clock::now();
    for (int i = 0; i < 3; ++i) IsPlain(body);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const auto body_of = [](size_t size, const std::string& part) {
    std::string body = "{\"prompt\":[";
    while (body.size() < size) body += part;
    return body + "0]}";
  };
  for (const char* part :
       {"[", "\"\\\"\",", "{\"a\":1},", "\"a\",", "       "}) {
    const std::string body = body_of(size_t{1} << 20, part);
    EXPECT_LT(seconds_of(body), 3 * 0.5) << part;
  }
}

}  // namespace
}  // namespace sluice::gateway
