#ifndef SLUICE_TESTS_EXPERTS_MUTE_HOST_H_
#define SLUICE_TESTS_EXPERTS_MUTE_HOST_H_

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "common/model/hosted_experts.h"
#include "common/rpc/hello.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/transport.h"
#include "common/wire/expert.h"
#include "sluice/v1/expert.grpc.pb.h"

namespace sluice::testing {

// A host that accepts clients, answers pings until the first batch (or none),
// and no batch.
class MuteHost {
 public:
  MuteHost(const HostedExpertsInfo& info, bool pongs)
      : service_(WelcomeOf(info), pongs) {
    auto server = rpc::Listen("127.0.0.1:0", {}, &service_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~MuteHost() {
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server->Wait();
  }
  const std::string& address() const { return server_.address; }
  int batches() const { return service_.batches; }

 private:
  using Frame = grpc::ByteBuffer;
  struct Service
      : v1::Expert::WithRawCallbackMethod_Batches<v1::Expert::Service> {
    Service(wire::ExpertWelcome said, bool answers_pings)
        : welcome(std::move(said)), pongs(answers_pings) {}
    grpc::ServerBidiReactor<Frame, Frame>* Batches(
        grpc::CallbackServerContext* context) override {
      auto stream = std::make_shared<Stream>(this);
      stream->Open(rpc::HelloOf(*context));
      return stream.get();
    }
    const wire::ExpertWelcome welcome;
    const bool pongs;
    std::atomic<int> batches{0};
  };
  class Stream : public rpc::ServerStream<Frame, Frame> {
   public:
    explicit Stream(Service* service)
        : ServerStream(rpc::ServerStreamOptions{"Batches"}),
          service_(*service) {}

   private:
    Status OnHello(const std::string&) override {
      v1::ExpertAnswer answer;
      *answer.mutable_welcome() = wire::ToProto(service_.welcome);
      Send(rpc::JoinPayload(answer, 0, Buffer()));
      return OkStatus();
    }
    void OnMessage(Frame& frame) override {
      const auto split =
          rpc::SplitPayload(frame, wire::kExpertPayloadField, frame.Length());
      ASSERT_TRUE(split.ok()) << split.status();
      const auto head = rpc::ParseHead<v1::ExpertFrame>(split->head);
      ASSERT_TRUE(head.ok()) << head.status();
      v1::ExpertAnswer answer;
      if (head->has_batch()) ++service_.batches;
      if (!head->has_ping() || !service_.pongs || service_.batches > 0) return;
      answer.mutable_pong()->set_sequence(head->ping().sequence());
      Send(rpc::JoinPayload(answer, 0, Buffer()));
    }
    Service& service_;
  };
  static wire::ExpertWelcome WelcomeOf(const HostedExpertsInfo& info) {
    wire::ExpertWelcome welcome;
    welcome.model_name = info.model_name;
    welcome.model = {info.model_digest,      info.numerics,
                     ToString(info.weights), info.num_layers,
                     info.hidden_size,       info.num_experts,
                     info.experts_per_token};
    welcome.weights_dtype = info.weights_dtype;
    for (const LayerRanges& layer : info.held) {
      auto& held = welcome.held.emplace_back();
      held.layer = layer.layer;
      for (const ExpertRange& range : layer.ranges) {
        held.ranges.push_back({range.begin, range.end});
      }
    }
    welcome.limits = {2048, 64};
    return welcome;
  }

  Service service_;
  rpc::ListeningServer server_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_EXPERTS_MUTE_HOST_H_
