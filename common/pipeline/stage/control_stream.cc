#include "common/pipeline/stage/control_stream.h"

#include <utility>

#include "common/rpc/hello.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

// Bytes. The largest request has the secrets and an address.
constexpr size_t kMaxRequest = size_t{1} << 20;

}  // namespace

Status ControlStream::OnHello(const std::string& bytes) {
  auto hello = rpc::ParseHello<v1::Hello>(bytes, "Control");
  auto self = std::static_pointer_cast<ControlStream>(shared_from_this());
  auto welcome =
      hello.ok() ? session_->OnHello(*hello, std::move(self)) : hello.status();
  if (!welcome.ok()) {
    session_->OnRefused(peer_, welcome.status(),
                        hello.ok() && hello->lease_ms() > 0);
    return welcome.status();
  }
  v1::ControlResponse response;
  *response.mutable_welcome() = *std::move(welcome);
  Answer(std::move(response));
  return OkStatus();
}

void ControlStream::OnMessage(v1::ControlRequest& request) {
  if (const size_t size = request.ByteSizeLong(); size > kMaxRequest) {
    End(InvalidArgument("a Control request has ", size, " bytes, limit ",
                        kMaxRequest));
    return;
  }
  switch (request.kind_case()) {
    case v1::ControlRequest::kAssign:
      session_->OnAssign(request.assign(), this);
      return;
    case v1::ControlRequest::kHeartbeat: {
      v1::ControlResponse response;
      *response.mutable_heartbeat() =
          session_->OnHeartbeat(request.heartbeat(), this);
      Answer(std::move(response));
      return;
    }
    case v1::ControlRequest::kDrain:
      session_->OnDrain(this);
      return;
    default:
      End(InvalidArgument("Control request of unknown kind ",
                          static_cast<int>(request.kind_case())));
  }
}

void ControlStream::OnEnd(const Status& status) {
  session_->OnControlEnd(this);
}

void ControlStream::SendAssigned(Epoch epoch, const Status& status,
                                 const KvOutcome& kv) {
  v1::ControlResponse response;
  v1::Assigned* assigned = response.mutable_assigned();
  wire::SetEpoch(epoch, assigned);
  assigned->set_status_code(static_cast<int>(status.code()));
  assigned->set_status_message(Message(status));
  assigned->set_kept(kv.kept);
  if (kv.copied.has_value()) {
    assigned->set_copied(kv.copied->status.ok());
    assigned->set_not_copied(Message(kv.copied->status));
    assigned->set_copied_bytes(kv.copied->bytes);
  }
  Answer(std::move(response));
}

void ControlStream::SendFailure(Epoch epoch, v1::FailureSide side,
                                const Status& status) {
  v1::ControlResponse response;
  v1::Failure* failure = response.mutable_failure();
  wire::SetEpoch(epoch, failure);
  failure->set_side(side);
  failure->set_status_code(static_cast<int>(status.code()));
  failure->set_status_message(Message(status));
  Answer(std::move(response));
}

void ControlStream::SendDrained() {
  v1::ControlResponse response;
  response.mutable_drained();
  Answer(std::move(response));
}

void ControlStream::SendDraining(Duration remaining) {
  v1::ControlResponse response;
  response.mutable_draining()->set_remaining_ms(
      std::chrono::duration_cast<std::chrono::milliseconds>(remaining).count());
  Answer(std::move(response));
}

void ControlStream::Answer(v1::ControlResponse response) {
  // Full: the gateway has not read for many heartbeats.
  if (!Send(std::move(response))) {
    End(ResourceExhausted("the gateway does not read its Control stream"));
  }
}

}  // namespace sluice
