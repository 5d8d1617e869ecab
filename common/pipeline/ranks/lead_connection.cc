#include "common/pipeline/ranks/lead_connection.h"

#include <chrono>
#include <utility>

#include "common/base/check.h"
#include "common/pipeline/ranks/lead_stream.h"
#include "common/rpc/transport.h"
#include "common/wire/checks.h"

namespace sluice {

StatusOr<std::unique_ptr<LeadConnection>> LeadConnection::Open(
    const std::string& address, rpc::TransportOptions transport,
    const FollowerHello& hello, std::function<void(const Status&)> on_end) {
  // A step's size is not known before its load. This is a bound and takes no
  // memory; a channel has no quota.
  transport.max_message_bytes = wire::kMaxMessageBytes;
  SLUICE_ASSIGN_OR_RETURN(auto channel,
                          rpc::Connect(address, transport, rpc::kStageRole));
  auto stream =
      std::make_shared<LeadStream>(std::move(channel), std::move(on_end));
  stream->Open(ToProto(hello).SerializeAsString());
  return std::make_unique<LeadConnection>(std::move(stream));
}

LeadConnection::LeadConnection(std::shared_ptr<LeadStream> stream)
    : stream_(std::move(stream)) {}

LeadConnection::~LeadConnection() { stream_->Close(); }

StatusOr<RankOrder> LeadConnection::WaitOrder(TimePoint deadline) {
  return stream_->WaitOrder(deadline);
}

StatusOr<std::string> LeadConnection::Connect(const RankOrder& order,
                                              std::string own) {
  return stream_->Connect(order);
}

StatusOr<RankFacts> LeadConnection::Agree(const RankFacts& own) {
  return stream_->Agree(own);
}

void LeadConnection::GiveUp(const Status& why) { stream_->GiveUp(why); }

void LeadConnection::AwaitDrop() {
  while (WaitDropped(Clock::now() + std::chrono::seconds(1)).code() ==
         StatusCode::kDeadlineExceeded) {
  }
}

void LeadConnection::Begin(const StepInputs& step, const HiddenStates& hidden) {
  SLUICE_CHECK(false);
}

void LeadConnection::Drop() { SLUICE_CHECK(false); }

void LeadConnection::Follow(RankStepRunner* runner) { stream_->Follow(runner); }

Status LeadConnection::WaitDropped(TimePoint deadline) {
  return stream_->WaitDropped(deadline);
}

void LeadConnection::Leave() { stream_->Leave(); }

}  // namespace sluice
