#include "common/otlp/spans.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "common/base/cat.h"
#include "common/base/random_bytes.h"
#include "common/otlp/sampler.h"
#include "common/trace/trace_json.h"
#include "common/trace/trace_path.h"

namespace sluice::otlp {
namespace {

using trace::ChoicePath;
using trace::TokenPath;
using trace::TracePart;
using trace::TracePlace;
using trace::TraceRecord;

constexpr size_t kTraceIdBytes = 16;
constexpr size_t kSpanIdBytes = 8;
// The part that ends a request's way to its first plan.
constexpr std::string_view kLastOfHead = "queue";

class Attributes {
 public:
  explicit Attributes(wire::Span& span) : span_(span) {}

  void Text(std::string_view key, std::string_view value) {
    if (!value.empty()) New(key)->set_string_value(std::string(value));
  }
  void Int(std::string_view key, int64_t value) {
    New(key)->set_int_value(value);
  }
  void Number(std::string_view key, double value) {
    New(key)->set_double_value(value);
  }
  // The names of "stop,length".
  void Texts(std::string_view key, std::string_view list) {
    if (list.empty()) return;
    wire::ArrayValue* values = New(key)->mutable_array_value();
    while (!list.empty()) {
      const std::string_view one = list.substr(0, list.find(','));
      list.remove_prefix(std::min(list.size(), one.size() + 1));
      values->add_values()->set_string_value(std::string(one));
    }
  }

 private:
  wire::AnyValue* New(std::string_view key) {
    wire::KeyValue* attribute = span_.add_attributes();
    attribute->set_key(std::string(key));
    return attribute->mutable_value();
  }

  wire::Span& span_;
};

double Millis(int64_t ns) { return 1e-6 * static_cast<double>(ns); }

// Makes the spans of one record.
class SpanMaker {
 public:
  SpanMaker(const TraceRecord& record, wire::ScopeSpans& out)
      : record_(record),
        out_(out),
        parent_(ParseParent(record.request.traceparent)),
        trace_id_(parent_ ? parent_->trace_id : RandomBytes(kTraceIdBytes)) {}

  void Make();

 private:
  // Adds a span over [start, stop) of the record's clock; returns its id.
  wire::Span& Add(std::string_view name, const std::string& parent,
                  const TraceSpan& time);
  bool is_full() const { return num_spans_ >= kMaxSpans; }
  void AddRoot();
  void AddChoice(size_t index, const std::string& parent);
  void AddPart(const TracePart& part, const std::string& parent);
  // Adds the first token's parts; those after the head are in "prefill".
  void AddPrefill(const TokenPath& token, const std::string& parent);
  void AddDecode(const ChoicePath& path, const std::string& parent);
  void AddToken(const TokenPath& token, size_t index,
                const std::string& parent);

  const TraceRecord& record_;
  wire::ScopeSpans& out_;
  const std::optional<Parent> parent_;
  const std::string trace_id_;
  wire::Span* root_ = nullptr;
  size_t num_spans_ = 0;
  uint32_t left_out_ = 0;
};

TraceSpan WholeOf(const std::vector<TracePart>& parts) {
  return {parts.front().start_ns, parts.back().stop_ns};
}

wire::Span& SpanMaker::Add(std::string_view name, const std::string& parent,
                           const TraceSpan& time) {
  const auto unix_ns = [this](int64_t ns) {
    return static_cast<uint64_t>(1000 * record_.arrival_unix_us + ns -
                                 record_.begin_ns());
  };
  ++num_spans_;
  const uint64_t end = unix_ns(std::max(time.start_ns, time.stop_ns));
  // The end of a sequence may be told after the answer's last byte.
  if (root_ != nullptr && end > root_->end_time_unix_nano()) {
    root_->set_end_time_unix_nano(end);
  }
  wire::Span& span = *out_.add_spans();
  span.set_trace_id(trace_id_);
  span.set_span_id(RandomBytes(kSpanIdBytes));
  span.set_parent_span_id(parent);
  span.set_name(std::string(name));
  span.set_kind(wire::Span::SPAN_KIND_INTERNAL);
  span.set_start_time_unix_nano(unix_ns(time.start_ns));
  span.set_end_time_unix_nano(end);
  return span;
}

std::string_view OperationOf(const TraceRecord::Request& request) {
  return request.path == "/v1/chat/completions" ? "chat" : "text_completion";
}

void AddRequestAttributes(const TraceRecord& record, Attributes& out) {
  const TraceRecord::Request& request = record.request;
  out.Text("gen_ai.operation.name", OperationOf(request));
  out.Text("gen_ai.provider.name", "sluice");
  out.Text("gen_ai.request.model", request.model);
  out.Text("gen_ai.response.model", request.model);
  out.Text("http.request.method", request.method);
  out.Text("url.path", request.path);
  out.Text("http.route", request.path);
  out.Text("sluice.request.id", record.request_id);
  if (!request.prepared) return;
  out.Int("gen_ai.request.max_tokens", request.max_tokens);
  out.Number("gen_ai.request.temperature", request.temperature);
  out.Number("gen_ai.request.top_p", request.top_p);
  if (request.top_k > 0) out.Number("gen_ai.request.top_k", request.top_k);
  out.Number("gen_ai.request.frequency_penalty", request.frequency_penalty);
  out.Number("gen_ai.request.presence_penalty", request.presence_penalty);
  const auto choices = static_cast<int64_t>(record.choices.size());
  if (choices > 1) out.Int("gen_ai.request.choice.count", choices);
}

void AddAnswerAttributes(const TraceRecord& record, wire::Span& span) {
  const TraceRecord::Answer& answer = record.answer;
  Attributes out(span);
  if (answer.figures.generates) {
    out.Int("gen_ai.usage.input_tokens", answer.figures.prompt_tokens);
    out.Int("gen_ai.usage.output_tokens", answer.figures.completion_tokens);
    out.Int("gen_ai.usage.cache_read.input_tokens",
            answer.figures.cached_tokens);
    out.Texts("gen_ai.response.finish_reasons", answer.figures.finish);
  }
  if (answer.figures.first_token) {
    out.Number("gen_ai.latency.time_to_first_token",
               Seconds(*answer.figures.first_token));
  }
  if (answer.status != 0) {
    out.Int("http.response.status_code", answer.status);
  }
  const std::string& late = answer.figures.error_type;
  std::string error = late.empty() ? answer.error_type : late;
  if (answer.status == 0) error = "client_left";
  out.Text("error.type", error);
  // A client's own mistake is no error of a server's span.
  if (answer.status >= 500 || !late.empty()) {
    span.mutable_status()->set_code(wire::Status::STATUS_CODE_ERROR);
  }
}

void SpanMaker::AddRoot() {
  const std::string name =
      Cat(OperationOf(record_.request),
          record_.request.model.empty() ? "" : " ", record_.request.model);
  root_ = &Add(name, parent_ ? parent_->span_id : "",
               {record_.begin_ns(), record_.end_ns()});
  root_->set_kind(wire::Span::SPAN_KIND_SERVER);
  Attributes attributes(*root_);
  AddRequestAttributes(record_, attributes);
  AddAnswerAttributes(record_, *root_);
}

void SpanMaker::AddPart(const TracePart& part, const std::string& parent) {
  if (is_full()) {
    ++left_out_;
    return;
  }
  const TracePlace& place = part.place;
  const bool local = place.kind == TracePlace::kGateway;
  wire::Span& span = Add(local ? std::string(part.name)
                               : Cat(part.name, " ", trace::PlaceName(place)),
                         parent, {part.start_ns, part.stop_ns});
  Attributes attributes(span);
  attributes.Text("sluice.part", part.name);
  attributes.Text("sluice.place", trace::PlaceName(place));
  if (place.kind != TracePlace::kStage) return;
  attributes.Int("sluice.stage.index", place.index);
  const auto index = static_cast<size_t>(place.index);
  if (index >= record_.stages.size()) return;
  const TraceRecord::Stage& stage = record_.stages[index];
  attributes.Text("server.address", stage.address);
  attributes.Int("sluice.stage.first_layer", stage.place.first_layer);
  attributes.Int("sluice.stage.last_layer", stage.place.last_layer);
}

void SpanMaker::AddPrefill(const TokenPath& token, const std::string& parent) {
  const auto& parts = token.parts;
  size_t head = parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].name == kLastOfHead) head = i + 1;
  }
  for (size_t i = 0; i < head; ++i) AddPart(parts[i], parent);
  if (head == parts.size() || is_full()) return;
  const wire::Span& prefill =
      Add("prefill", parent, {parts[head].start_ns, parts.back().stop_ns});
  const std::string id = prefill.span_id();
  for (size_t i = head; i < parts.size(); ++i) AddPart(parts[i], id);
}

void SpanMaker::AddToken(const TokenPath& token, size_t index,
                         const std::string& parent) {
  if (token.parts.empty()) return;
  if (is_full()) {
    ++left_out_;
    return;
  }
  wire::Span& span = Add("token", parent, WholeOf(token.parts));
  Attributes(span).Int("sluice.token.index", static_cast<int64_t>(index));
  const std::string id = span.span_id();
  for (const TracePart& part : token.parts) AddPart(part, id);
}

// Adds the time of each part at each place, over all tokens.
void AddSums(const ChoicePath& path, Attributes& out) {
  std::map<std::string, int64_t> sums;
  for (size_t t = 1; t < path.tokens.size(); ++t) {
    const TokenPath& token = path.tokens[t];
    for (size_t i = 0; i < token.num_on_path; ++i) {
      const TracePart& part = token.parts[i];
      std::string place = trace::PlaceName(part.place);
      std::replace(place.begin(), place.end(), ' ', '_');
      sums[Cat("sluice.ms.", part.name, ".", place)] +=
          part.stop_ns - part.start_ns;
    }
  }
  for (const auto& [key, ns] : sums) out.Number(key, Millis(ns));
}

void SpanMaker::AddDecode(const ChoicePath& path, const std::string& parent) {
  std::vector<size_t> order;
  TraceSpan whole;
  for (size_t i = 1; i < path.tokens.size(); ++i) {
    const auto& parts = path.tokens[i].parts;
    if (parts.empty()) continue;
    if (order.empty()) whole = WholeOf(parts);
    whole.stop_ns = std::max(whole.stop_ns, parts.back().stop_ns);
    order.push_back(i);
  }
  if (order.empty() || is_full()) return;
  wire::Span& decode = Add("decode", parent, whole);
  Attributes attributes(decode);
  attributes.Int("sluice.tokens", static_cast<int64_t>(order.size()));
  AddSums(path, attributes);
  const std::string id = decode.span_id();
  const size_t shown = std::min(kSlowestTokens, order.size());
  const auto duration = [&path](size_t i) {
    return WholeOf(path.tokens[i].parts).duration_ns();
  };
  std::ranges::partial_sort(order, order.begin() + static_cast<int64_t>(shown),
                            std::greater<>(), duration);
  order.resize(shown);
  std::ranges::sort(order);
  for (const size_t i : order) AddToken(path.tokens[i], i, id);
}

void SpanMaker::AddChoice(size_t index, const std::string& parent) {
  const ChoicePath path = trace::MakePath(record_, index);
  if (path.tokens.empty() || path.tokens.front().parts.empty()) return;
  if (is_full()) {
    ++left_out_;
    return;
  }
  std::string id = parent;
  if (record_.choices.size() > 1) {
    TraceSpan whole = WholeOf(path.tokens.front().parts);
    for (const TokenPath& token : path.tokens) {
      if (token.parts.empty()) continue;
      whole.stop_ns = std::max(whole.stop_ns, token.parts.back().stop_ns);
    }
    wire::Span& span = Add("choice", parent, whole);
    Attributes(span).Int("sluice.choice.index", static_cast<int64_t>(index));
    id = span.span_id();
  }
  AddPrefill(path.tokens.front(), id);
  AddDecode(path, id);
}

void SpanMaker::Make() {
  AddRoot();
  const std::string id = root_->span_id();
  for (size_t i = 0; i < record_.choices.size(); ++i) AddChoice(i, id);
  if (left_out_ > 0) {
    Attributes(*root_).Int("sluice.spans_left_out", left_out_);
  }
}

}  // namespace

void SetAttribute(std::string_view key, std::string_view value,
                  wire::KeyValue& out) {
  out.set_key(std::string(key));
  out.mutable_value()->set_string_value(std::string(value));
}

void AddSpans(const TraceRecord& record, wire::ScopeSpans& out) {
  SpanMaker(record, out).Make();
}

}  // namespace sluice::otlp
