#ifndef SLUICE_COMMON_CONCURRENCY_TURN_QUEUE_H_
#define SLUICE_COMMON_CONCURRENCY_TURN_QUEUE_H_

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"

namespace sluice {

// A few threads for work of many clients that would block an event loop:
// tokenizing, rendering a template, formatting a large answer.
//
// Clients take turns: the client with the least use of the threads is next.
// With several threads no client has all of them at once. The first thread is
// kept for small jobs: it takes no large job, and none of a client whose jobs
// took long lately. The other threads run at a lower priority (nice), so that
// large jobs give way to the process' other threads. One more thread refuses
// what has waited too long while all of them are busy.
class TurnQueue {
 public:
  struct Options {
    // Of the threads, "text-0", "text-1", .., "text-wait"; and the place at
    // which exceptions are counted (exception_counts.h).
    std::string name = "text";
    int threads = 3;          // at least 1
    size_t max_queued = 256;  // waiting jobs, of all clients
    Duration max_wait = std::chrono::seconds(30);
    size_t max_bytes = size_t{512} << 20;  // of large running jobs together
    int nice = 0;                          // of all threads but the first
    int per_client = 0;  // jobs of a client at once; 0: all threads but one
  };
  struct Job {
    std::string client;
    size_t bytes = 0;  // of memory that it takes while it runs, estimated
    std::optional<TimePoint> deadline;
    // Continues earlier jobs, one at a time: only `deadline` and Stop refuse
    // it, not a full queue and not max_wait.
    bool goes_on = false;
    // Called before the job runs; false drops it. May be empty; so may
    // `refused`.
    std::function<bool()> wanted;
    std::function<void()> run;
    // Called in the place of `run`: RESOURCE_EXHAUSTED after max_wait,
    // DEADLINE_EXCEEDED after the deadline. Called after `run` with its
    // exception (see CatchExceptions).
    std::function<void(const Status&)> refused;
  };

  explicit TurnQueue(Options options);
  ~TurnQueue();  // Stop()
  TurnQueue(const TurnQueue&) = delete;
  TurnQueue& operator=(const TurnQueue&) = delete;

  // Any thread. RESOURCE_EXHAUSTED, with RetryAfterSeconds, when the queue is
  // full or the job would wait longer than max_wait; UNAVAILABLE when stopped.
  // After an error none of the job's functions is called.
  Status Push(Job job);

  // Refuses new jobs, runs queued ones, joins. Idempotent. Not from a job.
  void Stop();

  size_t queued() const;
  Duration max_wait() const { return options_.max_wait; }

  // Jobs of more bytes are large.
  static constexpr size_t kSmallBytes = size_t{8} << 20;

 private:
  struct Waiting {
    Job job;
    TimePoint since;
  };
  struct Client {
    std::array<std::deque<Waiting>, 2> waiting;  // small ones, large ones
    int running = 0;
    double spent = 0;  // seconds of threads, ahead of clients that just came
    double mean = 0;   // seconds of a job, lately
    size_t queued() const { return waiting[0].size() + waiting[1].size(); }
  };
  using Clients = std::map<std::string, Client>;
  struct Taken {
    Clients::iterator client;  // stays while the client has a job running
    Waiting waiting;
    bool large = false;
    double charged = 0;  // seconds, in advance
  };

  void Run(int index);
  void RefuseLate();
  // Takes out the jobs that wait no longer.
  std::vector<Waiting> TakeLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns why a job does not run, or OK.
  Status CheckWait(const Waiting& waiting, TimePoint now) const;
  void RunJob(Job& job) const;
  static void Refuse(const Job& job, const Status& why);
  Status CheckRoom(const std::string& client, const Client* own) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double LeastSpent(const std::string& but_for) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayRun(const Client& client, bool large, int index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Taken> Take(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Done(const Taken& taken, double seconds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar watch_;  // of the thread that refuses
  bool watch_sleeps_ ABSL_GUARDED_BY(mutex_) = false;
  Clients clients_ ABSL_GUARDED_BY(mutex_);  // with a job waiting or running
  // Clients with a slow small job, whose jobs count as large until then.
  std::map<std::string, TimePoint> slow_ ABSL_GUARDED_BY(mutex_);
  size_t queued_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of large jobs that run
  bool first_is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<NamedThread> threads_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_TURN_QUEUE_H_
