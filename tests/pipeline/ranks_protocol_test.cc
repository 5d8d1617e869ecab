// What the ends of Follow do about peers that break the protocol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "common/rpc/client_stream.h"
#include "common/rpc/hello.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/server_stream.h"
#include "sluice/v1/ranks.grpc.pb.h"
#include "tests/pipeline/rank_processes.h"

namespace sluice {
namespace {

using testing::BoundsOf;
using testing::FactsOf;
using testing::FollowerProcess;
using ::testing::HasSubstr;
using testing::HelloOf;
using testing::HoldsWithin;
using ::testing::IsEmpty;
using testing::LeadProcess;
using testing::OrderOf;
using testing::Soon;
using testing::StepOf;
using testing::StepRecord;

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer Frame(const google::protobuf::MessageLite& message) {
  return Bytes(message.SerializeAsString());
}

// A follower of its own, which says what a test says, and may cease to read.
class RawFollower
    : public rpc::ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RawFollower(std::shared_ptr<grpc::Channel> channel)
      : ClientStream(std::move(channel), "/sluice.v1.Ranks/Follow", 16) {}

  static std::shared_ptr<RawFollower> Open(const std::string& address,
                                           const std::string& hello) {
    const auto channel = rpc::Connect(address, {});
    EXPECT_TRUE(channel.ok());
    auto follower = std::make_shared<RawFollower>(*channel);
    follower->ClientStream::Open(hello);
    return follower;
  }
  static std::shared_ptr<RawFollower> Open(LeadProcess& lead, int32_t first,
                                           int32_t count) {
    return Open(lead.address(),
                ToProto(HelloOf(first, count)).SerializeAsString());
  }

  Status End() const {
    EXPECT_TRUE(HoldsWithin(std::chrono::seconds(10), [&] {
      MutexLock lock(mutex_);
      return end_.has_value();
    }));
    MutexLock lock(mutex_);
    return end_.value_or(OkStatus());
  }
  // The first message behind the order is not taken before Resume.
  void Stall() {
    MutexLock lock(mutex_);
    stalled_ = true;
  }
  void Resume() {
    MutexLock lock(mutex_);
    stalled_ = false;
    changed_.NotifyAll();
  }
  int read() const {
    MutexLock lock(mutex_);
    return read_;
  }

 private:
  void OnMessage(grpc::ByteBuffer& frame) override {
    MutexLock lock(mutex_);
    while (stalled_ && read_ > 0) changed_.Wait(mutex_);
    ++read_;
  }
  void OnEnd(const Status& status) override {
    MutexLock lock(mutex_);
    end_ = status;
  }

  mutable Mutex mutex_;
  CondVar changed_;
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
  int read_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Status> end_ ABSL_GUARDED_BY(mutex_);
};

// The lead --------------------------------------------------------------------

TEST(RanksProtocolTest, AStrangersHelloIsRefused) {
  LeadProcess lead(1, 2);
  for (const std::string& hello : {std::string(), std::string("\xff\xff")}) {
    const Status status = RawFollower::Open(lead.address(), hello)->End();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status), HasSubstr("Follow begins with a hello"));
  }
}

// A lead of rank 0 that has given a raw follower its order.
struct RawLoad {
  RawLoad() : lead(1, 2), follower(RawFollower::Open(lead, 1, 1)) {
    auto connected = lead.Connect();
    EXPECT_TRUE(connected.get().ok());
    EXPECT_TRUE(HoldsWithin(std::chrono::seconds(10),
                            [&] { return follower->read() == 1; }));
  }
  // Sends `frame`, which the lead must refuse; the end's message.
  std::string Refused(grpc::ByteBuffer frame, StatusCode code) {
    EXPECT_TRUE(follower->Send(std::move(frame)));
    const Status status = follower->End();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(lead.lost.Await("rank 1 ("), HasSubstr(Message(status)));
    return Message(status);
  }

  LeadProcess lead;
  std::shared_ptr<RawFollower> follower;
};

TEST(RanksProtocolTest, AFollowersFramesAreChecked) {
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  EXPECT_THAT(RawLoad().Refused(Bytes("\x08"), kInvalid),
              HasSubstr("frame ends within a number"));
  EXPECT_THAT(RawLoad().Refused(Frame(v1::FollowerFrame()), kInvalid),
              HasSubstr("no known kind"));
  v1::FollowerFrame frame;
  frame.mutable_failed()->set_status_message(
      std::string(kMaxFollowerFrameBytes, 'x'));
  EXPECT_THAT(RawLoad().Refused(Frame(frame), kInvalid),
              HasSubstr("more than 16384 bytes"));
  frame.mutable_failed()->set_status_message("none");
  EXPECT_THAT(RawLoad().Refused(Frame(frame), kInvalid),
              HasSubstr("status_code of a failure must not be 0"));
  *frame.mutable_facts() = ToProto(FactsOf(-1, 1, 1), 1);
  EXPECT_THAT(RawLoad().Refused(Frame(frame), kInvalid),
              HasSubstr("max_context must be between 0"));
}

TEST(RanksProtocolTest, FactsWithoutEndEndTheStream) {
  RawLoad load;
  v1::FollowerFrame frame;
  *frame.mutable_facts() = ToProto(FactsOf(1, 1, 1), 1);
  for (size_t i = 0; i < LeadRanks::kMaxEarlyFacts; ++i) {
    EXPECT_TRUE(load.follower->Send(Frame(frame)));
  }
  EXPECT_THAT(load.Refused(Frame(frame), StatusCode::kResourceExhausted),
              HasSubstr("facts come with 4 unanswered, limit 4"));
}

TEST(RanksProtocolTest, AFollowerThatReadsNothingIsLost) {
  RawLoad load;
  load.follower->Stall();
  const RankStepBounds bounds = BoundsOf(1 << 16);
  const auto step = StepOf(bounds, 1);  // 1.3 MB
  for (int i = 0; i < 200 && load.lead.lost.all().empty(); ++i) {
    load.lead.link().Begin(step->inputs, step->hidden);
  }
  EXPECT_THAT(load.lead.lost.last(), HasSubstr("64 messages wait"));
  load.lead.link().Begin(step->inputs, step->hidden);
  EXPECT_EQ(load.lead.lost.all().size(), 1u);
  load.follower->Resume();
  EXPECT_EQ(load.follower->End().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(load.lead.lost.all().size(), 1u) << "told once";
}

TEST(RanksProtocolTest, AFollowerThatEndsItsStreamWithALoadIsLost) {
  RawLoad load;
  load.follower->HalfClose();
  EXPECT_TRUE(load.follower->End().ok());
  EXPECT_THAT(load.lead.lost.Await("rank 1 ("),
              HasSubstr(") was lost: they ended the stream"));
}

// The follower ----------------------------------------------------------------

// A lead that sends what a test says.
class RawLead {
 public:
  explicit RawLead(std::vector<grpc::ByteBuffer> frames)
      : service_(std::move(frames)) {
    auto server = rpc::Listen("127.0.0.1:0", {}, &service_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~RawLead() {
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server->Wait();
  }
  const std::string& address() const { return server_.address; }
  // To the one follower, which has had an answer.
  void Send(grpc::ByteBuffer frame) {
    EXPECT_TRUE(service_.stream->Send(std::move(frame)));
  }
  bool AwaitMessage() const {
    return HoldsWithin(std::chrono::seconds(10),
                       [&] { return service_.stream->messages > 0; });
  }

 private:
  using Buffer = grpc::ByteBuffer;
  class Stream : public rpc::ServerStream<Buffer, Buffer> {
   public:
    explicit Stream(const std::vector<Buffer>& frames)
        : ServerStream(rpc::ServerStreamOptions{"Follow"}), frames_(frames) {}
    std::atomic<int> messages{0};

   private:
    Status OnHello(const std::string&) override {
      for (const Buffer& frame : frames_) Send(frame);
      return OkStatus();
    }
    void OnMessage(Buffer&) override { ++messages; }
    const std::vector<Buffer>& frames_;
  };
  struct Service : v1::Ranks::WithRawCallbackMethod_Follow<v1::Ranks::Service> {
    explicit Service(std::vector<Buffer> said) : frames(std::move(said)) {}
    grpc::ServerBidiReactor<Buffer, Buffer>* Follow(
        grpc::CallbackServerContext* context) override {
      stream = std::make_shared<Stream>(frames);
      stream->Open(rpc::HelloOf(*context));
      return stream.get();
    }
    const std::vector<Buffer> frames;
    std::shared_ptr<Stream> stream;
  };

  Service service_;
  rpc::ListeningServer server_;
};

grpc::ByteBuffer OrderFrame() {
  v1::LeadFrame frame;
  *frame.mutable_order() = ToProto(SentOrder{OrderOf(2), "id", 1});
  return Frame(frame);
}

grpc::ByteBuffer FactsFrame() {
  v1::LeadFrame frame;
  *frame.mutable_facts() = ToProto(FactsOf(1, 1, 1), 1);
  return Frame(frame);
}

grpc::ByteBuffer DropFrame() {
  v1::LeadFrame frame;
  frame.mutable_drop();
  return Frame(frame);
}

grpc::ByteBuffer StepFrameOf(const RankStepBounds& bounds) {
  const auto step = StepOf(bounds, 1);
  return StepFrame(step->inputs, step->hidden);
}

TEST(RanksProtocolTest, ALeadsFramesAreChecked) {
  v1::LeadFrame bad_order;
  SentOrder sent{OrderOf(2), "id", 1};
  sent.order.last_layer = sent.order.first_layer;
  *bad_order.mutable_order() = ToProto(sent);
  const RankStepBounds bounds = BoundsOf(0);
  const struct {
    std::vector<grpc::ByteBuffer> frames;
    const char* message;
  } cases[] = {
      {{Bytes("\x08")}, "frame ends within a number"},
      {{Frame(v1::LeadFrame())}, "a frame of the lead has no known kind"},
      {{Frame(bad_order)}, "last_layer must be between 5"},
      {{OrderFrame(), OrderFrame()}, "an order before it dropped load 1"},
      {{FactsFrame()}, "sent facts without a load"},
      {{StepFrameOf(bounds)}, "sent a step without a load"},
      {{DropFrame()}, "sent a drop without a load"},
      {{OrderFrame(), DropFrame(), DropFrame()}, "sent a drop without a load"},
      {{OrderFrame(), StepFrameOf(bounds)}, "sent a step without a load"},
  };
  for (const auto& one : cases) {
    RawLead lead(one.frames);
    FollowerProcess follower(lead.address(), HelloOf(1, 1));
    const Status status = follower.End();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.message;
    EXPECT_THAT(Message(status), HasSubstr(one.message));
    EXPECT_EQ(follower.link().WaitOrder(Soon()).status(), status);
  }
}

TEST(RanksProtocolTest, FactsThatWereNotAskedForEndTheStream) {
  RawLead lead({OrderFrame()});
  FollowerProcess follower(lead.address(), HelloOf(1, 1));
  follower.Connect(2);
  auto said = follower.Agree(FactsOf(1, 1, 1));
  ASSERT_TRUE(lead.AwaitMessage());
  lead.Send(FactsFrame());
  EXPECT_TRUE(said.get().ok());
  EXPECT_FALSE(follower.ended());
  lead.Send(FactsFrame());
  const Status status = follower.End();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "the lead sent facts without being asked");
}

TEST(RanksProtocolTest, StepsBehindTheDropEndTheStream) {
  const RankStepBounds bounds = BoundsOf(0);
  RawLead lead({OrderFrame()});
  FollowerProcess follower(lead.address(), HelloOf(1, 1));
  follower.Connect(2);
  StepRecord record(bounds);
  follower.link().Follow(&record);
  lead.Send(StepFrameOf(bounds));
  lead.Send(DropFrame());
  EXPECT_TRUE(follower.link().WaitDropped(Soon()).ok());
  EXPECT_EQ(record.size(), 1u);
  lead.Send(StepFrameOf(bounds));
  EXPECT_THAT(Message(follower.End()), HasSubstr("a step without a load"));
  EXPECT_EQ(record.size(), 1u);
}

TEST(RanksProtocolTest, AnOrderBeforeTheDropEndsTheStream) {
  RawLead lead({OrderFrame()});
  FollowerProcess follower(lead.address(), HelloOf(1, 1));
  follower.Connect(2);
  lead.Send(OrderFrame());
  EXPECT_EQ(Message(follower.End()),
            "the lead sent an order before it dropped load 1");
}

TEST(RanksProtocolTest, AFailuresTextIsCut) {
  LeadProcess lead(1, 2);
  FollowerProcess follower(lead, 1, 1);
  auto connected = lead.Connect();
  ASSERT_TRUE(connected.get().ok());
  follower.Connect(2);
  follower.link().SendFailed(Internal(std::string(100'000, 'x')));
  const Status status = lead.link().Agree(FactsOf(1, 1, 1)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(std::string(4096, 'x')));
}

TEST(RanksProtocolTest, ASilentFollowerGoesWithoutACallback) {
  LeadProcess lead(1, 2);
  {
    FollowerProcess follower(lead, 1, 1);
    follower.Kill();
    EXPECT_FALSE(follower.ended());
  }
  EXPECT_THAT(lead.lost.all(), IsEmpty());
}

TEST(RanksProtocolTest, ALeadThatIsNotThereIsUnavailable) {
  FollowerProcess follower("127.0.0.1:1", HelloOf(1, 1));
  EXPECT_EQ(follower.End().code(), StatusCode::kUnavailable);
  EXPECT_EQ(
      LeadConnection::Open("10.0.0.1:7", {}, HelloOf(1, 1), {}).status().code(),
      StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
