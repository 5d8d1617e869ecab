#include "common/otlp/exporter.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "common/base/catch_exceptions.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/concurrency/bounded_queue.h"
#include "common/concurrency/named_thread.h"
#include "common/otlp/sampler.h"
#include "common/otlp/spans.h"
#include "common/rpc/grpc_log.h"
#include "opentelemetry/traces.grpc.pb.h"

namespace sluice::otlp {
namespace {

// A call has at least so many spans, unless none come for `delay`.
constexpr int kBatchSpans = 512;
constexpr int kAttempts = 3;
constexpr Duration kFirstPause = std::chrono::milliseconds(500);

StatusOr<std::string> ReadFile(const char* variable, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text.exceptions(std::ios::badbit);  // else too little memory cuts it
  if (in) text << in.rdbuf();
  if (!in || text.str().empty()) {
    return NotFound(variable, " ", path, " cannot be read");
  }
  return std::move(text).str();
}

StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const OtlpOptions& options) {
  if (!options.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  SLUICE_ASSIGN_OR_RETURN(
      ssl.pem_root_certs,
      ReadFile("OTEL_EXPORTER_OTLP_CERTIFICATE", options.authority));
  SLUICE_ASSIGN_OR_RETURN(
      ssl.pem_cert_chain,
      ReadFile("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", options.certificate));
  SLUICE_ASSIGN_OR_RETURN(
      ssl.pem_private_key,
      ReadFile("OTEL_EXPORTER_OTLP_CLIENT_KEY", options.key));
  return grpc::SslCredentials(ssl);
}

// A collector is no peer of the cluster: none of the pings that stages take.
StatusOr<std::shared_ptr<grpc::Channel>> ConnectTo(const OtlpOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(auto credentials, CredentialsOf(options));
  rpc::TakeGrpcLog();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 10'000);
  arguments.SetUserAgentPrefix("sluice-gateway");
  return grpc::CreateCustomChannel(options.target, credentials, arguments);
}

// Whether the same call may succeed later, by OTLP's specification.
bool IsPassing(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

// Traces on their way: one call.
struct Batch {
  wire::ExportTraceServiceRequest request;
  uint64_t traces = 0;
};

}  // namespace

class Exporter::Impl {
 public:
  Impl(OtlpOptions options, std::string version,
       const std::shared_ptr<grpc::Channel>& channel)
      : options_(std::move(options)),
        version_(std::move(version)),
        stub_(wire::TraceService::NewStub(channel)),
        queue_(options_.max_queued),
        thread_("otlp-0", [this] { Run(); }) {}
  ~Impl() { Stop(); }

  bool Wants(std::string_view traceparent) {
    if (!IsSampled(options_.sampler, traceparent)) return false;
    if (!is_full()) return true;
    ++stats_.queue_full;
    return false;
  }

  void Take(std::shared_ptr<const trace::TraceRecord> record, size_t bytes) {
    if (queued_bytes_.fetch_add(bytes) + bytes <= options_.max_queued_bytes &&
        queue_.Push(Waiting{std::move(record), bytes}).ok()) {
      return;
    }
    queued_bytes_ -= bytes;
    ++stats_.queue_full;
  }

  void Stop() {
    queue_.Close();
    {
      MutexLock lock(mutex_);
      if (!stop_at_) stop_at_ = Clock::now() + options_.flush;
      news_.NotifyAll();
      while (!ended_ && news_.WaitUntil(mutex_, *stop_at_)) {
      }
      if (call_ != nullptr) call_->TryCancel();
    }
    thread_.Join();
  }

  const ExportStats& stats() const { return stats_; }

 private:
  struct Waiting {
    std::shared_ptr<const trace::TraceRecord> record;
    size_t bytes = 0;
  };

  bool is_full() const {
    return queue_.size() >= queue_.capacity() ||
           queued_bytes_ >= options_.max_queued_bytes;
  }

  void Run() {
    while (auto first = queue_.Pop()) {
      const Status done =
          CatchExceptions("otlp", [&] { SendWith(*std::move(first)); });
      if (!done.ok()) LogError("traces are not sent: ", Message(done));
    }
    MutexLock lock(mutex_);
    ended_ = true;
    news_.NotifyAll();
  }

  // Sends a trace, and those that come soon behind it.
  void SendWith(Waiting first) {
    Batch batch;
    wire::ResourceSpans& spans = *batch.request.add_resource_spans();
    for (const auto& [key, value] : options_.resource) {
      SetAttribute(key, value, *spans.mutable_resource()->add_attributes());
    }
    SetAttribute("service.version", version_,
                 *spans.mutable_resource()->add_attributes());
    wire::ScopeSpans& scope = *spans.add_scope_spans();
    scope.mutable_scope()->set_name("sluice.gateway");
    scope.mutable_scope()->set_version(version_);
    const TimePoint until = Clock::now() + options_.delay;
    std::optional<Waiting> next = std::move(first);
    while (next) {
      AddSpans(*next->record, scope);
      queued_bytes_ -= next->bytes;
      ++batch.traces;
      if (scope.spans_size() >= kBatchSpans) break;
      next = queue_.Pop(until);
    }
    Send(batch);
  }

  void Send(const Batch& batch) {
    Duration pause = kFirstPause;
    for (int attempt = 1; attempt <= kAttempts; ++attempt, pause *= 2) {
      const grpc::Status status = Call(batch.request);
      if (status.ok()) {
        stats_.sent += batch.traces;
        if (std::exchange(failing_, false)) {
          LogInfo("traces: ", options_.target, " takes them again");
        }
        return;
      }
      if (!std::exchange(failing_, true)) {
        LogWarning("traces: ", options_.target, " does not take them (",
                   static_cast<int>(status.error_code()),
                   "); they are dropped, and counted in the metrics");
      }
      if (!IsPassing(status.error_code())) break;
      if (attempt < kAttempts && !Pause(pause)) break;
    }
    stats_.failed += batch.traces;
  }

  // Waits; false at once if there is no time left for another attempt.
  bool Pause(Duration pause) {
    const TimePoint until = Clock::now() + pause;
    MutexLock lock(mutex_);
    while (Clock::now() < until) {
      if (stop_at_ && *stop_at_ <= until) return false;
      news_.WaitUntil(mutex_, until);
    }
    return true;
  }

  grpc::Status Call(const wire::ExportTraceServiceRequest& request) {
    grpc::ClientContext context;
    for (const auto& [name, value] : options_.headers) {
      context.AddMetadata(name, value);
    }
    if (options_.gzip) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    Duration time = options_.timeout;
    {
      MutexLock lock(mutex_);
      if (stop_at_) time = std::min(time, *stop_at_ - Clock::now());
      if (time <= Duration::zero()) return grpc::Status::CANCELLED;
      call_ = &context;
    }
    context.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(time));
    wire::ExportTraceServiceResponse response;
    const grpc::Status status = stub_->Export(&context, request, &response);
    {
      MutexLock lock(mutex_);
      call_ = nullptr;
    }
    const int64_t rejected = response.partial_success().rejected_spans();
    if (rejected > 0) stats_.rejected_spans += static_cast<uint64_t>(rejected);
    return status;
  }

  const OtlpOptions options_;
  const std::string version_;
  ExportStats stats_;
  const std::unique_ptr<wire::TraceService::Stub> stub_;
  BoundedQueue<Waiting> queue_;
  std::atomic<size_t> queued_bytes_{0};
  bool failing_ = false;  // of the thread: the latest call failed

  Mutex mutex_;
  CondVar news_;
  std::optional<TimePoint> stop_at_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  NamedThread thread_;  // last: it uses the rest
};

Exporter::Exporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exporter::~Exporter() = default;

StatusOr<std::unique_ptr<Exporter>> Exporter::Start(OtlpOptions options,
                                                    std::string version) {
  SLUICE_ASSIGN_OR_RETURN(const auto channel, ConnectTo(options));
  LogInfo("traces go to ", options.target, options.tls ? ", by TLS" : "");
  return std::unique_ptr<Exporter>(new Exporter(
      std::make_unique<Impl>(std::move(options), std::move(version), channel)));
}

bool Exporter::Wants(std::string_view traceparent) {
  return impl_->Wants(traceparent);
}
void Exporter::Take(std::shared_ptr<const trace::TraceRecord> record,
                    size_t bytes) {
  impl_->Take(std::move(record), bytes);
}
void Exporter::Stop() { impl_->Stop(); }
const ExportStats& Exporter::stats() const { return impl_->stats(); }

}  // namespace sluice::otlp
