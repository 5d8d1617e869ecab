#include "tests/simulation/rogue.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/random_bytes.h"
#include "common/core/epochs.h"
#include "common/pipeline/gateway/handshake.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Heard {
  Mutex mutex;
  CondVar changed;
  std::optional<v1::Welcome> welcome ABSL_GUARDED_BY(mutex);
  bool assigned ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

std::shared_ptr<ControlLink> Hold(const std::string& address, uint64_t count,
                                  const std::string& secret,
                                  const std::shared_ptr<Heard>& heard) {
  auto channel = rpc::Connect(address, {});
  if (!channel.ok()) return nullptr;
  v1::Hello hello;
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_gateway_id("rogue");
  hello.set_secret(secret);
  hello.set_lease_ms(1000);
  hello.set_count(count);
  hello.set_term(kMaxTerm);
  ControlLink::Events events;
  events.on_message = [heard](v1::ControlResponse& response) {
    MutexLock lock(heard->mutex);
    if (response.has_welcome()) heard->welcome = response.welcome();
    if (response.has_assigned()) heard->assigned = true;
    heard->changed.NotifyAll();
  };
  events.on_end = [heard](const Status&) {
    MutexLock lock(heard->mutex);
    heard->ended = true;
    heard->changed.NotifyAll();
  };
  return OpenControl(*channel, hello, std::move(events));
}

// An Assign of all that the stage said of itself, in `epoch`.
v1::ControlRequest AssignOf(const std::string& address,
                            const v1::Welcome& welcome, Epoch epoch) {
  v1::ControlRequest request;
  v1::Assign* assign = request.mutable_assign();
  wire::SetEpoch(epoch, assign);
  assign->set_secret(RandomBytes(wire::kSecretBytes));
  *assign->mutable_limits() = welcome.limits();
  const v1::StageIdentity& identity = welcome.identity();
  assign->set_first_layer(identity.first_layer());
  assign->set_last_layer(identity.last_layer());
  if (identity.last_layer() < identity.num_layers()) {
    assign->set_next_address(address);
    assign->set_next_model_digest(identity.model_digest());
    assign->set_next_first_layer(identity.last_layer());
  }
  return request;
}

}  // namespace

void TakeHoldAndLeave(const std::string& address, Random& random) {
  const std::string secret = RandomBytes(wire::kSecretBytes);
  const auto times = static_cast<uint64_t>(1 + random.Below(30));
  for (uint64_t count = 1; count <= times; ++count) {
    const auto heard = std::make_shared<Heard>();
    const auto link = Hold(address, count, secret, heard);
    if (link == nullptr) return;
    const TimePoint end = Clock::now() + seconds(2);
    std::optional<v1::Welcome> welcome;
    {
      MutexLock lock(heard->mutex);
      while (!heard->welcome && !heard->ended &&
             heard->changed.WaitUntil(heard->mutex, end)) {
      }
      welcome = heard->welcome;
    }
    if (welcome) {
      const uint64_t term = HighestOf(*welcome).term();
      for (const Epoch epoch : {Epoch(kMaxTerm, UINT64_MAX),
                                Epoch(RaisedTerm(term, kTermsPerHold), 1),
                                Epoch(term, UINT64_MAX)}) {
        link->Send(AssignOf(address, *welcome, epoch));
      }
      MutexLock lock(heard->mutex);
      while (!heard->assigned && !heard->ended &&
             heard->changed.WaitUntil(heard->mutex, end)) {
      }
    }
    if (random.Below(4) == 0) World::Get().Sleep(random.Up(seconds(3)));
    link->Cancel(Cancelled("has what it wants"));
    if (!welcome) return;
    World::Get().Sleep(random.Up(milliseconds(20)));
  }
}

}  // namespace sluice::simulation
