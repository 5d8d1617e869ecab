#ifndef SLUICE_TESTS_RPC_ECHO_SERVICE_H_
#define SLUICE_TESTS_RPC_ECHO_SERVICE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/hello.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/transport.h"
#include "sluice/v1/stage.grpc.pb.h"
#include "tests/testing/holds_within.h"

// A server whose streams do what a test says, and a client that records.
namespace sluice::rpc::testing {

class EchoService;

// Steps: keeps the frames until the test answers them; a hello counts as one.
class EchoStream : public ServerStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  EchoStream(ServerStreamOptions options, EchoService* service)
      : ServerStream(std::move(options)), service_(*service) {}

 private:
  Status OnHello(const std::string& hello) override;
  void OnMessage(grpc::ByteBuffer& message) override;
  void OnEnd(const Status& status) override;
  EchoService& service_;
};

class EchoService
    : public v1::Stage::WithRawCallbackMethod_Steps<v1::Stage::Service> {
 public:
  explicit EchoService(RpcObserver* observer = nullptr) : observer_(observer) {}

  // The newest stream; null before there was one.
  std::shared_ptr<EchoStream> stream() const {
    MutexLock lock(mutex_);
    return stream_;
  }
  size_t received() const {
    MutexLock lock(mutex_);
    return received_;
  }
  std::vector<Status> ends() const {
    MutexLock lock(mutex_);
    return ends_;
  }
  // With `echo` every frame is answered at once.
  void SetEcho(bool echo) {
    MutexLock lock(mutex_);
    echo_ = echo;
  }
  void Drop() {
    MutexLock lock(mutex_);
    stream_ = nullptr;
  }

 private:
  friend class EchoStream;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Steps(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<EchoStream>(
        ServerStreamOptions{"Steps", observer_, 64}, this);
    {
      MutexLock lock(mutex_);
      stream_ = stream;
    }
    stream->Open(HelloOf(*context));
    return stream.get();
  }

  RpcObserver* const observer_;
  mutable Mutex mutex_;
  std::shared_ptr<EchoStream> stream_;
  size_t received_ = 0;
  bool echo_ = true;
  std::vector<Status> ends_;
};

inline void EchoStream::OnMessage(grpc::ByteBuffer& message) {
  bool echo = false;
  {
    MutexLock lock(service_.mutex_);
    ++service_.received_;
    echo = service_.echo_;
  }
  if (echo) Send(message);
}

inline Status EchoStream::OnHello(const std::string& hello) {
  if (hello == "refuse me") return FailedPrecondition("as you like");
  if (hello.empty()) return OkStatus();
  const grpc::Slice slice(hello);
  grpc::ByteBuffer message(&slice, 1);
  OnMessage(message);
  return OkStatus();
}

inline void EchoStream::OnEnd(const Status& status) {
  MutexLock lock(service_.mutex_);
  service_.ends_.push_back(status);
}

inline constexpr char kSteps[] = "/sluice.v1.Stage/Steps";

class RecordingStream
    : public ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RecordingStream(std::shared_ptr<grpc::Channel> channel,
                           const char* method = kSteps)
      : ClientStream(std::move(channel), method, 64) {}
  std::vector<std::string> messages() const {
    MutexLock lock(mutex_);
    return messages_;
  }
  std::vector<Status> ends() const {
    MutexLock lock(mutex_);
    return ends_;
  }

 private:
  void OnMessage(grpc::ByteBuffer& message) override;
  void OnEnd(const Status& status) override {
    MutexLock lock(mutex_);
    ends_.push_back(status);
  }
  mutable Mutex mutex_;
  std::vector<std::string> messages_;
  std::vector<Status> ends_;
};

inline grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

inline void RecordingStream::OnMessage(grpc::ByteBuffer& message) {
  MutexLock lock(mutex_);
  messages_.push_back(Text(message));
}

// Waits until `condition` holds; false after ten seconds.
template <typename Condition>
bool Eventually(Condition condition) {
  return sluice::testing::HoldsWithin(std::chrono::seconds(10), condition);
}

}  // namespace sluice::rpc::testing

#endif  // SLUICE_TESTS_RPC_ECHO_SERVICE_H_
