#include "common/concurrency/turn_queue.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/base/retry_after.h"

namespace sluice {
namespace {

// A small job that takes longer makes its client's next jobs large for a time.
constexpr double kSlowSeconds = 0.1;
constexpr auto kSlowFor = std::chrono::seconds(60);
constexpr size_t kMaxSlow = 1024;  // clients remembered
// The charge of a job before its time is known.
constexpr double kMinSeconds = 0.001;
// Between two looks at what has waited too long.
constexpr auto kLook = std::chrono::milliseconds(50);
// The longest wait in a refusal.
constexpr double kMaxSeconds = 30;

}  // namespace

TurnQueue::TurnQueue(Options options) : options_(std::move(options)) {
  SLUICE_CHECK(options_.threads > 0);
  threads_.reserve(static_cast<size_t>(options_.threads) + 1);
  try {
    for (int i = 0; i < options_.threads; ++i) {
      threads_.emplace_back(Cat(options_.name, "-", i), [this, i] { Run(i); });
    }
    threads_.emplace_back(options_.name + "-wait", [this] { RefuseLate(); });
  } catch (...) {
    Stop();  // those that run wait for it
    throw;
  }
}

TurnQueue::~TurnQueue() { Stop(); }

size_t TurnQueue::queued() const {
  MutexLock lock(mutex_);
  return queued_;
}

Status TurnQueue::CheckRoom(const std::string& client,
                            const Client* own) const {
  const size_t waiting = own == nullptr ? 0 : own->queued();
  const size_t active = clients_.size() + (own == nullptr ? 1 : 0);
  // A full queue takes more of clients below their share.
  const bool full =
      queued_ >= options_.max_queued &&
      (active == 1 ||
       waiting >= std::max<size_t>(options_.max_queued / active, 1) ||
       queued_ >= 2 * options_.max_queued);
  const double wait = own == nullptr
                          ? 0
                          : own->mean * static_cast<double>(waiting) *
                                static_cast<double>(active) / options_.threads;
  if (!full && wait <= Seconds(options_.max_wait)) return OkStatus();
  return WithRetryAfter(
      ResourceExhausted("too many requests are being read: ", queued_,
                        " wait, ", waiting, " of this client, limit ",
                        options_.max_queued, " or ", Seconds(options_.max_wait),
                        " s"),
      std::chrono::duration_cast<Duration>(
          std::chrono::duration<double>(std::min(wait, kMaxSeconds))));
}

// Returns the least `spent` of all clients but `but_for`. A client without jobs
// saves nothing: it begins where the others are.
double TurnQueue::LeastSpent(const std::string& but_for) const {
  std::optional<double> least;
  for (const auto& [name, client] : clients_) {
    if (name == but_for) continue;
    least = std::min(least.value_or(client.spent), client.spent);
  }
  return least.value_or(0);
}

Status TurnQueue::Push(Job job) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return Unavailable("shutting down");
    const auto found = clients_.find(job.client);
    if (!job.goes_on) {
      SLUICE_RETURN_IF_ERROR(CheckRoom(
          job.client, found == clients_.end() ? nullptr : &found->second));
    }
    const auto slow = slow_.find(job.client);
    const TimePoint now = Clock::now();
    const bool is_slow = slow != slow_.end() && slow->second > now;
    Client& client = clients_[job.client];
    if (found == clients_.end()) {
      client.spent = LeastSpent(job.client);
    }
    const bool large = is_slow || job.bytes > kSmallBytes;
    client.waiting[large ? 1 : 0].push_back({std::move(job), now});
    ++queued_;
    if (watch_sleeps_) watch_.NotifyOne();
  }
  changed_.NotifyAll();
  return OkStatus();
}

void TurnQueue::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    watch_.NotifyOne();
  }
  changed_.NotifyAll();
  for (NamedThread& thread : threads_) thread.Join();
}

// The first thread takes small jobs alone; the others take those only while it
// is busy. Large jobs must fit into the rest of max_bytes.
bool TurnQueue::MayRun(const Client& client, bool large, int index) const {
  const std::deque<Waiting>& waiting = client.waiting[large ? 1 : 0];
  if (waiting.empty()) return false;
  if (options_.threads > 1) {
    const int most =
        options_.per_client > 0 ? options_.per_client : options_.threads - 1;
    if (client.running >= most) return false;
    if (large && index == 0) return false;
    if (!large && index > 0 && !first_is_busy_) return false;
  }
  return !large || bytes_ == 0 ||
         bytes_ + waiting.front().job.bytes <= options_.max_bytes;
}

std::optional<TurnQueue::Taken> TurnQueue::Take(int index) {
  auto chosen = clients_.end();
  bool large = false;
  for (auto it = clients_.begin(); it != clients_.end(); ++it) {
    if (chosen != clients_.end() && it->second.spent >= chosen->second.spent) {
      continue;
    }
    const bool small_fits = MayRun(it->second, false, index);
    if (!small_fits && !MayRun(it->second, true, index)) continue;
    chosen = it;
    large = !small_fits;
  }
  if (chosen == clients_.end()) return std::nullopt;
  Client& client = chosen->second;
  std::deque<Waiting>& waiting = client.waiting[large ? 1 : 0];
  Taken taken{chosen, std::move(waiting.front()), large,
              std::max(client.mean, kMinSeconds)};
  waiting.pop_front();
  --queued_;
  ++client.running;
  client.spent += taken.charged;
  if (large) bytes_ += taken.waiting.job.bytes;
  if (index == 0) first_is_busy_ = true;
  return taken;
}

void TurnQueue::Done(const Taken& taken, double seconds) {
  Client& client = taken.client->second;
  client.spent += seconds - taken.charged;
  client.mean += (seconds - client.mean) / 4;
  if (taken.large) bytes_ -= taken.waiting.job.bytes;
  if (!taken.large && seconds > kSlowSeconds) {
    if (slow_.size() >= kMaxSlow) slow_.clear();
    try {
      slow_[taken.client->first] = Clock::now() + kSlowFor;
    } catch (const std::bad_alloc&) {
      CountException(options_.name);  // the client is forgiven
    }
  }
  if (--client.running == 0 && client.queued() == 0) {
    clients_.erase(taken.client);
  }
}

void TurnQueue::Run(int index) {
  if (index > 0 && options_.nice > 0) {
    setpriority(PRIO_PROCESS, 0, options_.nice);  // of this thread alone
  }
  while (true) {
    std::optional<Taken> taken;
    {
      MutexLock lock(mutex_);
      while (!(taken = Take(index))) {
        if (stopped_ && queued_ == 0) return;
        changed_.Wait(mutex_);
      }
      // The first thread is busy now, so the others may take small jobs.
      if (index == 0 && queued_ > 0) changed_.NotifyAll();
    }
    const TimePoint begin = Clock::now();
    Job& job = taken->waiting.job;
    const Status over = CatchAndCount(options_.name, [&] {
      const Status late = CheckWait(taken->waiting, begin);
      if (late.ok()) return RunJob(job);
      Refuse(job, late);
    });
    if (!over.ok()) Refuse(job, over);
    // Its memory is freed outside the lock.
    job.run = nullptr;
    job.refused = nullptr;
    job.wanted = nullptr;
    {
      MutexLock lock(mutex_);
      if (index == 0) first_is_busy_ = false;
      Done(*taken, Seconds(Clock::now() - begin));
    }
    changed_.NotifyAll();
  }
}

Status TurnQueue::CheckWait(const Waiting& waiting, TimePoint now) const {
  const Job& job = waiting.job;
  if (job.deadline && *job.deadline <= now) {
    return DeadlineExceeded("the request's deadline passed before it was read");
  }
  const Duration waited = now - waiting.since;
  if (job.goes_on || waited <= options_.max_wait) return OkStatus();
  return ResourceExhausted("the request waited ", Seconds(waited),
                           " s to be read, limit ", Seconds(options_.max_wait),
                           " s");
}

std::vector<TurnQueue::Waiting> TurnQueue::TakeLate() {
  std::vector<Waiting> late;
  late.reserve(queued_);  // what throws below would lose jobs
  const TimePoint now = Clock::now();
  for (auto it = clients_.begin(); it != clients_.end();) {
    Client& client = it->second;
    for (std::deque<Waiting>& waiting : client.waiting) {
      const auto in_time = std::stable_partition(
          waiting.begin(), waiting.end(),
          [&](const Waiting& one) { return !CheckWait(one, now).ok(); });
      std::move(waiting.begin(), in_time, std::back_inserter(late));
      waiting.erase(waiting.begin(), in_time);
    }
    const bool is_done = client.running == 0 && client.queued() == 0;
    it = is_done ? clients_.erase(it) : std::next(it);
  }
  queued_ -= late.size();
  return late;
}

void TurnQueue::RefuseLate() {
  for (;;) {
    std::vector<Waiting> late;
    {
      MutexLock lock(mutex_);
      while (queued_ == 0 && !stopped_) {
        watch_sleeps_ = true;
        watch_.Wait(mutex_);
      }
      watch_sleeps_ = false;
      const TimePoint next = Clock::now() + kLook;
      while (!stopped_ && watch_.WaitUntil(mutex_, next)) {
      }
      if (stopped_) return;
      try {
        late = TakeLate();
      } catch (const std::bad_alloc&) {
        CountException(options_.name);
      }
    }
    for (const Waiting& one : late) {
      Refuse(one.job, CheckWait(one, Clock::now()));
    }
  }
}

void TurnQueue::RunJob(Job& job) const {
  const Status status = CatchAndCount(options_.name, [&] {
    if (!job.wanted || job.wanted()) job.run();
  });
  if (status.ok()) return;
  if (job.refused) {  // `refused` says so
    Refuse(job, status);
  } else {
    LogError("a job of ", job.client, " failed: ", Message(status));
  }
}

void TurnQueue::Refuse(const Job& job, const Status& why) {
  if (!job.refused) return;
  const Status told = CatchExceptions("refusal", [&] { job.refused(why); });
  if (told.ok()) return;
  CatchExceptions("refusal", [&] {
    LogError("not told of a failure: ", Message(told));
  }).IgnoreError();
}

}  // namespace sluice
