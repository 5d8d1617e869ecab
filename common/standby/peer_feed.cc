#include "common/standby/peer_feed.h"

#include <chrono>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/base/random_bytes.h"
#include "common/standby/feed_record.h"
#include "common/standby/forwarded_message.h"

// As in common/http/connection.cc every operand of a co_await has a name.
namespace sluice::standby {
namespace {

namespace net = boost::asio;
using http::HttpRequest;
using http::Redirect;
using http::Task;

constexpr auto kFeedConnectTime = std::chrono::seconds(2);
// Between two looks whether a peer leads, and after a feed that broke off.
constexpr Duration kFeedEvery = std::chrono::milliseconds(200);
// After one that ended well: the peer drains, and has little more.
constexpr Duration kFeedAgain = std::chrono::seconds(2);

}  // namespace

PeerFeed::PeerFeed(net::io_context& io, const ForwarderOptions& options,
                   const std::vector<ServerAddress>& peers,
                   PeerConnections connections, const LeaderWatch& watch)
    : io_(io),
      options_(options),
      peers_(peers),
      connections_(connections),
      watch_(watch),
      timer_(io) {}

void PeerFeed::Stop() {
  stopping_ = true;
  timer_.cancel();
  if (upstream_) upstream_->Close();
}

void PeerFeed::Forsake(int kept) {
  if (upstream_ && peer_ != kept) upstream_->Close();
}

Task<void> PeerFeed::Run() {
  std::string told;  // the latest failure that the log has
  while (!stopping_) {
    const int leader = watch_.leader();
    bool is_whole = false;
    if (leader >= 0 && !options_.leads()) {
      auto following = Follow(leader);
      const Status status = co_await std::move(following);
      is_whole = status.ok();
      if (status.code() == StatusCode::kFailedPrecondition &&
          std::exchange(told, Message(status)) != Message(status)) {
        LogWarning("a peer gives no copy of what it keeps: ", Message(status));
      }
    }
    boost::system::error_code error;
    auto token = Redirect(error);
    timer_.expires_after(is_whole ? kFeedAgain : kFeedEvery);
    co_await timer_.async_wait(token);
  }
}

Task<Status> PeerFeed::Follow(int peer) {
  const ServerAddress& address = peers_[static_cast<size_t>(peer)];
  auto tls = connections_.trust.For(address.host);
  if (!tls.ok()) co_return tls.status();
  const auto upstream = std::make_shared<Upstream>(io_, connections_.names,
                                                   address, *std::move(tls));
  upstream_ = upstream;
  peer_ = peer;
  HttpRequest request;
  request.method = "GET";
  request.path = options_.feed_path;
  request.request_id = RandomHex(24);
  const std::string head =
      ForwardedHead(request, {}, options_.secret ? &*options_.secret : nullptr);
  auto connecting = upstream->Connect(kFeedConnectTime);
  Status status = co_await std::move(connecting);
  if (status.ok()) {
    auto sending = upstream->Send(head, request.body, kFeedConnectTime);
    status = co_await std::move(sending);
  }
  if (status.ok()) {
    auto reading = upstream->ReadHead(std::nullopt);
    status = co_await std::move(reading);
  }
  if (status.ok()) {
    auto reading = Read(*upstream);
    status = co_await std::move(reading);
  }
  upstream_ = nullptr;
  co_return status;
}

Task<Status> PeerFeed::Read(Upstream& upstream) {
  const int status = upstream.answer().status();
  if (status == 503) co_return Unavailable("not now");
  if (status != 200) {
    co_return FailedPrecondition("it answers ", status, " to ",
                                 options_.feed_path);
  }
  FeedReader records;
  while (true) {
    auto reading = upstream.ReadBody();
    const StatusOr<std::string> more = co_await std::move(reading);
    if (!more.ok()) co_return more.status();
    if (more->empty()) co_return OkStatus();
    const Status fed = records.Feed(*more);
    if (!fed.ok()) co_return fed;
    for (std::string record; records.Next(record);) options_.on_feed(record);
  }
}

}  // namespace sluice::standby
