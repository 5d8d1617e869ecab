#ifndef SLUICE_SERVICES_GATEWAY_PEER_GATEWAYS_H_
#define SLUICE_SERVICES_GATEWAY_PEER_GATEWAYS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/exchange.h"
#include "common/http/forwarder.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "services/gateway/readiness.h"

namespace sluice::gateway {

class Doors;

// The other gateways of the same stages.
struct PeerOptions {
  std::vector<std::string> addresses;  // HOST:PORT of their HTTP; none: alone
  std::string
      ca;  // PEM file: who signs their certificates; empty: the system's
  Duration lease = std::chrono::seconds(3);  // PipelineOptions'
  std::string certificate;  // of this gateway's HTTP; empty: no TLS to them
  Duration patience = std::chrono::seconds(30);  // of a request, for a leader
};

// Where the requests of clients go, with gateways of which one leads: to this
// one's own handlers while it leads, else to the peer that does. Any thread.
class PeerGateways {
 public:
  struct Parts {
    // This gateway's own.
    std::function<GatewayRole()> role;
    std::function<bool()> draining;
    std::function<void(std::shared_ptr<http::Exchange>)> serve;
  };

  // INVALID_ARGUMENT for an address or a file that cannot be used.
  static StatusOr<std::unique_ptr<PeerGateways>> Start(
      const PeerOptions& options, Parts parts);

  // As Doors::Screen, but keeps the client's API key for the peer.
  std::optional<http::HttpResponse> Screen(const Doors& doors,
                                           http::HttpRequest& request) const;
  // Answers a request here or by a peer. On the exchange's loop.
  void Route(std::shared_ptr<http::Exchange> exchange) const;
  // Returns the readiness of a gateway whose `own` pipeline is as told: a
  // standby is ready if it knows the leader.
  GatewayReadiness Judge(GatewayReadiness own) const;

  const http::ForwarderStats& stats() const { return forwarder_->stats(); }
  // Ends the requests that peers answer, or would. Idempotent.
  void Stop() { forwarder_->Stop(); }

 private:
  // The handlers answer, until another gateway leads.
  void ServeHere(std::shared_ptr<http::Exchange> exchange) const;
  explicit PeerGateways(Parts parts) : parts_(std::move(parts)) {}
  bool leads() const { return parts_.role() == GatewayRole::kLeader; }

  const Parts parts_;
  std::unique_ptr<http::Forwarder> forwarder_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_PEER_GATEWAYS_H_
