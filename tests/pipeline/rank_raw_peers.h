// Ends of Follow that say what a test says.
#ifndef SLUICE_TESTS_PIPELINE_RANK_RAW_PEERS_H_
#define SLUICE_TESTS_PIPELINE_RANK_RAW_PEERS_H_

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/hello.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/transport.h"
#include "sluice/v1/ranks.grpc.pb.h"
#include "tests/pipeline/rank_processes.h"
#include "tests/pipeline/rank_values.h"
#include "tests/testing/holds_within.h"

namespace sluice::testing {

inline grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline grpc::ByteBuffer Frame(const google::protobuf::MessageLite& message) {
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

// The order of `load`; its memory is `load`, too, if that is given.
inline grpc::ByteBuffer OrderFrame(std::optional<uint64_t> load = {}) {
  v1::LeadFrame frame;
  SentOrder sent{OrderOf(2), "id", load.value_or(1)};
  sent.order.memory = load.value_or(sent.order.memory);
  *frame.mutable_order() = ToProto(sent);
  return Frame(frame);
}

inline grpc::ByteBuffer FactsFrame() {
  v1::LeadFrame frame;
  *frame.mutable_facts() = ToProto(FactsOf(1, 1, 1), 1);
  return Frame(frame);
}

inline grpc::ByteBuffer DropFrame() {
  v1::LeadFrame frame;
  frame.mutable_drop();
  return Frame(frame);
}

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
  void End(const Status& status) { service_.stream->End(status); }
  // Waits for the follower's messages to be of these kinds.
  void AwaitSaid(const std::vector<std::string>& kinds) const {
    EXPECT_TRUE(HoldsWithin(std::chrono::seconds(10), [&] {
      return service_.said.all().size() >= kinds.size();
    }));
    EXPECT_EQ(service_.said.all(), kinds);
  }
  // Answers the first facts.
  void Meet(FollowerProcess& follower) {
    auto id =
        std::async(std::launch::async, [&] { return follower.Connect(2); });
    AwaitSaid({"facts"});
    Send(FactsFrame());
    EXPECT_EQ(id.get(), "id");
  }

 private:
  using Buffer = grpc::ByteBuffer;
  class Stream : public rpc::ServerStream<Buffer, Buffer> {
   public:
    Stream(const std::vector<Buffer>& frames, Texts* said)
        : ServerStream(rpc::ServerStreamOptions{"Follow"}),
          frames_(frames),
          said_(*said) {}

   private:
    Status OnHello(const std::string&) override {
      for (const Buffer& frame : frames_) Send(frame);
      return OkStatus();
    }
    void OnMessage(Buffer& frame) override {
      const auto split = rpc::SplitPayload(frame, 0, frame.Length());
      ASSERT_TRUE(split.ok());
      const auto said = rpc::ParseHead<v1::FollowerFrame>(split->head);
      ASSERT_TRUE(said.ok());
      said_.Add(said->has_facts()    ? "facts"
                : said->has_failed() ? Cat("failed ", said->failed().load())
                                     : "leaving");
    }
    const std::vector<Buffer>& frames_;
    Texts& said_;
  };
  struct Service : v1::Ranks::WithRawCallbackMethod_Follow<v1::Ranks::Service> {
    explicit Service(std::vector<Buffer> sent) : frames(std::move(sent)) {}
    grpc::ServerBidiReactor<Buffer, Buffer>* Follow(
        grpc::CallbackServerContext* context) override {
      stream = std::make_shared<Stream>(frames, &said);
      stream->Open(rpc::HelloOf(*context));
      return stream.get();
    }
    const std::vector<Buffer> frames;
    Texts said;
    std::shared_ptr<Stream> stream;
  };

  Service service_;
  rpc::ListeningServer server_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_PIPELINE_RANK_RAW_PEERS_H_
