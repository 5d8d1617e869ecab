#include "common/standby/leader_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/standby/forwarded_message.h"

// As in common/http/connection.cc every operand of a co_await has a name.
namespace sluice::standby {
namespace {

namespace net = boost::asio;
using http::HttpRequest;
using http::Redirect;
using http::Task;
using std::chrono::milliseconds;

constexpr auto kAnswerTime = std::chrono::seconds(1);
constexpr Duration kEvery = milliseconds(500);
// While no peer leads, requests wait.
constexpr Duration kEveryWithout = milliseconds(100);
constexpr Duration kLookEvery = milliseconds(50);
// A peer that starts or ends is no trouble.
constexpr Duration kTellAfter = std::chrono::seconds(2);
constexpr size_t kMaxBody = size_t{64} << 10;

}  // namespace

LeaderWatch::LeaderWatch(net::io_context& io, const ForwarderOptions& options,
                         const std::vector<ServerAddress>& peers,
                         PeerConnections connections,
                         std::function<void(int)> forsake)
    : io_(io),
      options_(options),
      peers_(peers),
      connections_(connections),
      forsake_(std::move(forsake)),
      timer_(io),
      troubles_(peers.size()) {}

void LeaderWatch::Stop() {
  stopping_ = true;
  timer_.cancel();
  if (upstream_) upstream_->Close();
}

void LeaderWatch::NoteOwnLead() {
  const bool leads = options_.leads();
  if (leads && !led_) {
    leader_ = -1;
    forsake_(-1);
    // A peer that stands still is not waited for.
    if (upstream_) upstream_->Close();
  }
  led_ = leads;
}

std::string LeaderWatch::troubles() const {
  MutexLock lock(mutex_);
  return told_;
}

void LeaderWatch::Note(size_t index, const Status& why) {
  Trouble& trouble = troubles_[index];
  const TimePoint now = Clock::now();
  if (why.ok()) {
    if (trouble.logged) LogInfo("the peer ", options_.peers[index], " is well");
    trouble = {};
    return;
  }
  if (trouble.why.ok()) trouble.since = now;
  trouble.why = why;  // it may be another one each time
  if (!trouble.logged && now - trouble.since >= kTellAfter) {
    trouble.logged = true;
    LogWarning("a peer is not well: ", Message(why));
  }
}

void LeaderWatch::TellTroubles() {
  std::string told;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!asks()) troubles_[i] = {};
    if (troubles_[i].why.ok()) continue;
    if (!told.empty()) told += "; ";
    told += Message(troubles_[i].why);
  }
  MutexLock lock(mutex_);
  told_ = std::move(told);
}

Task<void> LeaderWatch::Pause(Duration time) {
  const TimePoint end = Clock::now() + time;
  do {
    boost::system::error_code error;
    auto token = Redirect(error);
    timer_.expires_after(std::min(time, kLookEvery));
    co_await timer_.async_wait(token);
    NoteOwnLead();
  } while (!stopping_ && Clock::now() < end);
}

Task<void> LeaderWatch::Run() {
  TimePoint led_at = Clock::now();
  while (!stopping_) {
    NoteOwnLead();
    auto asking = AskAll();
    const Round round = co_await std::move(asking);
    const int leader = round.leader;
    TellTroubles();
    if (options_.on_round && !stopping_) options_.on_round(round.answer);
    if (!options_.leads()) {
      const int before = leader_.exchange(leader);
      if (leader >= 0 && leader != before) {
        LogInfo("requests go to ", options_.peers[static_cast<size_t>(leader)]);
        // One that still answers ends what it has begun.
        if (!round.before_answers) forsake_(leader);
      }
      if (leader >= 0) led_at = Clock::now();
      // Requests hang on a server that is silent, and none takes its place.
      if (Clock::now() - led_at > options_.patience) forsake_(-1);
    }
    auto pausing = Pause(leader < 0 ? kEveryWithout : kEvery);
    co_await std::move(pausing);
  }
}

Task<LeaderWatch::Round> LeaderWatch::AskAll() {
  uint64_t highest = 0;
  Round round;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!asks() || stopping_) co_return Round();
    auto asking = Ask(i);
    std::optional<std::string> answer = co_await std::move(asking);
    if (!answer.has_value()) continue;
    const int index = static_cast<int>(i);
    round.before_answers = round.before_answers || index == leader_;
    const uint64_t rank = options_.rank(*answer);
    if (rank <= highest) continue;
    highest = rank;
    round.leader = index;
    round.answer = std::move(answer);
  }
  co_return round;
}

Task<std::optional<std::string>> LeaderWatch::Ask(size_t index) {
  auto tls = connections_.trust.For(peers_[index].host);
  if (!tls.ok()) {
    Note(index, Annotate(tls.status(), options_.peers[index]));
    co_return std::nullopt;
  }
  const auto upstream = std::make_shared<Upstream>(
      io_, connections_.names, peers_[index], *std::move(tls));
  upstream_ = upstream;
  HttpRequest request;
  request.method = "GET";
  request.path = "/readyz";
  request.headers = options_.question;
  const std::string head = ForwardedHead(request);
  auto connecting = upstream->Connect(kAnswerTime);
  Status status = co_await std::move(connecting);
  if (status.ok()) {
    auto sending = upstream->Send(head, request.body, kAnswerTime);
    status = co_await std::move(sending);
  }
  if (status.ok()) {
    auto reading = upstream->ReadHead(kAnswerTime);
    status = co_await std::move(reading);
  }
  std::string body;
  while (status.ok() && body.size() < kMaxBody) {
    auto reading = upstream->ReadBody();
    const StatusOr<std::string> more = co_await std::move(reading);
    status = more.status();
    if (!more.ok() || more->empty()) break;
    body += *more;
  }
  upstream_ = nullptr;
  if (status.ok() && options_.fits) {
    const Status fits = options_.fits(upstream->answer().headers());
    Note(index, Annotate(fits, options_.peers[index]));
  } else {
    Note(index, status);
  }
  if (!status.ok()) co_return std::nullopt;
  co_return body;
}

}  // namespace sluice::standby
