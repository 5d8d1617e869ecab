#include "common/tools/load/load_generator.h"

#include <time.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/http/http_call.h"
#include "common/http/sse.h"
#include "common/tools/load/arrivals.h"
#include "common/tools/load/stream_chunk.h"

namespace sluice::load {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using std::chrono::milliseconds;

constexpr auto kProgressEvery = milliseconds(100);
constexpr auto kPauseAfterFailure = milliseconds(100);
constexpr double kLongestPauseS = 5;

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

constexpr size_t kMaxRefusalBytes = 64 << 10;

Outcome OutcomeOf(http::HttpCall::End end) {
  switch (end) {
    case http::HttpCall::End::kDone:
      return Outcome::kDone;
    case http::HttpCall::End::kConnect:
      return Outcome::kConnect;
    case http::HttpCall::End::kBroken:
      return Outcome::kBroken;
    case http::HttpCall::End::kTimeout:
      return Outcome::kTimeout;
    case http::HttpCall::End::kCancelled:
      return Outcome::kCancelled;
  }
  return Outcome::kBroken;
}

// Measures one request and its streamed answer. Lives until its end; every call
// is on the loop's thread.
class StreamExchange : public std::enable_shared_from_this<StreamExchange> {
 public:
  using OnTokens = std::function<void(int)>;
  using OnEnd = std::function<void(RequestRecord)>;

  // `pool` outlives the exchange. `head` is RequestHead's; `record` has index
  // and scheduled.
  StreamExchange(http::ConnectionPool& pool, const std::string& head,
                 const LoadRequest& request, RequestRecord record)
      : call_(std::make_shared<http::HttpCall>(pool, head, request.body)),
        record_(std::move(record)) {
    record_.outcome = Outcome::kDone;
    record_.asked_prompt_tokens = request.prompt_tokens;
    record_.asked_output_tokens = request.output_tokens;
    record_.prompt_tokens = request.prompt_tokens;
  }

  // `on_end` runs once, never within Start.
  void Start(Duration timeout, OnTokens on_tokens, OnEnd on_end) {
    on_tokens_ = std::move(on_tokens);
    on_end_ = std::move(on_end);
    const auto self = shared_from_this();
    call_->Start({timeout},
                 {[self](std::string_view bytes, TimePoint at) {
                    self->OnBody(bytes, at);
                  },
                  [self](http::HttpCall::End end, const std::string& error) {
                    self->OnCallEnd(end, error);
                  }});
  }

  void Cancel() { call_->Cancel(); }

 private:
  void OnBody(std::string_view bytes, TimePoint at) {
    const http::ResponseParser& response = call_->response();
    record_.http_status = response.status();
    if (record_.http_status != 200 || !response.is_event_stream()) {
      if (refusal_.size() < kMaxRefusalBytes) refusal_ += bytes;
      return;
    }
    for (const std::string& data : events_.Feed(bytes)) {
      if (!OnEvent(at, data)) return;
    }
  }

  // False: the event ended the exchange.
  bool OnEvent(TimePoint at, const std::string& data) {
    const StatusOr<StreamChunk> chunk = ParseStreamChunk(data);
    if (!chunk.ok()) Fail(Outcome::kBroken, Message(chunk.status()));
    if (chunk.ok() && chunk->error) Fail(Outcome::kError, *chunk->error);
    if (record_.outcome != Outcome::kDone) {
      call_->Cancel();
      return false;
    }
    complete_ = complete_ || chunk->is_end || chunk->is_finish;
    if (chunk->prompt_tokens) record_.prompt_tokens = *chunk->prompt_tokens;
    if (chunk->cached_tokens) record_.cached_tokens = *chunk->cached_tokens;
    if (chunk->completion_tokens) {
      record_.output_tokens = *chunk->completion_tokens;
      record_.source = TokenSource::kUsage;
    }
    if (chunk->Tokens() > 0) OnToken(at, *chunk);
    return true;
  }

  void OnToken(TimePoint at, const StreamChunk& chunk) {
    record_.arrivals.push_back({at, chunk.Tokens()});
    counted_ += chunk.Tokens();
    if (record_.source != TokenSource::kUsage) {
      record_.output_tokens = counted_;
      if (chunk.ids) record_.source = TokenSource::kTokenIds;
    }
    on_tokens_(chunk.Tokens());
  }

  void Fail(Outcome outcome, const std::string& error) {
    record_.outcome = outcome;
    record_.error = error;
  }

  // Records what is wrong with a complete answer, if anything.
  void JudgeWhole() {
    const int status = record_.http_status;
    if (status != 200) {
      Fail(status == 429 ? Outcome::kRefused : Outcome::kHttpError,
           http::ErrorText(status, refusal_));
    } else if (!call_->response().is_event_stream()) {
      Fail(Outcome::kBroken, "the answer is no text/event-stream");
    } else if (!complete_) {
      Fail(Outcome::kBroken, "the stream ended without [DONE]");
    } else if (record_.arrivals.empty()) {
      Fail(Outcome::kEmpty, "the answer has no token");
    }
  }

  void OnCallEnd(http::HttpCall::End end, const std::string& error) {
    record_.sent = call_->sent();
    record_.new_connection = call_->new_connection();
    record_.retry_after_s = call_->response().retry_after_s();
    if (end == http::HttpCall::End::kDone) {
      JudgeWhole();
    } else if (record_.outcome == Outcome::kDone) {
      Fail(OutcomeOf(end), error);
    }
    const bool done = record_.outcome == Outcome::kDone;
    record_.ended = done ? call_->ended() : Clock::now();
    on_tokens_ = nullptr;
    std::exchange(on_end_, nullptr)(std::move(record_));
  }

  const std::shared_ptr<http::HttpCall> call_;
  RequestRecord record_;
  OnTokens on_tokens_;
  OnEnd on_end_;
  http::SseReader events_;
  std::string refusal_;    // the body of another status than 200
  int64_t counted_ = 0;    // over all arrivals
  bool complete_ = false;  // [DONE] or a finish_reason came
};

// A run, from its first request to its last answer.
class LoadRun {
 public:
  using Next = std::function<LoadRequest(int64_t)>;
  using OnProgress = std::function<void(const LoadProgress&)>;

  LoadRun(const LoadOptions& options, const Next& next,
          const OnProgress& on_progress)
      : options_(options),
        next_(next),
        on_progress_(on_progress),
        head_(http::RequestHead(options.base, "POST", options.target,
                                "text/event-stream")),
        arrivals_(std::max(options.rate, 1e-9), options.seed) {}

  StatusOr<LoadResult> Run() {
    SLUICE_RETURN_IF_ERROR(pool_.Resolve(options_.base));
    signals_.async_wait([this](const Error& failed, int) {
      if (!failed) Interrupt();
    });
    const double cpu_before = ThreadCpuSeconds();
    // The slots' first requests are made before the clock starts.
    std::vector<LoadRequest> first;
    for (int slot = 0; slot < options_.concurrency; ++slot) {
      if (options_.num_requests > 0 && slot >= options_.num_requests) break;
      first.push_back(next_(slot));
    }
    const TimePoint prepared = Clock::now();
    result_.began = prepared;
    result_.began_unix_s =
        std::chrono::duration<double>(
            std::chrono::system_clock::now().time_since_epoch())
            .count();
    if (options_.concurrency > 0) {
      for (const LoadRequest& request : first) Send(request, prepared);
    } else {
      due_ = result_.began;
      ScheduleNext();
    }
    ShowProgress();
    io_.run();
    result_.ended = std::max(result_.ended, result_.began);
    const double wall = Seconds(Clock::now() - result_.began);
    result_.cpu_share = (ThreadCpuSeconds() - cpu_before) / wall;
    std::sort(result_.records.begin(), result_.records.end(),
              [](const auto& a, const auto& b) { return a.index < b.index; });
    return std::move(result_);
  }

 private:
  // Returns whether a request may be sent at `at`.
  bool MaySend(TimePoint at) const {
    if (stopped_) return false;
    if (options_.num_requests > 0 && sent_ >= options_.num_requests) {
      return false;
    }
    return options_.duration <= Duration(0) ||
           at < result_.began + options_.duration;
  }

  // Closed loop: sends a slot's next request.
  void FillSlot() {
    if (!MaySend(Clock::now())) return MaybeFinish();
    const LoadRequest request = next_(sent_);
    Send(request, Clock::now());
  }

  // Open loop: schedules the next arrival, with its body made in advance.
  void ScheduleNext() {
    due_ += arrivals_.NextGap();
    if (!MaySend(due_)) {
      sending_ = false;
      return MaybeFinish();
    }
    waiting_ = next_(sent_);
    arrival_.expires_at(due_);
    arrival_.async_wait([this](const Error& error) {
      if (!error) Arrive();
    });
  }

  void Arrive() {
    if (in_flight_.size() >= static_cast<size_t>(options_.max_in_flight)) {
      held_ = true;  // until a request ends
      return;
    }
    held_ = false;
    Send(waiting_, due_);
    ScheduleNext();
  }

  void Send(const LoadRequest& request, TimePoint scheduled) {
    RequestRecord record;
    record.index = sent_++;
    record.scheduled = scheduled;
    const int64_t index = record.index;
    auto exchange = std::make_shared<StreamExchange>(pool_, head_, request,
                                                     std::move(record));
    in_flight_[index] = exchange;
    exchange->Start(
        options_.timeout, [this](int tokens) { progress_.tokens += tokens; },
        [this](RequestRecord ended) { OnEnd(std::move(ended)); });
  }

  void OnEnd(RequestRecord record) {
    in_flight_.erase(record.index);
    ++progress_.ended;
    const bool failed = record.outcome != Outcome::kDone;
    if (failed) ++progress_.failed;
    const double retry_after = record.retry_after_s;
    result_.ended = std::max(result_.ended, record.ended);
    result_.records.push_back(std::move(record));
    if (options_.concurrency == 0) {
      if (held_ && !stopped_) Arrive();
      return MaybeFinish();
    }
    if (failed && !stopped_) return PauseSlot(retry_after);
    // Outside the ended exchange's own call.
    asio::post(io_, [this] { FillSlot(); });
  }

  void PauseSlot(double retry_after_s) {
    const auto pause = retry_after_s >= 0
                           ? std::chrono::duration_cast<Duration>(
                                 std::chrono::duration<double>(
                                     std::min(retry_after_s, kLongestPauseS)))
                           : Duration(kPauseAfterFailure);
    ++paused_;
    auto timer = std::make_shared<asio::steady_timer>(io_, pause);
    timer->async_wait([this, timer](const Error&) {
      --paused_;
      FillSlot();
    });
  }

  void ShowProgress() {
    progress_.elapsed_s = Seconds(Clock::now() - result_.began);
    progress_.in_flight = static_cast<int64_t>(in_flight_.size());
    on_progress_(progress_);
    if (finished_) return;
    ticks_.expires_after(kProgressEvery);
    ticks_.async_wait([this](const Error& error) {
      if (!error) ShowProgress();
    });
  }

  void Interrupt() {
    stopped_ = true;
    sending_ = false;
    held_ = false;
    result_.interrupted = true;
    arrival_.cancel();
    auto cancelled = in_flight_;
    for (auto& [index, exchange] : cancelled) exchange->Cancel();
    MaybeFinish();
  }

  // Ends the loop once all requests are sent and answered.
  void MaybeFinish() {
    if (!in_flight_.empty() || (options_.concurrency == 0 && sending_)) return;
    if (options_.concurrency > 0 && MaySend(Clock::now())) return;
    if (paused_ > 0 && !stopped_) return;
    finished_ = true;
    ticks_.cancel();
    signals_.cancel();
    pool_.idle.clear();
    if (stopped_) io_.stop();
  }

  const LoadOptions& options_;
  const Next& next_;
  const OnProgress& on_progress_;
  const std::string head_;
  asio::io_context io_{1};
  http::ConnectionPool pool_{io_, {}, {}};
  asio::steady_timer arrival_{io_};
  asio::steady_timer ticks_{io_};
  asio::signal_set signals_{io_, SIGINT};
  Arrivals arrivals_;
  std::unordered_map<int64_t, std::shared_ptr<StreamExchange>> in_flight_;
  LoadRequest waiting_;  // open loop: the next request
  TimePoint due_;        // its time
  bool held_ = false;    // waiting_ is due, and too many requests are in flight
  bool sending_ = true;  // open loop: arrivals go on
  bool stopped_ = false;   // by SIGINT
  bool finished_ = false;  // all requests are sent and answered
  int paused_ = 0;         // slots
  int64_t sent_ = 0;
  LoadProgress progress_;
  LoadResult result_;
};

}  // namespace

StatusOr<LoadResult> GenerateLoad(
    const LoadOptions& options, const std::function<LoadRequest(int64_t)>& next,
    const std::function<void(const LoadProgress&)>& on_progress) {
  LoadRun run(options, next, on_progress);
  return run.Run();
}

}  // namespace sluice::load
