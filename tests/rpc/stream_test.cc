#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>

#include "common/base/clock.h"
#include "common/rpc/credited_sender.h"
#include "tests/rpc/echo_service.h"

namespace sluice::rpc {
namespace {

using testing::Bytes;
using testing::EchoService;
using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::RecordingStream;

class CountingObserver : public RpcObserver {
 public:
  void OnHandled(const std::string& method, StatusCode code,
                 Duration duration) override {
    MutexLock lock(mutex_);
    handled_.push_back(Cat(method, " ", static_cast<int>(code)));
    EXPECT_GE(duration, Duration::zero());
  }
  std::vector<std::string> handled() const {
    MutexLock lock(mutex_);
    return handled_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> handled_;
};

TEST(RpcStatusTest, AnAddressAtWhichNoProcessListensRefusesConnections) {
  EchoService service;
  auto server = Listen("127.0.0.1:0", TransportOptions(), &service);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string gone = server->address;
  server->server->Shutdown();
  server->server.reset();
  for (const std::string& address :
       {gone, std::string("unix:/tmp/no-process-listens-here")}) {
    auto channel = Connect(address, TransportOptions());
    ASSERT_TRUE(channel.ok()) << channel.status();
    auto stream = std::make_shared<RecordingStream>(*channel);
    stream->Open();
    ASSERT_TRUE(Eventually([&] { return !stream->ends().empty(); }));
    EXPECT_TRUE(IsConnectionRefused(stream->ends()[0])) << stream->ends()[0];
  }
  EXPECT_FALSE(IsConnectionRefused(Unavailable("Socket closed")));
  EXPECT_FALSE(IsConnectionRefused(
      Internal("failed to connect to all addresses: Connection refused")));
}

class StreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = Listen("127.0.0.1:0", TransportOptions(), &service_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override { StopServer(); }
  void StopServer() {
    service_.Drop();
    if (server_.server == nullptr) return;
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server = nullptr;
  }
  std::shared_ptr<grpc::Channel> Channel() {
    auto channel = Connect(server_.address, TransportOptions());
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *channel;
  }
  std::shared_ptr<RecordingStream> Open() {
    auto stream = std::make_shared<RecordingStream>(Channel());
    stream->Open();
    return stream;
  }

  CountingObserver observer_;
  EchoService service_{&observer_};
  ListeningServer server_;
};

TEST_F(StreamTest, MessagesGoBothWaysInOrder) {
  const auto stream = Open();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(stream->Send(Bytes(std::to_string(i))));
  }
  ASSERT_TRUE(Eventually([&] { return stream->messages().size() == 50; }));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(stream->messages()[static_cast<size_t>(i)], std::to_string(i));
  }
  stream->HalfClose();
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_TRUE(stream->ends()[0].ok());
  EXPECT_FALSE(stream->Send(Bytes("late")));
  ASSERT_TRUE(Eventually([&] { return observer_.handled().size() == 1; }));
  EXPECT_THAT(observer_.handled(), ElementsAre("Steps 0"));
}

TEST_F(StreamTest, WhatWaitsInTheQueueGoesWithThePump) {
  const auto stream = Open();
  ASSERT_TRUE(Eventually([&] { return service_.stream() != nullptr; }));
  const auto server = service_.stream();
  EXPECT_TRUE(server->Enqueue(Bytes("1")));
  EXPECT_TRUE(server->Enqueue(Bytes("2")));
  server->Pump();
  ASSERT_TRUE(Eventually([&] { return stream->messages().size() == 2; }));
  EXPECT_THAT(stream->messages(), ElementsAre("1", "2"));
}

// As a stage's acks and results: ordered by one lock, written without it.
TEST_F(StreamTest, ManyThreadsThatEnqueueUnderALockKeepItsOrder) {
  const auto stream = Open();
  ASSERT_TRUE(Eventually([&] { return service_.stream() != nullptr; }));
  const auto server = service_.stream();
  constexpr size_t kMessages = 1000;
  Mutex mutex;
  size_t next = 0;
  const auto send = [&] {
    for (;;) {
      // As many may wait as the stream's queue holds.
      const size_t seen = stream->messages().size();
      {
        MutexLock lock(mutex);
        if (next == kMessages) return;
        if (next - seen > 32) continue;
        EXPECT_TRUE(server->Enqueue(Bytes(std::to_string(next++))));
      }
      server->Pump();
    }
  };
  std::thread other(send);
  send();
  other.join();
  ASSERT_TRUE(
      Eventually([&] { return stream->messages().size() == kMessages; }));
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(stream->messages()[i], std::to_string(i));
  }
}

TEST_F(StreamTest, TheServersEndComesAfterWhatItSent) {
  const auto stream = Open();
  ASSERT_TRUE(Eventually([&] { return service_.stream() != nullptr; }));
  service_.stream()->Send(Bytes("last"));
  service_.stream()->End(FailedPrecondition("first end"));
  service_.stream()->End(Internal("second end"));
  EXPECT_FALSE(service_.stream()->Send(Bytes("after")));
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_THAT(stream->messages(), ElementsAre("last"));
  EXPECT_EQ(stream->ends()[0], FailedPrecondition("first end"));
  ASSERT_TRUE(Eventually([&] { return service_.ends().size() == 1; }));
  EXPECT_EQ(service_.ends()[0], FailedPrecondition("first end"));
}

TEST_F(StreamTest, TheClientsCancelKeepsItsReason) {
  const auto stream = Open();
  ASSERT_TRUE(Eventually([&] { return service_.stream() != nullptr; }));
  stream->Cancel(Unavailable("silent for 3 s"));
  stream->Cancel(Internal("second"));
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_EQ(stream->ends()[0], Unavailable("silent for 3 s"));
  ASSERT_TRUE(Eventually([&] { return service_.ends().size() == 1; }));
}

TEST_F(StreamTest, AServerThatGoesEndsTheStream) {
  const auto stream = Open();
  ASSERT_TRUE(Eventually([&] { return service_.stream() != nullptr; }));
  StopServer();
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_FALSE(stream->ends()[0].ok());
}

TEST_F(StreamTest, NoServerIsUnavailableAtOnce) {
  const std::string address = server_.address;
  const auto channel = Channel();
  StopServer();
  auto stream = std::make_shared<RecordingStream>(channel);
  stream->Open();
  stream->Send(Bytes("x"));
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_EQ(stream->ends()[0].code(), StatusCode::kUnavailable);
}

TEST_F(StreamTest, StreamsAreFreedWhenTheyHaveEnded) {
  auto stream = Open();
  const std::weak_ptr<RecordingStream> watch = stream;
  stream->Cancel(Cancelled("done"));
  stream = nullptr;
  EXPECT_TRUE(Eventually([&] { return watch.expired(); }));
}

// The last reference to the last channel goes on one of gRPC's own threads.
TEST(ChannelTest, TheLastChannelMayGoWithItsStream) {
  for (int round = 0; round < 20; ++round) {
    auto channel = Connect("127.0.0.1:1", TransportOptions());
    ASSERT_TRUE(channel.ok()) << channel.status();
    auto stream = std::make_shared<RecordingStream>(*std::move(channel));
    const std::weak_ptr<RecordingStream> watch = stream;
    stream->Open();
    stream = nullptr;
    ASSERT_TRUE(Eventually([&] { return watch.expired(); }));
  }
}

TEST_F(StreamTest, ManyStreamsCancelledWhileTheySendEndOnce) {
  for (int round = 0; round < 50; ++round) {
    const auto stream = Open();
    std::thread sender([stream] {
      for (int i = 0; i < 100; ++i) stream->Send(Bytes("x"));
    });
    stream->Cancel(Cancelled("now"));
    sender.join();
    ASSERT_TRUE(Eventually([&] { return !stream->ends().empty(); }));
    EXPECT_EQ(stream->ends().size(), 1u);
  }
}

struct SenderLog {
  std::atomic<int> ready{0};
  std::atomic<int> acks{0};
  std::atomic<int> ends{0};
  Mutex mutex;
  Status end;
  std::vector<int64_t> waits;  // of frames, for their credit
  std::vector<int64_t> Waits() {
    MutexLock lock(mutex);
    return waits;
  }
  CreditedSenderEvents Events() {
    return {[this] { ++ready; }, [this](const grpc::ByteBuffer&) { ++acks; },
            [this](const Status& status) {
              MutexLock lock(mutex);
              end = status;
              ++ends;
            },
            [this](int64_t waited_ns) {
              MutexLock lock(mutex);
              waits.push_back(waited_ns);
            }};
  }
};

TEST_F(StreamTest, ACreditedSenderNeverHasMoreFramesUnansweredThanCredits) {
  service_.SetEcho(false);
  SenderLog log;
  const auto sender = CreditedSender::Open(
      {Channel(), testing::kSteps, "hello", 2, 5}, log.Events());
  ASSERT_TRUE(Eventually([&] { return service_.received() == 1; }));
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(sender->SendFrame(Bytes("frame")).ok());
  }
  const int64_t sent_ns = MonotonicNanos();
  const Status full = sender->SendFrame(Bytes("one too many"));
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(full), HasSubstr("limit 5"));
  EXPECT_EQ(service_.received(), 1u);  // nothing before the hello's answer
  EXPECT_TRUE(log.Waits().empty());
  const int64_t acked_ns = MonotonicNanos();
  service_.stream()->Send(Bytes("ack"));
  ASSERT_TRUE(Eventually([&] { return service_.received() == 3; }));
  ASSERT_TRUE(Eventually([&] { return log.ready == 1; }));
  EXPECT_EQ(sender->waiting(), 3u);
  for (size_t received = 4; received <= 6; ++received) {
    service_.stream()->Send(Bytes("ack"));
    ASSERT_TRUE(Eventually([&] { return service_.received() == received; }));
  }
  EXPECT_EQ(sender->waiting(), 0u);
  ASSERT_TRUE(Eventually([&] { return log.Waits().size() == 5; }));
  for (const int64_t wait : log.Waits()) {
    EXPECT_GE(wait, acked_ns - sent_ns) << "before that there was no credit";
  }
  sender->Cancel(Cancelled("done"));
  ASSERT_TRUE(Eventually([&] { return log.ends == 1; }));
  EXPECT_EQ(sender->SendFrame(Bytes("x")).code(), StatusCode::kUnavailable);
}

TEST_F(StreamTest, AnAckOfNothingCutsThePeerOff) {
  SenderLog log;
  const auto sender = CreditedSender::Open(
      {Channel(), testing::kSteps, "hello", 2, 5}, log.Events());
  ASSERT_TRUE(Eventually([&] { return log.ready == 1; }));
  service_.stream()->Send(Bytes("ack"));
  ASSERT_TRUE(Eventually([&] { return log.ends == 1; }));
  MutexLock lock(log.mutex);
  EXPECT_EQ(log.end.code(), StatusCode::kInvalidArgument);
}

TEST_F(StreamTest, OfAPeerThatIsRefusedNothingIsRead) {
  auto stream = std::make_shared<RecordingStream>(Channel());
  stream->Open("refuse me");
  stream->Send(Bytes("x"));
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_EQ(stream->ends()[0], FailedPrecondition("as you like"));
  ASSERT_TRUE(Eventually([&] { return service_.ends().size() == 1; }));
  EXPECT_EQ(service_.received(), 0u);
}

TEST_F(StreamTest, AHelloThatNoServerTakesIsRefusedHere) {
  auto stream = std::make_shared<RecordingStream>(Channel());
  stream->Open(std::string(kMaxHelloBytes + 1, 'x'));
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_EQ(stream->ends()[0].code(), StatusCode::kInvalidArgument);
  const auto most = std::make_shared<RecordingStream>(Channel());
  const std::string hello(kMaxHelloBytes, 'x');
  most->Open(hello);
  ASSERT_TRUE(Eventually([&] { return most->messages().size() == 1; }));
  EXPECT_EQ(most->messages()[0], hello);
}

TEST_F(StreamTest, AMessageBeyondTheLimitEndsTheStream) {
  const auto stream = Open();
  stream->Send(Bytes(std::string(5 << 20, 'x')));
  ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_EQ(stream->ends()[0].code(), StatusCode::kResourceExhausted);
}

TEST_F(StreamTest, APortInUseIsRefusedByName) {
  EchoService other;
  const Status status =
      Listen(server_.address, TransportOptions(), &other).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(server_.address));
}

// HealthCheckRequest{service} to HealthCheckResponse{status}, by hand.
int HealthOf(const std::shared_ptr<grpc::Channel>& channel,
             const std::string& service) {
  grpc::GenericStub stub(channel);
  std::string request;
  if (!service.empty()) {
    request = Cat('\x0a', static_cast<char>(service.size()), service);
  }
  const grpc::ByteBuffer message = Bytes(request);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  std::atomic<int> code{-1};
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &message,
                 &response,
                 [&](grpc::Status status) { code = status.error_code(); });
  if (!Eventually([&] { return code >= 0; }) || code != 0) return -1;
  const std::string text = testing::Text(response);
  return text.size() == 2 ? text[1] : 0;
}

TEST_F(StreamTest, HealthTellsReadinessApartFromLiveness) {
  constexpr int kServing = 1;
  constexpr int kNotServing = 2;
  const auto channel = Channel();
  EXPECT_EQ(HealthOf(channel, ""), kServing);
  EXPECT_EQ(HealthOf(channel, "liveness"), kServing);
  EXPECT_EQ(HealthOf(channel, "startup"), kNotServing);
  EXPECT_EQ(HealthOf(channel, "readiness"), kNotServing);
  SetReady(*server_.server, true);
  EXPECT_EQ(HealthOf(channel, "readiness"), kServing);
  EXPECT_EQ(HealthOf(channel, "no such service"), -1);
}

TEST_F(StreamTest, AHealthCheckThatDoesNotComeWholeIsLetGo) {
  const auto check = [this](const std::string& request) {
    auto stream = std::make_shared<RecordingStream>(
        Channel(), "/grpc.health.v1.Health/Check");
    stream->Open();
    if (!request.empty()) stream->Send(Bytes(request));
    EXPECT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
    EXPECT_TRUE(stream->messages().empty());
    return stream->ends()[0].code();
  };
  EXPECT_EQ(check(""), StatusCode::kDeadlineExceeded);  // none comes
  EXPECT_EQ(check("x"), StatusCode::kInvalidArgument);
  EXPECT_EQ(check("\x0a\x05x"), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(std::string(130, '\x0a')), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::rpc
