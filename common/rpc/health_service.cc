#include "common/rpc/health_service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/byte_buffer.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/server_stream.h"

namespace sluice::rpc {
namespace {

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
// A request comes with the call, in one piece. A busy machine is slow to read.
constexpr auto kRequestTime = std::chrono::seconds(2);
constexpr size_t kMaxName = 127;  // bytes; their count is one byte then

// HealthCheckRequest's one field, `string service = 1`.
StatusOr<std::string> NameOf(const grpc::ByteBuffer& request) {
  const size_t size = request.Length();
  if (size == 0) return std::string();
  std::vector<grpc::Slice> slices;
  if (size > kMaxName + 2 || !request.Dump(&slices).ok()) {
    return InvalidArgument("a health check has ", size, " bytes, limit ",
                           kMaxName + 2);
  }
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  if (size < 2 || bytes[0] != '\x0a' ||
      static_cast<size_t>(bytes[1]) != size - 2) {
    return InvalidArgument("a health check is no HealthCheckRequest");
  }
  return bytes.substr(2);
}

// HealthCheckResponse's one field, `ServingStatus status = 1`.
grpc::ByteBuffer Answer(bool serving) {
  const grpc::Slice slice(serving ? "\x08\x01" : "\x08\x02", 2);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

// The names that serve. Any thread.
class HealthService::State {
 public:
  void Set(const std::string& name, bool serving) {
    MutexLock lock(mutex_);
    serving_[name] = serving;
  }
  void SetAll(bool serving) {
    MutexLock lock(mutex_);
    for (auto& [name, serves] : serving_) serves = serving;
  }
  std::optional<bool> Get(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto found = serving_.find(name);
    if (found == serving_.end()) return std::nullopt;
    return found->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_){{"", true}};
};

// One check. On the wire every call is a stream in both directions; declared as
// one, this class begins to read, and not gRPC.
class HealthService::Stream
    : public ServerStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Stream(std::shared_ptr<const State> state)
      : ServerStream(ServerStreamOptions{"Check"}), state_(std::move(state)) {}

 private:
  Status OnHello(const std::string&) override {
    alarm_.Set(
        std::chrono::system_clock::now() + kRequestTime,
        [weak = weak_from_this()](bool due) {
          const auto self = due ? weak.lock() : nullptr;
          if (self == nullptr) return;
          self->Abort(DeadlineExceeded("a health check must be there ",
                                       "within ", Seconds(kRequestTime), " s"));
        });
    return OkStatus();
  }
  void OnMessage(grpc::ByteBuffer& request) override {
    alarm_.Cancel();
    const auto name = NameOf(request);
    const std::optional<bool> serving =
        name.ok() ? state_->Get(*name) : std::nullopt;
    if (!name.ok()) {
      End(name.status());
    } else if (!serving.has_value()) {
      End(NotFound("no health is known of '", *name, "'"));
    } else {
      Send(Answer(*serving));
      End(OkStatus());
    }
  }

  const std::shared_ptr<const State> state_;
  grpc::Alarm alarm_;
};

// The interface for the server's owner.
class HealthService::Setter : public grpc::HealthCheckServiceInterface {
 public:
  explicit Setter(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void SetServingStatus(const std::string& name, bool serving) override {
    state_->Set(name, serving);
  }
  void SetServingStatus(bool serving) override { state_->SetAll(serving); }
  void Shutdown() override { state_->SetAll(false); }

 private:
  const std::shared_ptr<State> state_;
};

HealthService::HealthService() : state_(std::make_shared<State>()) {
  using Handler =
      grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
  AddMethod(new grpc::internal::RpcServiceMethod(
      kCheck, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(0, new Handler([this](grpc::CallbackServerContext*) {
                          auto stream = std::make_shared<Stream>(state_);
                          stream->Open("");
                          return stream.get();
                        }));
}

HealthService::~HealthService() = default;

std::unique_ptr<grpc::HealthCheckServiceInterface> HealthService::Interface()
    const {
  return std::make_unique<Setter>(state_);
}

}  // namespace sluice::rpc
