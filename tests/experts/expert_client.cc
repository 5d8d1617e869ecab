#include "tests/experts/expert_client.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/transport.h"

namespace sluice::testing {
namespace {

constexpr auto kLimit = std::chrono::seconds(30);

Buffer CopyOf(const Buffer& from) {
  Buffer to(from.size());
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return to;
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  rpc::TransportOptions options;
  options.max_message_bytes = int64_t{256} << 20;
  auto channel = rpc::Connect(address, options);
  EXPECT_TRUE(channel.ok()) << channel.status();
  return *channel;
}

}  // namespace

class ExpertClient::Stream
    : public rpc::ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using ClientStream::ClientStream;

  struct Answered {
    v1::ExpertResult result;
    Buffer sums;
  };

  // Waits until `ready` holds or the stream has ended, and says which.
  template <typename Ready>
  Status WaitFor(const Ready& ready) {
    const TimePoint deadline = Clock::now() + kLimit;
    MutexLock lock(mutex_);
    while (!ready()) {
      if (end_.has_value()) {
        return end_->ok() ? Unavailable("the stream has ended") : *end_;
      }
      if (!changed_.WaitUntil(mutex_, deadline)) {
        return DeadlineExceeded("no answer");
      }
    }
    return OkStatus();
  }

  StatusOr<v1::ExpertWelcome> Welcome() {
    SLUICE_RETURN_IF_ERROR(WaitFor([this] { return welcome_.has_value(); }));
    MutexLock lock(mutex_);
    return *welcome_;
  }
  StatusOr<Answered> Result(uint64_t batch_id) {
    SLUICE_RETURN_IF_ERROR(
        WaitFor([&] { return results_.count(batch_id) > 0; }));
    MutexLock lock(mutex_);
    Answered answered = std::move(results_.at(batch_id));
    results_.erase(batch_id);
    return answered;
  }
  StatusOr<v1::ExpertPong> Pong(uint64_t sequence) {
    SLUICE_RETURN_IF_ERROR(WaitFor([&] { return pongs_.count(sequence) > 0; }));
    MutexLock lock(mutex_);
    return pongs_.at(sequence);
  }
  Status End() {
    const TimePoint deadline = Clock::now() + kLimit;
    MutexLock lock(mutex_);
    while (!end_.has_value()) {
      if (!changed_.WaitUntil(mutex_, deadline)) {
        return DeadlineExceeded("the stream has not ended");
      }
    }
    return *end_;
  }

 private:
  void OnMessage(grpc::ByteBuffer& message) override {
    auto split =
        rpc::SplitPayload(message, wire::kExpertPayloadField, message.Length());
    ASSERT_TRUE(split.ok()) << split.status();
    auto head = rpc::ParseHead<v1::ExpertAnswer>(split->head);
    ASSERT_TRUE(head.ok()) << head.status();
    {
      MutexLock lock(mutex_);
      if (head->has_welcome()) welcome_ = head->welcome();
      if (head->has_pong()) pongs_[head->pong().sequence()] = head->pong();
      if (head->has_result()) {
        const uint64_t id = head->result().batch_id();
        EXPECT_EQ(results_.count(id), 0u) << "batch " << id << " twice";
        results_[id] = {head->result(), std::move(split->payload)};
      }
    }
    changed_.NotifyAll();
  }
  void OnEnd(const Status& status) override {
    {
      MutexLock lock(mutex_);
      end_ = status;
    }
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::optional<v1::ExpertWelcome> welcome_;
  std::map<uint64_t, Answered> results_;
  std::map<uint64_t, v1::ExpertPong> pongs_;
  std::optional<Status> end_;
};

ExpertClient::ExpertClient(const std::string& address)
    : stream_(std::make_shared<Stream>(ChannelTo(address),
                                       "/sluice.v1.Expert/Batches", 4096)) {}

ExpertClient::~ExpertClient() {
  if (!opened_) return;
  stream_->Cancel(Cancelled("the test is over"));
  (void)stream_->End();
}

ExpertClient::Stream& ExpertClient::Opened(const std::string& hello) {
  if (!std::exchange(opened_, true)) stream_->Open(hello);
  return *stream_;
}

StatusOr<wire::ExpertWelcome> ExpertClient::Hello(
    const v1::ExpertHello& hello) {
  EXPECT_FALSE(opened_) << "a stream has one hello";
  SLUICE_ASSIGN_OR_RETURN(const v1::ExpertWelcome welcome,
                          Opened(hello.SerializeAsString()).Welcome());
  return wire::FromProto(welcome);
}

StatusOr<wire::ExpertWelcome> ExpertClient::Hello(
    const HostedExpertsInfo& info) {
  return Hello(wire::ToProto(HelloFor(info)));
}

void ExpertClient::Send(const wire::ExpertBatch& batch) {
  SendFrame(wire::ExpertFrameHead(batch), batch.x.data);
}

StatusOr<wire::ExpertResult> ExpertClient::Wait(
    const wire::ExpertBatch& batch) {
  SLUICE_ASSIGN_OR_RETURN(Stream::Answered answered,
                          stream_->Result(batch.batch_id));
  return wire::FromProto(answered.result, std::move(answered.sums),
                         wire::SentOf(batch));
}

StatusOr<v1::ExpertPong> ExpertClient::Ping(uint64_t sequence) {
  v1::ExpertFrame frame;
  frame.mutable_ping()->set_sequence(sequence);
  frame.mutable_ping()->set_sender_clock_ns(MonotonicNanos());
  SendFrame(frame, Buffer());
  return stream_->Pong(sequence);
}

StatusOr<v1::ExpertPong> ExpertClient::WaitUnaskedPong() {
  return stream_->Pong(0);
}

void ExpertClient::SendFrame(const v1::ExpertFrame& head,
                             const Buffer& payload) {
  Opened().Send(
      rpc::JoinPayload(head, wire::kExpertPayloadField, CopyOf(payload)));
}

void ExpertClient::SendBytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  Opened().Send(grpc::ByteBuffer(&slice, 1));
}

void ExpertClient::HalfClose() { Opened().HalfClose(); }
Status ExpertClient::WaitEnd() { return Opened().End(); }

wire::ExpertHello HelloFor(const HostedExpertsInfo& info) {
  wire::ExpertHello hello;
  hello.client = "test";
  hello.model = {info.model_digest,      info.numerics,
                 ToString(info.weights), info.num_layers,
                 info.hidden_size,       info.num_experts,
                 info.experts_per_token};
  return hello;
}

std::unique_ptr<expert::ExpertServer> StartExperts(const std::string& model,
                                                   const std::string& experts) {
  expert::ExpertServerOptions options;
  options.experts.model_path = model;
  options.experts.threads = 1;
  options.choice.experts = experts;
  return StartExperts(std::move(options));
}

std::unique_ptr<expert::ExpertServer> StartExperts(
    expert::ExpertServerOptions options) {
  auto server = expert::ExpertServer::Start(std::move(options));
  if (!server.ok()) {
    ADD_FAILURE() << server.status();
    return nullptr;
  }
  const Status loaded = (*server)->WaitLoaded(Clock::now() + kLimit);
  EXPECT_TRUE(loaded.ok()) << loaded;
  return *std::move(server);
}

}  // namespace sluice::testing
