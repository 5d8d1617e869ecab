// Bodies of /completion and /infill, field by field.
#include "common/dialects/llamacpp/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/cat.h"
#include "common/dialects/llamacpp/known_fields.h"
#include "common/serving/error.h"
#include "tests/serving/fake_text.h"

namespace sluice::llamacpp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const serving::FakeText kText;

StatusOr<CompletionBody> Parse(const std::string& fields, bool strict = false) {
  return ParseCompletion(
      Cat(R"({"prompt":"a")", fields.empty() ? "" : ",", fields, "}"), kText,
      serving::kFakeVocab, strict);
}

serving::GenerationFields Fields(const std::string& fields) {
  const auto parsed = Parse(fields);
  EXPECT_TRUE(parsed.ok()) << fields << parsed.status();
  return parsed.ok() ? parsed->fields : serving::GenerationFields(kNames);
}

std::string ParamOf(const std::string& fields, bool strict = false) {
  const auto parsed = Parse(fields, strict);
  if (parsed.ok()) return "taken";
  return serving::ToApiError(parsed.status()).param.value_or("none");
}

TEST(LlamacppParseTest, NothingGivenIsTheModelsOwn) {
  const serving::GenerationFields fields = Fields("");
  EXPECT_FALSE(fields.max_tokens || fields.temperature || fields.seed);
  EXPECT_TRUE(fields.fills_context && fields.cuts_max_tokens);
  EXPECT_EQ(fields.n, 1);
  EXPECT_FALSE(fields.stream || fields.grammar || fields.logprobs);
}

TEST(LlamacppParseTest, TheNamesOfLlamaCppAreRead) {
  const serving::GenerationFields fields = Fields(
      R"("n_predict":3,"temperature":0.5,"top_k":4,"top_p":0.9,"min_p":0.1,
      "seed":7,"repeat_penalty":1.5,"repeat_last_n":-1,"presence_penalty":0.25,
      "frequency_penalty":0.75,"stop":["x","y"],"ignore_eos":true,"n_cmpl":2,
      "n_probs":5,"min_tokens":1,"sse_ping_interval":9,"stream":true)");
  EXPECT_EQ(fields.max_tokens, 3);
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_k, 4);
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.seed, 7u);
  EXPECT_EQ(fields.repetition_penalty, 1.5);
  EXPECT_EQ(fields.presence_penalty, 0.25);
  EXPECT_EQ(fields.frequency_penalty, 0.75);
  EXPECT_THAT(fields.stop, ElementsAre("x", "y"));
  EXPECT_TRUE(fields.ignore_eos && fields.stream);
  EXPECT_EQ(fields.n, 2);
  EXPECT_EQ(fields.logprobs, 5);
  EXPECT_EQ(fields.min_tokens, 1);
  EXPECT_EQ(fields.ping_interval, 9);
  EXPECT_NE(fields.digest, 0u);
}

TEST(LlamacppParseTest, ValuesThatStandForOthers) {
  EXPECT_FALSE(Fields(R"("seed":-1)").seed);
  EXPECT_FALSE(Fields(R"("seed":4294967295)").seed);
  EXPECT_EQ(Fields(R"("temperature":-1)").temperature, 0);
  EXPECT_EQ(Fields(R"("top_k":-1)").top_k, 0);
  EXPECT_EQ(Fields(R"("top_p":0)").temperature, 0);
  EXPECT_FALSE(Fields(R"("n_predict":-2)").max_tokens);
  EXPECT_EQ(Fields(R"("max_tokens":3)").max_tokens, 3);
  EXPECT_FALSE(Fields(R"("n_probs":0)").logprobs);
  EXPECT_EQ(
      Fields(R"("repeat_penalty":2,"repeat_last_n":0)").repetition_penalty, 1);
}

TEST(LlamacppParseTest, LogitBiasHasThreeForms) {
  const auto list = Fields(R"("logit_bias":[[3,1.5],["ab",-2],[4,false]])");
  EXPECT_THAT(list.logit_bias,
              ElementsAre(LogitBias{3, 1.5f}, LogitBias{4, -100.0f},
                          LogitBias{'a', -2.0f}, LogitBias{'b', -2.0f}));
  const auto object = Fields(R"("logit_bias":{"3":1,"aa":2})");
  EXPECT_THAT(object.logit_bias,
              ElementsAre(LogitBias{3, 1.0f}, LogitBias{'a', 4.0f}));
  for (const char* bad :
       {"1", "[3]", "[[3]]", "[[3,1,2]]", "[[3,true]]", "[[3,101]]", "[[-1,1]]",
        "[[259,1]]", "[[0.5,1]]", "[[3,60],[3,60]]", R"({"3":"x"})"}) {
    EXPECT_EQ(ParamOf(Cat(R"("logit_bias":)", bad)), "logit_bias") << bad;
  }
}

TEST(LlamacppParseTest, OneGrammarHoldsTheAnswer) {
  const auto gbnf = Fields(R"("grammar":"root ::= \"x\"")");
  ASSERT_TRUE(gbnf.grammar);
  EXPECT_EQ(gbnf.grammar->name, "grammar");
  EXPECT_EQ(gbnf.grammar->spec.kind, GrammarSpec::Kind::kGbnf);
  const auto schema = Fields(R"("grammar":"","json_schema":{"type":"object"})");
  ASSERT_TRUE(schema.grammar);
  EXPECT_EQ(schema.grammar->spec.text, R"({"type":"object"})");
  EXPECT_EQ(ParamOf(R"("grammar":"root ::= x","json_schema":{})"),
            "json_schema");
  EXPECT_EQ(ParamOf(R"("json_schema":"x")"), "json_schema");
  EXPECT_EQ(ParamOf(R"("grammar":1)"), "grammar");
}

TEST(LlamacppParseTest, BadValuesAreRefusedByName) {
  const std::pair<const char*, const char*> kBad[] = {
      {R"("n_predict":-3)", "n_predict"},
      {R"("n_predict":"x")", "n_predict"},
      {R"("n_predict":3,"max_tokens":4)", "max_tokens"},
      {R"("n_predict":3,"min_tokens":4)", "min_tokens"},
      {R"("temperature":2.5)", "temperature"},
      {R"("top_p":2)", "top_p"},
      {R"("min_p":-1)", "min_p"},
      {R"("repeat_penalty":0)", "repeat_penalty"},
      {R"("repeat_penalty":2,"repeat_last_n":64)", "repeat_last_n"},
      {R"("stop":[""])", "stop"},
      {R"("n_probs":21)", "n_probs"},
      {R"("n_cmpl":0)", "n_cmpl"},
      {R"("n_cmpl":2,"n":3)", "n"},
      {R"("stream":1)", "stream"},
      {R"("response_fields":[1])", "response_fields"},
      {R"("mirostat":2)", "mirostat"},
      {R"("samplers":["top_k"])", "samplers"},
      {R"("post_sampling_probs":true)", "post_sampling_probs"},
      {R"("lora":[{"id":0,"scale":1}])", "lora"}};
  for (const auto& [fields, param] : kBad) {
    EXPECT_EQ(ParamOf(fields), param) << fields;
  }
}

TEST(LlamacppParseTest, BadPromptsAreRefused) {
  for (const char* prompt :
       {"5", "[]", "[[]]", "[259]", "[-1]", "[1,true]", "[1,0.5]", "[1,null]",
        R"({"prompt_string":5})", "{}", "[null]",
        R"({"prompt_string":"a","multimodal_data":["x"]})"}) {
    const auto parsed = ParseCompletion(Cat(R"({"prompt":)", prompt, "}"),
                                        kText, serving::kFakeVocab);
    ASSERT_FALSE(parsed.ok()) << prompt;
    EXPECT_EQ(serving::ToApiError(parsed.status()).param, "prompt") << prompt;
  }
  EXPECT_FALSE(ParseCompletion("{}", kText, serving::kFakeVocab).ok());
  std::string many = R"({"prompt":["")";
  for (size_t i = 0; i < kMaxPrompts; ++i) many += R"(,"")";
  EXPECT_FALSE(ParseCompletion(many + "]}", kText, serving::kFakeVocab).ok());
}

TEST(LlamacppParseTest, NeutralAndUnknownFields) {
  for (const serving::RequestField& field : KnownFields()) {
    if (field.use != serving::FieldUse::kUnbuilt) continue;
    const Json values = *ParseJson(field.neutral);
    for (const Json& value : values) {
      EXPECT_EQ(ParamOf(Cat('"', field.name, "\":", DumpJson(value)), true),
                "taken")
          << field.name;
    }
  }
  EXPECT_EQ(ParamOf(R"("cache_prompt":false,"id_slot":3,"n_keep":5)", true),
            "taken");
  EXPECT_EQ(ParamOf(R"("of_tomorrow":1)"), "taken");
  EXPECT_EQ(ParamOf(R"("of_tomorrow":1)", true), "of_tomorrow");
  EXPECT_EQ(ParamOf(R"("input_prefix":"x")", true), "input_prefix");
}

TEST(LlamacppParseTest, OnlyGrammarsMakeABodyNotPlain) {
  EXPECT_TRUE(IsPlainBody(R"({"prompt":"a","n_predict":5,"grammar":""})"));
  EXPECT_TRUE(IsPlainBody(R"({"input_prefix":"a","cache_prompt":true})"));
  for (const char* member :
       {R"("grammar":"root ::= x")", R"("json_schema":{})", R"("x":1)"}) {
    EXPECT_FALSE(IsPlainBody(Cat("{", member, "}"))) << member;
  }
}

}  // namespace
}  // namespace sluice::llamacpp
