#include "common/otlp/spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "common/otlp/sampler.h"
#include "tests/trace/trace_records.h"

namespace sluice::otlp {
namespace {

using trace::MakeRecord;
using trace::TraceRecord;

wire::ScopeSpans SpansOf(const TraceRecord& record) {
  wire::ScopeSpans spans;
  AddSpans(record, spans);
  return spans;
}

TraceRecord Answered(int stages, int tokens) {
  TraceRecord record = MakeRecord(stages, tokens);
  record.arrival_unix_us = 1'700'000'000'000'000;
  record.request.method = "POST";
  record.request.path = "/v1/chat/completions";
  record.request.model = "small";
  record.request.prepared = true;
  record.request.max_tokens = 9;
  record.request.temperature = 0.5F;
  record.answer.status = 200;
  record.answer.figures.generates = true;
  record.answer.figures.prompt_tokens = 11;
  record.answer.figures.completion_tokens = tokens;
  record.answer.figures.finish = "stop,length";
  return record;
}

const wire::AnyValue* Find(const wire::Span& span, std::string_view key) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() == key) return &attribute.value();
  }
  return nullptr;
}

std::string TextOf(const wire::Span& span, std::string_view key) {
  const wire::AnyValue* value = Find(span, key);
  return value == nullptr ? "" : value->string_value();
}

int64_t IntOf(const wire::Span& span, std::string_view key) {
  const wire::AnyValue* value = Find(span, key);
  return value == nullptr ? -1 : value->int_value();
}

// One root, ids once, each span within the span above it.
void ExpectTree(const wire::ScopeSpans& spans, const std::string& above) {
  std::map<std::string, const wire::Span*> by_id;
  int roots = 0;
  for (const wire::Span& span : spans.spans()) {
    EXPECT_EQ(span.trace_id().size(), 16u);
    EXPECT_EQ(span.trace_id(), spans.spans(0).trace_id());
    EXPECT_EQ(span.span_id().size(), 8u);
    EXPECT_TRUE(by_id.emplace(span.span_id(), &span).second) << "an id twice";
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano());
    if (span.parent_span_id() == above) {
      ++roots;
      continue;
    }
    const auto parent = by_id.find(span.parent_span_id());
    ASSERT_NE(parent, by_id.end()) << span.name() << " is below no span";
    EXPECT_GE(span.start_time_unix_nano(),
              parent->second->start_time_unix_nano())
        << span.name();
    EXPECT_LE(span.end_time_unix_nano(), parent->second->end_time_unix_nano())
        << span.name();
  }
  EXPECT_EQ(roots, 1);
}

std::multiset<std::string> Names(const wire::ScopeSpans& spans) {
  std::multiset<std::string> names;
  for (const wire::Span& span : spans.spans()) names.insert(span.name());
  return names;
}

TEST(OtlpSpansTest, ARequestIsATreeOfItsParts) {
  const TraceRecord record = Answered(2, 5);
  const wire::ScopeSpans spans = SpansOf(record);
  ExpectTree(spans, "");
  const wire::Span& root = spans.spans(0);
  EXPECT_EQ(root.name(), "chat small");
  EXPECT_EQ(root.kind(), wire::Span::SPAN_KIND_SERVER);
  EXPECT_EQ(root.start_time_unix_nano(), 1'700'000'000'000'000'000u);
  EXPECT_EQ(root.end_time_unix_nano() - root.start_time_unix_nano(),
            static_cast<uint64_t>(record.end_ns() - record.begin_ns()));
  const auto names = Names(spans);
  for (const char* once : {"read", "prepare", "queue", "prefill", "decode"}) {
    EXPECT_EQ(names.count(once), 1u) << once;
  }
  EXPECT_EQ(names.count("token"), 4u);
  for (const char* each : {"compute stage 0", "compute stage 1", "wire hop 0",
                           "wire hop 1", "wire hop 2", "sample stage 1"}) {
    EXPECT_EQ(names.count(each), 5u) << each;
  }
}

TEST(OtlpSpansTest, TheRootHasTheConventionsAttributes) {
  const wire::ScopeSpans spans = SpansOf(Answered(1, 3));
  const wire::Span& root = spans.spans(0);
  EXPECT_EQ(TextOf(root, "gen_ai.operation.name"), "chat");
  EXPECT_EQ(TextOf(root, "gen_ai.request.model"), "small");
  EXPECT_EQ(IntOf(root, "gen_ai.usage.input_tokens"), 11);
  EXPECT_EQ(IntOf(root, "gen_ai.usage.output_tokens"), 3);
  EXPECT_EQ(IntOf(root, "gen_ai.request.max_tokens"), 9);
  EXPECT_EQ(IntOf(root, "http.response.status_code"), 200);
  EXPECT_EQ(TextOf(root, "sluice.request.id"), "abc");
  const wire::AnyValue* reasons = Find(root, "gen_ai.response.finish_reasons");
  ASSERT_NE(reasons, nullptr);
  ASSERT_EQ(reasons->array_value().values_size(), 2);
  EXPECT_EQ(reasons->array_value().values(1).string_value(), "length");
  EXPECT_EQ(Find(root, "error.type"), nullptr);
  EXPECT_EQ(root.status().code(), wire::Status::STATUS_CODE_UNSET);
}

TEST(OtlpSpansTest, TheClientsTraceGoesOn) {
  TraceRecord record = Answered(1, 1);
  record.request.traceparent =
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto parent = ParseParent(record.request.traceparent);
  const wire::ScopeSpans spans = SpansOf(record);
  ExpectTree(spans, parent->span_id);
  EXPECT_EQ(spans.spans(0).trace_id(), parent->trace_id);
  EXPECT_NE(SpansOf(Answered(1, 1)).spans(0).trace_id(),
            SpansOf(Answered(1, 1)).spans(0).trace_id());
}

TEST(OtlpSpansTest, LongAnswersHaveTheirSlowestTokensAndTheSums) {
  TraceRecord record = Answered(2, 200);
  const wire::ScopeSpans spans = SpansOf(record);
  ExpectTree(spans, "");
  EXPECT_LE(static_cast<size_t>(spans.spans_size()), kMaxSpans);
  EXPECT_EQ(Names(spans).count("token"), kSlowestTokens);
  for (const wire::Span& span : spans.spans()) {
    if (span.name() != "decode") continue;
    EXPECT_EQ(IntOf(span, "sluice.tokens"), 199);
    // A step computes 100 us on stage 0 and 200 us on stage 1.
    EXPECT_NEAR(Find(span, "sluice.ms.compute.stage_0")->double_value(), 19.9,
                1e-6);
    EXPECT_NEAR(Find(span, "sluice.ms.compute.stage_1")->double_value(), 39.8,
                1e-6);
  }
}

TEST(OtlpSpansTest, ManyChoicesStayWithinTheLimitAndSaySo) {
  TraceRecord record = Answered(2, 10);
  record.choices.resize(128, record.choices.front());
  const wire::ScopeSpans spans = SpansOf(record);
  ExpectTree(spans, "");
  EXPECT_EQ(static_cast<size_t>(spans.spans_size()), kMaxSpans);
  EXPECT_GT(IntOf(spans.spans(0), "sluice.spans_left_out"), 0);
  EXPECT_EQ(IntOf(spans.spans(0), "gen_ai.request.choice.count"), 128);
}

TEST(OtlpSpansTest, FailuresOfTheServerAloneAreErrors) {
  TraceRecord record;
  record.answer.status = 400;
  record.answer.error_type = "invalid_request_error";
  wire::Span root = SpansOf(record).spans(0);
  EXPECT_EQ(TextOf(root, "error.type"), "invalid_request_error");
  EXPECT_EQ(root.status().code(), wire::Status::STATUS_CODE_UNSET);
  record.answer.status = 503;
  root = SpansOf(record).spans(0);
  EXPECT_EQ(root.status().code(), wire::Status::STATUS_CODE_ERROR);
  record = Answered(1, 1);
  record.answer.figures.error_type = "server_error";
  root = SpansOf(record).spans(0);
  EXPECT_EQ(root.status().code(), wire::Status::STATUS_CODE_ERROR)
      << "the stream ended with an error";
  record = Answered(1, 1);
  record.answer.status = 0;
  root = SpansOf(record).spans(0);
  EXPECT_EQ(TextOf(root, "error.type"), "client_left");
}

}  // namespace
}  // namespace sluice::otlp
