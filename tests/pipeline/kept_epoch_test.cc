// Whose keys and values a stage says that it has.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/rpc/transport.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice::testing {
namespace {

// A run of a gateway that assigns epochs to one stage.
class GatewayRun {
 public:
  GatewayRun(const FakeStage& stage, char secret) {
    auto channel = rpc::Connect(stage.address(), {});
    EXPECT_TRUE(channel.ok()) << channel.status();
    v1::Hello hello;
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_gateway_id("test");
    hello.set_secret(std::string(wire::kSecretBytes, secret));
    ControlLink::Events events;
    events.on_message = [log = log_](v1::ControlResponse& response) {
      MutexLock lock(log->mutex);
      log->messages.push_back(std::move(response));
    };
    events.on_end = [](const Status&) {};
    link_ = OpenControl(*channel, hello, std::move(events));
    EXPECT_TRUE(Next().has_welcome());
  }
  ~GatewayRun() { link_->Cancel(Cancelled("the run is over")); }

  // The stage's answer to an Assign, or what came in its place.
  v1::Assigned Assign(uint64_t epoch, uint64_t keep) {
    const StageInfo info = FakeInfo(0, 1);
    v1::ControlRequest request;
    v1::Assign* assign = request.mutable_assign();
    assign->set_epoch(epoch);
    assign->set_keep_epoch(keep);
    assign->set_secret(std::string(wire::kSecretBytes, 'e'));
    assign->set_last_layer(info.last_layer);
    *assign->mutable_limits() = wire::ToProto(LimitsOf(info, 4));
    link_->Send(request);
    return Next().assigned();
  }
  bool Keeps(uint64_t epoch, uint64_t keep) {
    const v1::Assigned assigned = Assign(epoch, keep);
    EXPECT_EQ(assigned.status_code(), 0) << assigned.status_message();
    return assigned.kept();
  }

 private:
  struct Log {
    Mutex mutex;
    std::deque<v1::ControlResponse> messages;
  };
  v1::ControlResponse Next() {
    v1::ControlResponse next;
    EXPECT_TRUE(Eventually([&] {
      MutexLock lock(log_->mutex);
      if (log_->messages.empty()) return false;
      next = std::move(log_->messages.front());
      log_->messages.pop_front();
      return true;
    }));
    return next;
  }
  const std::shared_ptr<Log> log_ = std::make_shared<Log>();
  std::shared_ptr<ControlLink> link_;
};

TEST(KeptEpochTest, OnlyTheLatestEpochOfTheSameRunIsKept) {
  FakeStageOptions options;
  options.info = FakeInfo(0, 1);
  FakeStage stage(options);
  {
    GatewayRun run(stage, 'a');
    EXPECT_FALSE(run.Keeps(100, 0));
    EXPECT_TRUE(run.Keeps(101, 100));
    EXPECT_FALSE(run.Keeps(102, 100)) << "not the latest";
    EXPECT_TRUE(run.Keeps(103, 102));
    EXPECT_FALSE(run.Keeps(104, 0));
    EXPECT_FALSE(run.Assign(103, 104).kept()) << "a refused epoch";
    EXPECT_TRUE(run.Keeps(105, 104));
    GatewayRun again(stage, 'a');  // the same run's next stream
    EXPECT_TRUE(again.Keeps(106, 105));
  }
  ASSERT_TRUE(Eventually([&] { return !stage.session().held(); }));
  {
    GatewayRun other(stage, 'b');
    EXPECT_FALSE(other.Keeps(107, 106)) << "another run";
  }
  ASSERT_TRUE(Eventually([&] { return !stage.session().held(); }));
  GatewayRun first(stage, 'a');
  EXPECT_FALSE(first.Keeps(108, 106)) << "another run came between";
  EXPECT_TRUE(first.Keeps(109, 108));
}

}  // namespace
}  // namespace sluice::testing
