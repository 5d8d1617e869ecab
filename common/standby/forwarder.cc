#include "common/standby/forwarder.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <unordered_set>
#include <utility>

#include "common/base/cat.h"
#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/http/error_answer.h"
#include "common/http/sse.h"
#include "common/http/task.h"
#include "common/standby/forwarded_job.h"
#include "common/standby/forwarded_message.h"
#include "common/standby/leader_watch.h"
#include "common/standby/name_lookup.h"
#include "common/standby/passed_events.h"
#include "common/standby/peer_feed.h"
#include "common/standby/repeat_order.h"
#include "common/standby/upstream.h"
#include "common/standby/watched_exchange.h"

// As in common/http/connection.cc every operand of a co_await has a name.
namespace sluice::standby {
namespace {

namespace net = boost::asio;
using Job = ForwardedJob;
using boost::system::error_code;
using http::ErrorResponse;
using http::Exchange;
using http::Gone;
using http::HttpHeaders;
using http::HttpRequest;
using http::HttpResponse;
using http::LoopReserve;
using http::Redirect;
using http::ResponseParser;
using http::Spawn;
using http::Task;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kConnectTime = seconds(2);
constexpr auto kSendTime = seconds(60);
constexpr auto kRetryPause = milliseconds(100);
// An answer up to this size is passed on whole, with its length.
constexpr size_t kWholeBytes = size_t{256} << 10;

bool IsDeclined(const ResponseParser& answer) {
  return answer.status() == 503 &&
         std::ranges::any_of(answer.headers(), [](const auto& header) {
           return header.first == kDeclinedHeader;
         });
}

// Returns the body's announced length; none: it comes in chunks.
std::optional<size_t> LengthOf(const HttpHeaders& headers) {
  for (const auto& [name, value] : headers) {
    if (name == "content-length")
      return std::strtoull(value.c_str(), nullptr, 10);
  }
  return std::nullopt;
}

HttpResponse HeadOf(const ResponseParser& answer) {
  HttpResponse head;
  head.status = answer.status();
  head.content_type = answer.content_type();
  head.headers = ForwardedAnswerHeaders(answer.headers());
  return head;
}

// Makes `request` one for the events behind the one with `id`.
void ResumeBehind(const std::string& id, HttpRequest& request) {
  std::erase_if(request.headers, [](const auto& header) {
    return header.first == "last-event-id";
  });
  request.headers.emplace_back("last-event-id", id);
}

HttpResponse NoServer(const std::string& message) {
  return ErrorResponse(
      {503, message, "service_unavailable_error", std::nullopt, "no_leader"});
}

HttpResponse LostServers(int losses) {
  HttpResponse response = ErrorResponse(
      {500,
       Cat(losses,
           " gateways were lost while they answered this request. It may be "
           "the cause, and is not tried again"),
       "server_error", std::nullopt, "lost_gateways"});
  // Clients' libraries obey it: they repeat other answers of 500 by themselves.
  response.headers.emplace_back("X-Should-Retry", "false");
  return response;
}

enum class Outcome {
  kAnswered,    // nothing is left to do
  kUnanswered,  // the client has no more than before
  kLost,        // the same, and the server had the whole request
  kCut,         // the client has some more events, and the rest is missing
};

void Refuse(const Job& job, HttpResponse refusal) {
  job.exchange->Post([exchange = job.exchange, begun = job.has_begun,
                      refusal = std::move(refusal)] {
    if (!begun) return exchange->Send(refusal);
    ResumedExchange(exchange).Send(refusal);
  });
}

void Tell(const std::exception_ptr& thrown) {
  const Status why =
      CatchAndCount("forward", [&] { std::rethrow_exception(thrown); });
  LogError("forwarding: ", Message(why));
}

void OnThrown(Job& job, const std::exception_ptr& thrown) {
  Tell(thrown);
  job.exchange->Post([exchange = job.exchange, begun = job.has_begun] {
    if (begun) return exchange->Break();
    exchange->Send(
        NoServer("There was too little memory to forward this request"));
  });
}

Task<void> Pause(net::steady_timer& timer, Duration time) {
  error_code error;
  auto token = Redirect(error);
  timer.expires_after(time);
  co_await timer.async_wait(token);
}

}  // namespace

class Forwarder::Impl {
 public:
  Impl(ForwarderOptions options, std::vector<ServerAddress> peers)
      : options_(std::move(options)),
        peers_(std::move(peers)),
        trust_(options_.certificate, options_.ca),
        io_(std::make_shared<net::io_context>(1)),
        reserve_(LoopReserve::Of(*io_)),
        guard_(io_->get_executor()),
        names_(io_, options_.look_up),
        watch_(*io_, options_, peers_, {names_, trust_},
               [this](int kept) { Forsake(kept); }),
        feed_(*io_, options_, peers_, {names_, trust_}, watch_) {}

  Status Start() {
    for (const ServerAddress& peer : peers_) {
      SLUICE_RETURN_IF_ERROR(trust_.For(peer.host).status());
    }
    StartWatch();
    if (!options_.feed_path.empty()) StartFeed();
    thread_ = NamedThread("forward", [this] { Run(); });
    return OkStatus();
  }

  void Take(std::shared_ptr<Exchange> exchange,
            std::optional<PassedEvents> passed) {
    exchange->set_route("forwarded");
    const auto job =
        std::make_shared<Job>(io_, std::move(exchange), std::move(passed));
    WriteHead(*job);
    if (!Enqueue(job)) {
      return Refuse(*job, NoServer("The server is shutting down"));
    }
    job->exchange->OnGone([weak = std::weak_ptr<Job>(job)](Gone) {
      if (const auto left = weak.lock()) {
        left->Post([](Job& one) { one.Leave(); });
      }
    });
  }

  std::optional<std::string> leader() const {
    const int leader = watch_.leader();
    if (leader < 0) return std::nullopt;
    return options_.peers[static_cast<size_t>(leader)];
  }
  std::string troubles() const { return watch_.troubles(); }
  const ForwarderStats& stats() const { return stats_; }

  void Stop() {
    {
      MutexLock lock(intake_);
      if (stopping_.exchange(true)) return;
      net::post(*io_, [this] {
        watch_.Stop();
        feed_.Stop();
        for (const auto& job : jobs_) job->Wake();
      });
    }
    guard_.reset();
    thread_.Join();
  }

 private:
  void WriteHead(Job& job) const {
    job.head = ForwardedHead(job.exchange->request(), job.passed.last_id(),
                             options_.secret ? &*options_.secret : nullptr);
  }
  // False: the thread ends, or has, and would leave the job where it is.
  bool Enqueue(const std::shared_ptr<Job>& job) {
    MutexLock lock(intake_);
    if (stopping_) return false;
    ++stats_.waiting;
    net::post(*io_, [this, job] {
      jobs_.insert(job);
      Spawn(io_->get_executor(), Handle(job),
            [this, job](std::exception_ptr thrown) {
              jobs_.erase(job);
              --stats_.waiting;
              if (order_.OnEnded(job.get())) WakeAll();
              if (thrown) OnThrown(*job, thrown);
            });
    });
    return true;
  }

  void Run() {
    while (true) {
      const Status ran = CatchAndCount("forward", [this] {
        do {
          reserve_.Run();
        } while (io_->run_one() > 0);
      });
      if (ran.ok()) return;
      LogError("forwarding: ", Message(ran));
    }
  }

  void StartWatch() {
    Spawn(io_->get_executor(), watch_.Run(), [this](std::exception_ptr thrown) {
      if (!thrown) return;
      Tell(thrown);
      StartWatch();
    });
  }

  void StartFeed() {
    Spawn(io_->get_executor(), feed_.Run(), [this](std::exception_ptr thrown) {
      if (!thrown) return;
      Tell(thrown);
      StartFeed();
    });
  }

  // Ends the connections to all peers but `kept`, and those to it whose answers
  // have come no further for the time of options_.patience if `kept` is none:
  // their requests go to the next one, or are answered here.
  void Forsake(int kept) {
    const TimePoint now = Clock::now();
    // Without a leader the one before may still have something.
    if (kept >= 0 || options_.leads()) feed_.Forsake(kept);
    for (const auto& job : jobs_) {
      if (job->upstream == nullptr || job->peer == kept) continue;
      // The leader may refuse the question and serve what it has begun.
      const bool flows =
          kept < 0 && !options_.leads() &&
          (!job->is_read || now - job->heard < options_.patience);
      if (!flows) job->upstream->Close();
    }
  }

  Task<void> Handle(std::shared_ptr<Job> job) {
    TimePoint deadline = Clock::now() + options_.patience;
    while (!job->gone) {
      if (stopping_) {
        co_return Refuse(*job, NoServer("The server is shutting down"));
      }
      const bool leads = options_.leads();
      const int leader = leads ? -1 : watch_.leader();
      if (leads || leader >= 0) {
        if (!MayGo(*job, leads)) {
          deadline = Clock::now() + options_.patience;
        } else if (leads) {
          auto serving = ServeHere(*job);
          co_return co_await std::move(serving);
        } else if (HasRoom()) {
          auto passing = PassInTurn(*job, leader);
          const Outcome outcome = co_await std::move(passing);
          if (outcome == Outcome::kAnswered) co_return;
          if (outcome != Outcome::kUnanswered) {
            deadline = Clock::now() + options_.patience;
          }
        }
      }
      if (Clock::now() >= deadline) {
        co_return Refuse(*job, NoServer(WhyNoAnswer(*job)));
      }
      auto pause = Pause(job->signal, kRetryPause);
      co_await std::move(pause);
    }
  }

  // All requests of a server see its end before any goes on. A request that may
  // end this server, and with it what its clients read, waits for the streams
  // that go on here, as long as it would for a server.
  bool MayGo(const Job& job, bool leads) const {
    const TimePoint now = Clock::now();
    if (order_.losses(&job) > 0 && now < lost_at_ + kRetryPause) return false;
    return order_.MayGo(&job, leads && now < job.lost_at + options_.patience);
  }

  // Passes the request to a peer, and judges it if the peer is lost.
  Task<Outcome> PassInTurn(Job& job, int peer) {
    order_.OnSent(&job);
    job.events_before = job.passed.events();
    ++passing_;
    auto passing = Pass(job, peer);
    const Outcome outcome = co_await std::move(passing);
    --passing_;
    job.upstream = nullptr;
    if (outcome == Outcome::kAnswered) co_return outcome;
    if (outcome == Outcome::kUnanswered) {
      order_.OnReturned(&job);
      co_return outcome;
    }
    job.lost_at = lost_at_ = Clock::now();
    if (!job.is_plain.has_value()) {
      job.is_plain =
          !options_.is_plain || options_.is_plain(job.exchange->request());
    }
    const RepeatOrder::Loss loss = {*job.is_plain, job.passed.events() > 0,
                                    job.passed.events() > job.events_before};
    if (order_.OnLost(&job, loss) == RepeatOrder::Verdict::kRepeat) {
      co_return outcome;
    }
    ++stats_.lost;
    Refuse(job, LostServers(order_.losses(&job)));
    co_return Outcome::kAnswered;
  }

  void OnEvent(const Job& job) {
    if (order_.OnEvent(&job)) WakeAll();
  }

  // Some may go on now.
  void WakeAll() {
    for (const auto& job : jobs_) job->signal.cancel();
  }

  const char* WhyNoAnswer(const Job& job) const {
    if (watch_.leader() < 0) return "No gateway leads at the moment";
    return job.is_declined
               ? "The gateway that leads ends its streams before another one "
                 "takes its place"
               : "The gateway that leads gives no answer";
  }

  bool HasRoom() const {
    return options_.most_at_once == 0 || passing_ < options_.most_at_once;
  }

  // The handler gives the answer, or what is left of it. A request that was
  // lost before has its place in the order until its end.
  Task<void> ServeHere(Job& job) {
    const bool is_watched = order_.losses(&job) > 0;
    order_.OnSent(&job);
    auto exchange = job.exchange;
    if (is_watched) {
      exchange = std::make_shared<WatchedExchange>(exchange, job.is_events,
                                                   WatchOf(job));
    }
    exchange->Post([serve = options_.serve, exchange, begun = job.has_begun,
                    id = job.passed.last_id()] {
      if (exchange->gone()) return;
      if (!begun) return serve(exchange);
      if (!id.empty()) ResumeBehind(id, exchange->request());
      serve(std::make_shared<ResumedExchange>(exchange));
    });
    exchange = nullptr;
    while (is_watched && !job.is_served && !job.gone && !stopping_) {
      auto pause = Pause(job.signal, seconds(3600));
      co_await std::move(pause);
    }
  }

  WatchedExchange::Watch WatchOf(Job& job) {
    const std::weak_ptr<Job> weak = job.weak_from_this();
    const auto post = [weak](auto work) {
      if (const auto one = weak.lock()) one->Post(work);
    };
    return {[post, this] { post([this](Job& one) { OnEvent(one); }); },
            [post] {
              post([](Job& one) {
                one.is_served = true;
                one.signal.cancel();
              });
            }};
  }

  // Passes the request to a peer, and the answer back.
  Task<Outcome> Pass(Job& job, int peer) {
    const ServerAddress& address = peers_[static_cast<size_t>(peer)];
    auto tls = trust_.For(address.host);
    Status status = tls.status();
    if (!status.ok()) co_return Failed(job, status);
    const auto upstream =
        std::make_shared<Upstream>(*io_, names_, address, *std::move(tls));
    job.upstream = upstream;
    job.peer = peer;
    auto connecting = upstream->Connect(kConnectTime);
    status = co_await std::move(connecting);
    if (!status.ok()) co_return Failed(job, status);
    auto sending =
        upstream->Send(job.head, job.exchange->request().body, kSendTime);
    status = co_await std::move(sending);
    if (!status.ok()) co_return Failed(job, status);
    job.heard = Clock::now();
    auto reading = upstream->ReadHead(std::nullopt);
    status = co_await std::move(reading);
    job.heard = Clock::now();
    if (!status.ok()) co_return Lost(job, status);
    const ResponseParser& answer = upstream->answer();
    job.is_declined = IsDeclined(answer);
    if (job.is_declined) co_return Outcome::kUnanswered;
    // What could not be resumed now may be later.
    if (job.has_begun && answer.status() == 503) {
      co_return Outcome::kUnanswered;
    }
    const auto length = LengthOf(answer.headers());
    auto passing = length.has_value() && *length <= kWholeBytes
                       ? PassWhole(job, *upstream)
                       : PassStream(job, *upstream);
    const Outcome outcome = co_await std::move(passing);
    co_return outcome;
  }

  Outcome Failed(const Job& job, const Status& why) {
    if (job.gone) return Outcome::kAnswered;
    failures_.Write(LogLevel::kWarning,
                    "a request was not forwarded: ", Message(why));
    return Outcome::kUnanswered;
  }

  Outcome Lost(const Job& job, const Status& why) {
    const Outcome failed = Failed(job, why);
    return failed == Outcome::kUnanswered ? Outcome::kLost : failed;
  }

  Task<Outcome> PassWhole(Job& job, Upstream& upstream) {
    HttpResponse response = HeadOf(upstream.answer());
    while (true) {
      auto reading = upstream.ReadBody();
      const StatusOr<std::string> more = co_await std::move(reading);
      job.heard = Clock::now();
      if (!more.ok()) co_return Lost(job, more.status());
      if (more->empty()) break;
      response.body += *more;
    }
    ++stats_.forwarded;
    job.exchange->Post([exchange = job.exchange, begun = job.has_begun,
                        response = std::move(response)] {
      if (!begun) return exchange->Send(response);
      ResumedExchange(exchange).Send(response);
    });
    co_return Outcome::kAnswered;
  }

  Task<Outcome> PassStream(Job& job, Upstream& upstream) {
    ++stats_.forwarded;
    if (!std::exchange(job.has_begun, true)) {
      job.is_events = upstream.answer().is_event_stream();
      job.exchange->Post(
          [exchange = job.exchange, head = HeadOf(upstream.answer())] {
            exchange->BeginStream(head);
          });
    }
    while (true) {
      auto reading = upstream.ReadBody();
      StatusOr<std::string> more = co_await std::move(reading);
      job.heard = Clock::now();
      if (!more.ok()) co_return BreakOff(job, more.status());
      if (more->empty()) break;
      if (job.is_events) job.passed.Add(*more);
      if (!job.is_events || job.passed.events() > job.events_before) {
        OnEvent(job);
      }
      job.is_read = false;
      job.exchange->Post(
          [one = job.shared_from_this(), bytes = *std::move(more)]() mutable {
            one->exchange->SendChunk(std::move(bytes));
            // The exchange keeps this, and must not keep itself by it.
            one->exchange->WhenRead([weak = std::weak_ptr<Job>(one)] {
              const auto reader = weak.lock();
              if (reader == nullptr) return;
              reader->Post([](Job& read) {
                read.is_read = true;
                read.signal.cancel();
              });
            });
          });
      while (!job.is_read && !job.gone && !stopping_) {
        auto pause = Pause(job.signal, seconds(3600));
        co_await std::move(pause);
      }
      if (job.gone) co_return Outcome::kAnswered;
    }
    job.exchange->Post([exchange = job.exchange] { exchange->EndStream(); });
    co_return Outcome::kAnswered;
  }

  // What becomes of a stream whose server is gone: behind an event with an id,
  // or before the first one, another server goes on; else it ends, with an
  // error where a reader of events understands one.
  Outcome BreakOff(Job& job, const Status& why) {
    if (job.gone) return Outcome::kAnswered;
    if (job.CanGoOn() && !stopping_) {
      ++stats_.resumed;
      WriteHead(job);
      return Outcome::kCut;
    }
    ++stats_.broken;
    Failed(job, why);
    if (job.is_events && job.passed.is_whole()) {
      Refuse(job, NoServer("The gateway that gave this answer is gone"));
    } else {
      job.exchange->Post([exchange = job.exchange] { exchange->Break(); });
    }
    return Outcome::kAnswered;
  }

  const ForwarderOptions options_;
  const std::vector<ServerAddress> peers_;
  ForwarderStats stats_;
  // What is enqueued before `stopping_` is set gets its answer.
  Mutex intake_;
  std::atomic<bool> stopping_{false};  // set under intake_
  // The thread's from here on.
  PeerTrust trust_;
  LogLimit failures_{5, seconds(10)};
  const std::shared_ptr<net::io_context> io_;
  LoopReserve& reserve_;
  net::executor_work_guard<net::io_context::executor_type> guard_;
  NameLookup names_;
  LeaderWatch watch_;
  PeerFeed feed_;
  std::unordered_set<std::shared_ptr<Job>> jobs_;
  int passing_ = 0;  // jobs with an upstream
  RepeatOrder order_;
  TimePoint lost_at_{};  // the latest server, with any request
  NamedThread thread_;
};

Forwarder::Forwarder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Forwarder::~Forwarder() { Stop(); }

StatusOr<std::unique_ptr<Forwarder>> Forwarder::Start(
    ForwarderOptions options) {
  std::vector<ServerAddress> peers;
  for (const std::string& text : options.peers) {
    SLUICE_ASSIGN_OR_RETURN(ServerAddress peer, ServerAddress::Parse(text));
    peers.push_back(std::move(peer));
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(peers));
  SLUICE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Forwarder>(new Forwarder(std::move(impl)));
}

void Forwarder::Take(std::shared_ptr<Exchange> exchange,
                     std::optional<PassedEvents> passed) {
  impl_->Take(std::move(exchange), std::move(passed));
}
std::optional<std::string> Forwarder::leader() const { return impl_->leader(); }
std::string Forwarder::troubles() const { return impl_->troubles(); }
const ForwarderStats& Forwarder::stats() const { return impl_->stats(); }
void Forwarder::Stop() { impl_->Stop(); }

}  // namespace sluice::standby
