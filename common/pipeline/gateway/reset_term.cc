#include "common/pipeline/gateway/reset_term.h"

#include <memory>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/rpc/transport.h"

namespace sluice {
namespace {

using ResetLink = Link<v1::ResetTermRequest, v1::ResetTermResponse>;

struct Answer {
  Mutex mutex;
  CondVar ended;
  std::optional<uint64_t> term ABSL_GUARDED_BY(mutex);
  std::optional<Status> end ABSL_GUARDED_BY(mutex);
};

}  // namespace

StatusOr<uint64_t> ResetTerm(const std::string& address,
                             const rpc::TransportOptions& transport,
                             Duration limit) {
  SLUICE_ASSIGN_OR_RETURN(auto channel,
                          rpc::Connect(address, transport, rpc::kStageRole));
  const auto answer = std::make_shared<Answer>();
  ResetLink::Events events;
  events.on_message = [answer](v1::ResetTermResponse& response) {
    MutexLock lock(answer->mutex);
    answer->term = response.term();
  };
  events.on_end = [answer](const Status& status) {
    MutexLock lock(answer->mutex);
    answer->end = status;
    answer->ended.NotifyAll();
  };
  const auto link = std::make_shared<ResetLink>(
      std::move(channel), "/sluice.v1.Stage/ResetTerm", std::move(events));
  v1::ResetTermRequest request;
  request.set_protocol_version(wire::kProtocolVersion);
  link->Open(request.SerializeAsString());
  link->HalfClose();
  const TimePoint deadline = Clock::now() + limit;
  {
    MutexLock lock(answer->mutex);
    while (!answer->end && answer->ended.WaitUntil(answer->mutex, deadline)) {
    }
  }
  // Does nothing to a stream that has ended.
  link->Cancel(DeadlineExceeded("no answer within ", Seconds(limit), " s"));
  MutexLock lock(answer->mutex);
  while (!answer->end) answer->ended.Wait(answer->mutex);
  if (!answer->end->ok()) return *answer->end;
  if (answer->term) return *answer->term;
  return Unavailable("the stage ended the call without an answer");
}

}  // namespace sluice
