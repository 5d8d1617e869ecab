// What an expert host does when a client or its own loop does nothing, and when
// it is ended in the midst of batches.
#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/hello.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "sluice/v1/expert.grpc.pb.h"
#include "tests/experts/expert_client.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/holds_within.h"
#include "tests/testing/http_exchange.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kLimit = std::chrono::seconds(30);

template <typename Condition>
bool Eventually(const Condition& condition) {
  return HoldsWithin(kLimit, condition);
}

// Whether the gRPC health service calls this one serving.
bool Serves(const std::shared_ptr<grpc::Channel>& channel,
            const std::string& service) {
  // HealthCheckRequest{service} to HealthCheckResponse{status}, by hand.
  const std::string request =
      Cat('\x0a', static_cast<char>(service.size()), service);
  const grpc::Slice slice(request);
  const grpc::ByteBuffer message(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  std::atomic<int> code{-1};
  grpc::GenericStub(channel).UnaryCall(
      &context, "/grpc.health.v1.Health/Check", {}, &message, &response,
      [&](grpc::Status status) { code = status.error_code(); });
  if (!Eventually([&] { return code >= 0; }) || code != 0) return false;
  grpc::Slice answer;
  return response.DumpToSingleSlice(&answer).ok() && answer.size() == 2 &&
         answer.begin()[1] == 1;
}

// One row that asks expert 1 of layer 1.
wire::ExpertBatch OneRow(uint64_t id) {
  wire::ExpertBatch batch;
  batch.batch_id = id;
  batch.layer = 1;
  batch.nodes = {{0, 4}};
  batch.counts = {1};
  batch.expert_ids = {1};
  batch.weights = {1};
  batch.x = HiddenStates(1, kHidden);
  std::fill_n(batch.x.values(), kHidden, 0.5f);
  return batch;
}

class ExpertBoundsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = GoldenModel("glm4_moe-air");
    options_.experts.model_path = path;
    options_.experts.threads = 1;
    options_.choice.experts = "1:0-7";
    options_.metrics_listen = "127.0.0.1:0";
  }
  void Start() {
    server_ = StartExperts(options_);
    ASSERT_NE(server_, nullptr);
  }
  void ExpectAnswers(ExpertClient& client, uint64_t id) {
    const auto result = client.Ask(OneRow(id));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->status.ok()) << result->status;
  }
  std::string Ready() const { return Get(server_->metrics_port(), "/readyz"); }

  expert::ExpertServerOptions options_;
  std::unique_ptr<expert::ExpertServer> server_;
};

TEST_F(ExpertBoundsTest, AHostWhoseLoopIsStuckIsNotReadyUntilItMoves) {
  options_.stalled_after = std::chrono::milliseconds(150);
  options_.debug_batch_delay = std::chrono::milliseconds(1000);
  Start();
  ExpertClient client(server_->address());
  ASSERT_TRUE(client.Hello(*server_->info()).ok());
  EXPECT_THAT(Ready(), StartsWith("HTTP/1.1 200"));
  const auto channel = *rpc::Connect(server_->address(), {});
  EXPECT_TRUE(Serves(channel, "readiness"));
  client.Send(OneRow(1));
  // Its threads answer pings and HTTP all the while.
  ASSERT_TRUE(client.Ping(1).ok());
  std::string ready;
  ASSERT_TRUE(Eventually([&] {
    ready = Ready();
    return ready.rfind("HTTP/1.1 503", 0) == 0;
  }));
  EXPECT_THAT(ready, HasSubstr("\"state\":\"stalled\""));
  // However long one look took, a batch is left for each of the others.
  client.Send(OneRow(2));
  ASSERT_TRUE(client.Ping(2).ok());
  EXPECT_TRUE(Eventually([&] {
    return Get(server_->metrics_port(), "/metrics")
               .find("sluice_expert_state{state=\"stalled\"} 1") !=
           std::string::npos;
  }));
  client.Send(OneRow(3));
  EXPECT_TRUE(Eventually([&] { return !Serves(channel, "readiness"); }));
  // It is loaded, whatever becomes of its batches.
  EXPECT_TRUE(Serves(channel, "startup"));
  for (const uint64_t id : {1, 2, 3}) {
    const auto result = client.Wait(OneRow(id));
    ASSERT_TRUE(result.ok()) << result.status();
  }
  EXPECT_TRUE(Eventually([&] { return Serves(channel, "readiness"); }));
  EXPECT_TRUE(
      Eventually([&] { return Ready().rfind("HTTP/1.1 200", 0) == 0; }));
  // Nothing to do is no standstill.
  const TimePoint idle = Clock::now() + 3 * options_.stalled_after;
  while (Clock::now() < idle) {
    ASSERT_THAT(Ready(), StartsWith("HTTP/1.1 200"));
  }
}

// Sends pings and reads no pong before it is told to.
class NeverReads {
 public:
  NeverReads(const std::string& address, const HostedExpertsInfo& info)
      : channel_(grpc::CreateCustomChannel(
            address, grpc::InsecureChannelCredentials(), SmallWindow())),
        stub_(v1::Expert::NewStub(channel_)),
        stream_(Begin(wire::ToProto(HelloFor(info)).SerializeAsString())) {
    v1::ExpertAnswer welcome;
    EXPECT_TRUE(stream_->Read(&welcome) && welcome.has_welcome());
    writer_ = std::thread([this] {
      v1::ExpertFrame ping;
      ping.mutable_ping()->set_sequence(1);
      // So that windows are full soon when the host reads no more.
      ping.set_hidden_states(std::string(4096, 'x'));
      while (stream_->Write(ping)) ++pings_;
    });
  }
  ~NeverReads() {
    context_.TryCancel();
    if (writer_.joinable()) writer_.join();
  }
  // Waits until the host takes no more of it.
  bool WaitRefused() {
    const TimePoint end = Clock::now() + kLimit;
    while (Clock::now() < end) {
      const uint64_t before = pings_;
      // Nobody tells: a busy look would take the writer's core.
      MutexLock lock(mutex_);
      const TimePoint until = Clock::now() + std::chrono::seconds(1);
      while (never_.WaitUntil(mutex_, until)) {
      }
      if (before > 0 && pings_ == before) return true;
    }
    return false;
  }
  // Reads on; how many answers there were, and how the stream ended.
  std::pair<uint64_t, Status> Finish() {
    uint64_t answers = 0;
    v1::ExpertAnswer answer;
    while (stream_->Read(&answer)) ++answers;
    writer_.join();
    return {answers, rpc::FromGrpc(stream_->Finish())};
  }
  uint64_t pings() const { return pings_; }

 private:
  // Otherwise it grows to megabytes while all goes well.
  static grpc::ChannelArguments SmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return arguments;
  }

  using Stream = grpc::ClientReaderWriter<v1::ExpertFrame, v1::ExpertAnswer>;
  std::unique_ptr<Stream> Begin(const std::string& hello) {
    rpc::SetHello(hello, &context_);
    return stub_->Batches(&context_);
  }

  grpc::ClientContext context_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Expert::Stub> stub_;
  const std::unique_ptr<Stream> stream_;
  std::atomic<uint64_t> pings_{0};
  Mutex mutex_;
  CondVar never_;
  std::thread writer_;
};

TEST_F(ExpertBoundsTest, AnAskerThatNeverReadsIsCutOffAndOthersAreServed) {
  Start();
  ExpertClient other(server_->address());
  ASSERT_TRUE(other.Hello(*server_->info()).ok());
  NeverReads greedy(server_->address(), *server_->info());
  ASSERT_TRUE(greedy.WaitRefused()) << greedy.pings();
  ExpectAnswers(other, 1);
  const auto [answers, end] = greedy.Finish();
  EXPECT_EQ(end.code(), StatusCode::kResourceExhausted) << end;
  EXPECT_THAT(Message(end), HasSubstr("the client reads no answers"));
  // What waited was let go: it is not sent after all.
  EXPECT_LT(answers, greedy.pings());
  ExpectAnswers(other, 2);
}

TEST_F(ExpertBoundsTest, StoppingInTheMidstOfBatchesEndsEveryStream) {
  options_.debug_batch_delay = std::chrono::milliseconds(1);
  options_.metrics_listen.clear();
  for (int round = 0; round < 8; ++round) {
    Start();
    std::vector<std::unique_ptr<ExpertClient>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<ExpertClient>(server_->address()));
      ASSERT_TRUE(clients.back()->Hello(*server_->info()).ok());
    }
    for (uint64_t id = 1; id <= 16; ++id) {
      for (auto& client : clients) client->Send(OneRow(id));
    }
    // Some rounds are ended among the first batches, some among the last.
    for (int i = 0; i <= round; ++i) {
      const auto result =
          clients[0]->Wait(OneRow(static_cast<uint64_t>(i + 1)));
      ASSERT_TRUE(result.ok() && result->status.ok());
    }
    server_->Stop();
    server_.reset();
    for (auto& client : clients) {
      EXPECT_EQ(client->WaitEnd().code(), StatusCode::kUnavailable);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
