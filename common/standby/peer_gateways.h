#ifndef SLUICE_COMMON_STANDBY_PEER_GATEWAYS_H_
#define SLUICE_COMMON_STANDBY_PEER_GATEWAYS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/gateway_role.h"
#include "common/http/exchange.h"
#include "common/http/message.h"
#include "common/standby/forwarder.h"
#include "common/standby/peer_options.h"
#include "common/standby/peer_secret.h"
#include "common/standby/standing.h"

namespace sluice::standby {

// Where the requests of clients go, with gateways of which one leads: to this
// one's own handlers while it leads, else to the peer that does. Any thread.
class PeerGateways {
 public:
  struct Parts {
    // This gateway's own.
    std::function<GatewayRole()> role;
    std::function<bool()> draining;
    // The time without a pipeline.
    std::function<Duration()> down;
    // Access for clients: see HttpServerOptions::screen. Any thread.
    std::function<std::optional<http::HttpResponse>(http::HttpRequest&)> screen;
    bool asks_for_keys = false;  // `screen` asks for API keys
    // Answers a request here. On the exchange's loop.
    std::function<void(std::shared_ptr<http::Exchange>)> serve;
    // See ForwarderOptions.
    std::function<bool(const http::HttpRequest&)> is_plain;
    // Sends this gateway's streams to a peer that asks for them (StreamFeed).
    // On the exchange's loop.
    std::function<void(std::shared_ptr<http::Exchange>)> feed;
    // Takes a stream of the leader's. On the thread "forward".
    std::function<void(const std::string& record)> on_stream;
  };

  // INVALID_ARGUMENT for an address or a file that cannot be used.
  static StatusOr<std::unique_ptr<PeerGateways>> Start(
      const PeerOptions& options, Parts parts);

  // As Parts::screen, but keeps a client's good API key for the peer, and knows
  // the client of a request that a peer passes on.
  std::optional<http::HttpResponse> Screen(http::HttpRequest& request) const;
  // Answers a request here or by a peer. On the exchange's loop.
  void Route(std::shared_ptr<http::Exchange> exchange) const;
  // Returns where a gateway stands whose `own` pipeline is as told: a standby
  // is ready if it knows the leader.
  Standing Judge(const OwnPipeline& own) const;

  const ForwarderStats& stats() const { return forwarder_->stats(); }
  // Returns what the peers say, for this gateway's pipeline. Beside one with
  // another order of stages, which is before its own, it takes none.
  PeerLead lead() const {
    const PeerLead lead = lead_;
    return yields_ && lead == PeerLead::kNone ? PeerLead::kUnknown : lead;
  }
  // Ends the requests that peers answer, or would. Idempotent.
  void Stop() { forwarder_->Stop(); }

 private:
  // The handlers answer, until another gateway leads.
  void ServeHere(std::shared_ptr<http::Exchange> exchange) const;
  PeerGateways(const PeerOptions& options, Parts parts)
      : lease_(options.lease),
        stages_(options.stages),
        parts_(std::move(parts)) {}
  // Returns why a peer is none of this gateway's; OK: it is one.
  Status Fits(const http::HttpHeaders& answer);
  // The peer that leads has answered so on /readyz; nothing: none leads.
  void OnRound(const std::optional<std::string>& leader);
  bool leads() const { return parts_.role() == GatewayRole::kLeader; }

  // A leader without a pipeline keeps the stages for so many leases.
  static constexpr int kRecoveringLeases = 3;

  const Duration lease_;
  const std::vector<std::string> stages_;
  const Parts parts_;
  std::optional<PeerSecret> secret_;
  // As RankOf, of the peer of the latest Fits.
  uint64_t Rank(const std::string& body);
  // The thread "forward" has these: rounds without a leader, and without a peer
  // to yield to; whether the peer of the latest answer has another order.
  int rounds_without_ = 0;
  int rounds_first_ = 0;
  bool is_misfit_ = false;
  std::atomic<PeerLead> lead_{PeerLead::kUnknown};
  std::atomic<bool> leader_misfits_{false};  // it has another order
  // A peer has another order, which is before this gateway's: of two that start
  // at once one goes on.
  std::atomic<bool> yields_{false};
  std::unique_ptr<Forwarder> forwarder_;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_PEER_GATEWAYS_H_
