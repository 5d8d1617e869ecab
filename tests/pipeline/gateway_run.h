#ifndef SLUICE_TESTS_PIPELINE_GATEWAY_RUN_H_
#define SLUICE_TESTS_PIPELINE_GATEWAY_RUN_H_

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/pipeline/gateway/handshake.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice::testing {

// A run of a gateway that holds one stage and assigns epochs to it.
class GatewayRun {
 public:
  // `secret`: each run has its own. `lease`: zero, the stage's peer timeout.
  // `term`: Hello.term. `count`: Hello.count.
  GatewayRun(const FakeStage& stage, char secret, Duration lease = {},
             uint64_t term = 0, uint64_t count = 0) {
    auto channel = rpc::Connect(stage.address(), {});
    EXPECT_TRUE(channel.ok()) << channel.status();
    v1::Hello hello;
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_gateway_id("test");
    hello.set_secret(std::string(wire::kSecretBytes, secret));
    hello.set_term(term);
    hello.set_count(count);
    hello.set_lease_ms(static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(lease).count()));
    ControlLink::Events events;
    events.on_message = [log = log_](v1::ControlResponse& response) {
      MutexLock lock(log->mutex);
      log->messages.push_back(std::move(response));
    };
    events.on_end = [log = log_](const Status& status) {
      MutexLock lock(log->mutex);
      log->end = status;
    };
    link_ = OpenControl(*channel, hello, std::move(events));
    const auto welcome = Next();
    if (!welcome.has_value()) return;
    EXPECT_TRUE(welcome->has_welcome());
    highest_ = HighestOf(welcome->welcome());
  }
  ~GatewayRun() { link_->Cancel(Cancelled("the run is over")); }

  // What the Welcome tells; nothing: the stage refused.
  std::optional<Epoch> highest() const { return highest_; }
  // The stage's answer to an Assign.
  v1::Assigned Assign(Epoch epoch, Epoch keep = Epoch(0)) {
    const StageInfo info = FakeInfo(0, 1);
    v1::ControlRequest request;
    v1::Assign* assign = request.mutable_assign();
    wire::SetEpoch(epoch, assign);
    assign->set_keep_term(keep.term());
    assign->set_keep_epoch(keep.count());
    assign->set_secret(std::string(wire::kSecretBytes, 'e'));
    assign->set_last_layer(info.last_layer);
    *assign->mutable_limits() = wire::ToProto(LimitsOf(info, 4));
    link_->Send(request);
    const auto answer = Next();
    EXPECT_TRUE(answer.has_value());
    return answer.value_or(v1::ControlResponse()).assigned();
  }
  void Beat() {
    v1::ControlRequest request;
    request.mutable_heartbeat()->set_sequence(1);
    link_->Send(std::move(request));
    EXPECT_TRUE(Next().has_value());
  }
  // The end of the stream; nothing: it goes on.
  std::optional<Status> end() const {
    MutexLock lock(log_->mutex);
    return log_->end;
  }

 private:
  struct Log {
    Mutex mutex;
    std::deque<v1::ControlResponse> messages ABSL_GUARDED_BY(mutex);
    std::optional<Status> end ABSL_GUARDED_BY(mutex);
  };
  // The next message; nothing: the stream has ended.
  std::optional<v1::ControlResponse> Next() {
    std::optional<v1::ControlResponse> next;
    EXPECT_TRUE(Eventually([&] {
      MutexLock lock(log_->mutex);
      if (log_->messages.empty()) return log_->end.has_value();
      next = std::move(log_->messages.front());
      log_->messages.pop_front();
      return true;
    }));
    return next;
  }
  const std::shared_ptr<Log> log_ = std::make_shared<Log>();
  std::optional<Epoch> highest_;
  std::shared_ptr<ControlLink> link_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_PIPELINE_GATEWAY_RUN_H_
