#include "common/otlp/exporter.h"

#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/mutex.h"
#include "common/otlp/spans.h"
#include "opentelemetry/traces.grpc.pb.h"
#include "tests/testing/holds_within.h"
#include "tests/trace/trace_records.h"

namespace sluice::otlp {
namespace {

constexpr auto kSoon = std::chrono::seconds(60);

// A collector that keeps what it gets.
class Collector : public wire::TraceService::Service {
 public:
  // Port 0: any.
  explicit Collector(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port),
                             grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() override {
    Answer();
    server_->Shutdown();
  }

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  // Calls get no answer until Answer().
  void Hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void Answer() {
    MutexLock lock(mutex_);
    held_ = false;
    news_.NotifyAll();
  }
  void FailWith(grpc::StatusCode code) {
    MutexLock lock(mutex_);
    code_ = code;
  }
  // Waits for `count` calls.
  bool AwaitCalls(int count) {
    MutexLock lock(mutex_);
    const TimePoint end = Clock::now() + kSoon;
    while (calls_ < count) {
      if (!news_.WaitUntil(mutex_, end)) return false;
    }
    return true;
  }
  int roots() {
    MutexLock lock(mutex_);
    return roots_;
  }
  std::multimap<std::string, std::string> headers() {
    MutexLock lock(mutex_);
    return headers_;
  }
  std::map<std::string, std::string> resource() {
    MutexLock lock(mutex_);
    return resource_;
  }

 private:
  grpc::Status Export(grpc::ServerContext* context,
                      const wire::ExportTraceServiceRequest* request,
                      wire::ExportTraceServiceResponse* response) override {
    MutexLock lock(mutex_);
    ++calls_;
    news_.NotifyAll();
    for (const auto& [name, value] : context->client_metadata()) {
      headers_.emplace(std::string(name.data(), name.size()),
                       std::string(value.data(), value.size()));
    }
    const wire::ResourceSpans& spans = request->resource_spans(0);
    for (const auto& attribute : spans.resource().attributes()) {
      resource_[attribute.key()] = attribute.value().string_value();
    }
    while (held_) {
      news_.WaitUntil(mutex_, Clock::now() + std::chrono::milliseconds(20));
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
    }
    if (code_ != grpc::StatusCode::OK) return {code_, "told to"};
    for (const wire::Span& span : spans.scope_spans(0).spans()) {
      if (span.parent_span_id().empty()) ++roots_;
    }
    response->mutable_partial_success()->set_rejected_spans(2);
    return grpc::Status::OK;
  }

  Mutex mutex_;
  CondVar news_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::StatusCode code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::OK;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int roots_ ABSL_GUARDED_BY(mutex_) = 0;
  std::multimap<std::string, std::string> headers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> resource_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

OtlpOptions OptionsFor(const std::string& target) {
  OtlpOptions options;
  options.target = target;
  options.delay = Duration::zero();
  options.resource = {{"service.name", "tested"}};
  options.headers = {{"api-key", "secret"}};
  return options;
}

std::unique_ptr<Exporter> StartFor(OtlpOptions options) {
  auto exporter = Exporter::Start(std::move(options), "9.9");
  EXPECT_TRUE(exporter.ok()) << exporter.status();
  return *std::move(exporter);
}

std::shared_ptr<const trace::TraceRecord> Record() {
  return std::make_shared<const trace::TraceRecord>(trace::MakeRecord(2, 4));
}

TEST(OtlpExporterTest, TracesReachTheCollectorWithNameAndHeaders) {
  Collector collector;
  const auto exporter = StartFor(OptionsFor(collector.endpoint()));
  EXPECT_TRUE(exporter->Wants(""));
  for (int i = 0; i < 5; ++i) exporter->Take(Record(), 1000);
  exporter->Stop();
  EXPECT_EQ(collector.roots(), 5) << "a stop sends what waits";
  EXPECT_EQ(exporter->stats().sent, 5u);
  EXPECT_GE(exporter->stats().rejected_spans, 2u);
  EXPECT_EQ(exporter->stats().failed + exporter->stats().queue_full, 0u);
  EXPECT_EQ(collector.resource()["service.name"], "tested");
  EXPECT_EQ(collector.resource()["service.version"], "9.9");
  const auto headers = collector.headers();
  ASSERT_NE(headers.find("api-key"), headers.end());
  EXPECT_EQ(headers.find("api-key")->second, "secret");
}

TEST(OtlpExporterTest, ASlowCollectorFillsTheQueueAndNothingWaits) {
  Collector collector;
  collector.Hold();
  OtlpOptions options = OptionsFor(collector.endpoint());
  options.max_queued = 3;
  options.flush = std::chrono::milliseconds(50);
  const auto exporter = StartFor(options);
  exporter->Take(Record(), 1000);
  ASSERT_TRUE(collector.AwaitCalls(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(exporter->Wants(""));
    exporter->Take(Record(), 1000);
  }
  EXPECT_FALSE(exporter->Wants("")) << "it is full: no request is traced";
  exporter->Take(Record(), 1000);
  EXPECT_EQ(exporter->stats().queue_full, 2u);
  exporter->Stop();
  EXPECT_EQ(exporter->stats().sent, 0u);
  EXPECT_EQ(exporter->stats().failed, 4u) << "every trace is accounted for";
}

TEST(OtlpExporterTest, TheQueuesBytesAreBoundedToo) {
  Collector collector;
  collector.Hold();
  OtlpOptions options = OptionsFor(collector.endpoint());
  options.max_queued_bytes = 5000;
  options.flush = std::chrono::milliseconds(50);
  const auto exporter = StartFor(options);
  exporter->Take(Record(), 6000);
  EXPECT_EQ(exporter->stats().queue_full, 1u);
  exporter->Take(Record(), 5000);
  ASSERT_TRUE(collector.AwaitCalls(1)) << "and dropped bytes are given back";
}

TEST(OtlpExporterTest, AStopEndsInTimeWhateverTheCollectorDoes) {
  Collector slow;
  slow.Hold();
  const int closed_port = [] { return Collector().port(); }();
  for (const std::string& target :
       {slow.endpoint(), "127.0.0.1:" + std::to_string(closed_port)}) {
    OtlpOptions options = OptionsFor(target);
    options.flush = std::chrono::milliseconds(200);
    const auto exporter = StartFor(options);
    for (int i = 0; i < 3; ++i) exporter->Take(Record(), 1000);
    const TimePoint begin = Clock::now();
    exporter->Stop();
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5)) << target;
    EXPECT_EQ(exporter->stats().failed, 3u) << target;
  }
}

TEST(OtlpExporterTest, ACollectorThatComesBackGetsLaterTraces) {
  auto collector = std::make_unique<Collector>();
  const int port = collector->port();
  collector.reset();
  const auto exporter =
      StartFor(OptionsFor("127.0.0.1:" + std::to_string(port)));
  exporter->Take(Record(), 1000);
  collector = std::make_unique<Collector>(port);
  EXPECT_TRUE(testing::HoldsWithin(kSoon, [&] {
    if (exporter->stats().failed > 0) exporter->Take(Record(), 1000);
    return exporter->stats().sent > 0;
  }));
}

TEST(OtlpExporterTest, ARefusalIsNotTriedAgainAPassingFailureIs) {
  for (const auto& [code, calls] :
       {std::pair(grpc::StatusCode::INVALID_ARGUMENT, 1),
        std::pair(grpc::StatusCode::UNAVAILABLE, 2)}) {
    Collector collector;
    collector.FailWith(code);
    const auto exporter = StartFor(OptionsFor(collector.endpoint()));
    exporter->Take(Record(), 1000);
    ASSERT_TRUE(collector.AwaitCalls(calls));
    collector.FailWith(grpc::StatusCode::OK);
    exporter->Stop();
    EXPECT_EQ(exporter->stats().failed, calls == 1 ? 1u : 0u);
    EXPECT_EQ(exporter->stats().sent, calls == 1 ? 0u : 1u);
  }
}

TEST(OtlpExporterTest, AMissingCertificateIsSaidAtOnce) {
  OtlpOptions options = OptionsFor("127.0.0.1:1");
  options.tls = true;
  options.authority = "/nowhere/ca.pem";
  const auto exporter = Exporter::Start(options, "1");
  EXPECT_EQ(exporter.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(exporter.status()), ::testing::HasSubstr("CERTIFICATE"));
}

}  // namespace
}  // namespace sluice::otlp
