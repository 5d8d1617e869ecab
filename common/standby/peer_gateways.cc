#include "common/standby/peer_gateways.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/http/error_answer.h"
#include "common/standby/forwarded_message.h"
#include "common/standby/handover_exchange.h"
#include "common/standby/stage_order.h"
#include "common/standby/stream_feed.h"

namespace sluice::standby {
namespace {

// The paths that tell of this process.
constexpr std::array<std::string_view, 5> kOwnPaths = {
    "/livez", "/readyz", "/health", "/ping", "/metrics"};
constexpr std::array<std::string_view, 2> kKeyHeaders = {"authorization",
                                                         "x-api-key"};

template <typename Names>
bool Has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsKey(const std::pair<std::string, std::string>& header) {
  return Has(kKeyHeaders, header.first);
}

http::HttpHeaders KeysOf(const http::HttpHeaders& headers) {
  http::HttpHeaders keys;
  std::copy_if(headers.begin(), headers.end(), std::back_inserter(keys), IsKey);
  return keys;
}

// Returns what the /readyz of a gateway says of its pipeline.
PeerLead LeadOf(const std::string& body) {
  const StatusOr<Json> parsed = ParseJson(body);
  if (!parsed.ok()) return PeerLead::kNone;
  const auto pipeline = FindText(*parsed, "pipeline");
  if (pipeline == "up") return PeerLead::kUp;
  return pipeline == "lost" ? PeerLead::kNone : PeerLead::kRecovering;
}

// Returns how far a gateway leads, by its /readyz: not at all, 0; else one
// whose pipeline is up is above all others, and a higher term is above a lower
// one. Terms begin anew when all stages do.
uint64_t RankOf(const std::string& body) {
  const StatusOr<Json> parsed = ParseJson(body);
  if (!parsed.ok() ||
      FindText(*parsed, "role") != ToString(GatewayRole::kLeader)) {
    return 0;
  }
  const int64_t term = FindInt(*parsed, "term").value_or(0);
  const uint64_t rank = 1 + static_cast<uint64_t>(std::max<int64_t>(term, 0));
  constexpr uint64_t kUp = uint64_t{1} << 40;
  return std::min(rank, kUp) + (LeadOf(body) == PeerLead::kUp ? kUp : 0);
}

http::HttpResponse AboutToEnd() {
  return http::ErrorResponse(
      {503, "This gateway is about to end: another one answers",
       "service_unavailable_error", std::nullopt, "unavailable"});
}

http::HttpResponse Declined() {
  http::HttpResponse response = http::ErrorResponse(
      {503, "This gateway does not lead, and was asked by another one",
       "service_unavailable_error", std::nullopt, "no_leader"});
  response.headers.emplace_back(kDeclinedHeader, "1");
  return response;
}

}  // namespace

StatusOr<std::unique_ptr<PeerGateways>> PeerGateways::Start(
    const PeerOptions& options, Parts parts) {
  std::unique_ptr<PeerGateways> peers(
      new PeerGateways(options, std::move(parts)));
  ForwarderOptions forwarder;
  if (!options.secret_file.empty()) {
    SLUICE_ASSIGN_OR_RETURN(peers->secret_,
                            PeerSecret::Read(options.secret_file));
    forwarder.secret = peers->secret_;
    forwarder.feed_path = kStreamFeedPath;
    forwarder.on_feed = peers->parts_.on_stream;
  }
  forwarder.peers = options.addresses;
  forwarder.certificate = options.certificate;
  forwarder.ca = options.ca;
  forwarder.patience = options.patience;
  forwarder.most_at_once = options.most_at_once;
  forwarder.leads = [self = peers.get()] { return self->leads(); };
  // One that leads without a pipeline may be cut off, and another one leads.
  forwarder.asks = [self = peers.get()] {
    return !self->leads() || self->parts_.down() >= self->lease_;
  };
  forwarder.question = {
      {std::string(kStagesHeader), JoinedStages(options.stages)}};
  forwarder.fits = [self = peers.get()](const http::HttpHeaders& answer) {
    return self->Fits(answer);
  };
  forwarder.rank = [self = peers.get()](const std::string& body) {
    return self->Rank(body);
  };
  forwarder.on_round =
      [self = peers.get()](const std::optional<std::string>& leader) {
        self->OnRound(leader);
      };
  SLUICE_CHECK(peers->parts_.screen && peers->parts_.is_plain);
  forwarder.is_plain = peers->parts_.is_plain;
  forwarder.serve =
      [self = peers.get()](std::shared_ptr<http::Exchange> exchange) {
        self->ServeHere(std::move(exchange));
      };
  SLUICE_ASSIGN_OR_RETURN(peers->forwarder_,
                          Forwarder::Start(std::move(forwarder)));
  return peers;
}

Status PeerGateways::Fits(const http::HttpHeaders& answer) {
  is_misfit_ = false;
  const auto told = std::find_if(
      answer.begin(), answer.end(),
      [](const auto& header) { return header.first == kStagesHeader; });
  if (told == answer.end()) return OkStatus();
  Status fits = CheckStagesAnswer(told->second, stages_);
  is_misfit_ = fits.code() == StatusCode::kFailedPrecondition;
  if (is_misfit_ && told->second < JoinedStages(stages_)) {
    yields_ = true;
    rounds_first_ = 0;
  }
  return fits;
}

uint64_t PeerGateways::Rank(const std::string& body) {
  const uint64_t rank = RankOf(body);
  if (rank > 0) leader_misfits_ = is_misfit_;
  return rank;
}

void PeerGateways::OnRound(const std::optional<std::string>& leader) {
  // One answer may be late.
  if (++rounds_first_ > 2) yields_ = false;
  if (leader.has_value()) {
    rounds_without_ = 0;
    lead_ = LeadOf(*leader);
  } else if (++rounds_without_ >= 2) {  // one answer may be late
    leader_misfits_ = false;
    lead_ = PeerLead::kNone;
  }
}

std::optional<http::HttpResponse> PeerGateways::Screen(
    http::HttpRequest& request) const {
  const bool is_of_peer = secret_ && secret_->Accept(request);
  if (request.path == kStreamFeedPath) {
    if (is_of_peer) return std::nullopt;
    return http::ErrorResponse({404, "This path is for other gateways",
                                "invalid_request_error", std::nullopt,
                                "not_found"});
  }
  const http::HttpHeaders keys = KeysOf(request.headers);
  auto refused = parts_.screen(request);
  if (refused) return refused;
  std::erase_if(request.headers, IsKey);
  // Paths that need no key may carry a wrong one. The leader would count it
  // against this gateway.
  if (parts_.asks_for_keys && request.tenant.empty()) return std::nullopt;
  request.headers.insert(request.headers.end(), keys.begin(), keys.end());
  return std::nullopt;
}

void PeerGateways::Route(std::shared_ptr<http::Exchange> exchange) const {
  http::HttpRequest& request = exchange->request();
  const bool own = Has(kOwnPaths, request.path);
  const bool is_feed = secret_ && request.path == kStreamFeedPath;
  if (is_feed && leads()) return parts_.feed(std::move(exchange));
  if (!own && !request.Header(kForwardedHeader).empty() &&
      (!leads() || parts_.draining())) {
    return exchange->Send(Declined());
  }
  if (!own && !leads()) {
    // No drain waits for what comes after its begin.
    if (parts_.draining()) return exchange->Send(AboutToEnd());
    return forwarder_->Take(std::move(exchange));
  }
  ServeHere(std::move(exchange));
}

void PeerGateways::ServeHere(std::shared_ptr<http::Exchange> exchange) const {
  http::HttpHeaders& headers = exchange->request().headers;
  http::HttpHeaders keys = KeysOf(headers);
  std::erase_if(headers, IsKey);
  parts_.serve(std::make_shared<HandoverExchange>(
      std::move(exchange),
      [this, keys = std::move(keys)](std::shared_ptr<http::Exchange> given,
                                     std::optional<PassedEvents> passed) {
        http::HttpHeaders& to = given->request().headers;
        to.insert(to.end(), keys.begin(), keys.end());
        forwarder_->Take(std::move(given), std::move(passed));
      }));
}

Standing PeerGateways::Judge(const OwnPipeline& own) const {
  Standing standing;
  standing.role = parts_.role();
  if (standing.role == GatewayRole::kLeader) {
    standing.pipeline = own.is_up ? "up"
                        : own.missing < kRecoveringLeases * lease_
                            ? "recovering"
                            : "lost";
    return standing;
  }
  const bool drains = parts_.draining();
  standing.leader = forwarder_->leader().value_or("");
  standing.ready = !standing.leader.empty() && !drains && !leader_misfits_;
  if (!standing.ready && !drains) {
    standing.why = standing.open_why =
        leader_misfits_ || (yields_ && standing.leader.empty())
            ? "a gateway has another order of stages"
            : "no gateway leads";
    const std::string troubles = forwarder_->troubles();
    if (!troubles.empty()) standing.why += ": " + troubles;
  }
  return standing;
}

}  // namespace sluice::standby
