#include "services/cli/bench/load_generator.h"

#include <time.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <memory>
#include <unordered_map>
#include <utility>

#include "services/cli/bench/arrivals.h"
#include "services/cli/bench/stream_exchange.h"

namespace sluice::cli {
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
        head_(RequestHead(options.base, "POST", options.target,
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
  ConnectionPool pool_{io_, {}, {}};
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

}  // namespace sluice::cli
