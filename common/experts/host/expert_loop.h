#ifndef SLUICE_COMMON_EXPERTS_HOST_EXPERT_LOOP_H_
#define SLUICE_COMMON_EXPERTS_HOST_EXPERT_LOOP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/experts/host/expert_heat.h"
#include "common/model/hosted_experts.h"
#include "common/wire/expert.h"

namespace sluice {

class ExpertMetrics;

// Receives a batch's result. Called by the loop's thread; must not block.
class ExpertResultSink {
 public:
  virtual ~ExpertResultSink() = default;
  // `received_ns`: the batch's. The sink fills in total_ns.
  virtual void OnResult(wire::ExpertResult result, int64_t received_ns) = 0;
};

struct QueuedBatch {
  wire::ExpertBatch batch;
  int64_t received_ns = 0;  // when its frame came
  int64_t queued_ns = 0;    // when it had passed the checks
  std::shared_ptr<ExpertResultSink> sink;
};

struct ExpertLoopOptions {
  int32_t max_queued = 1024;  // batches
  int32_t max_rows = 0;       // of one computation
  // The time a batch may wait for other clients' batches of its layer. It waits
  // only if another client sent rows for that layer within the last `recent`.
  Duration join_window = std::chrono::microseconds(50);
  Duration recent = std::chrono::seconds(1);
  // The loop counts as stalled if batches wait and none makes progress for this
  // long.
  Duration stalled_after = std::chrono::seconds(5);
  Duration debug_delay{};  // for tests: makes every computation longer
  ExpertMetrics* metrics = nullptr;  // outlives the loop; may be null
  ExpertHeat* heat = nullptr;        // the same
};

struct ExpertLoopStats {
  uint64_t batches_done = 0;
  int32_t queue_depth = 0;  // batches that wait or are being computed
  int64_t busy_ns = 0;
  double wait_seconds = 0;  // of the thread, without work
};

// Computes batches, one thread ("expert-loop"). It takes the oldest first, with
// all waiting batches for the same nodes of the same layer: their rows form one
// matrix, so that each expert's weights are read once. A row's sums do not
// depend on the other rows.
class ExpertLoop {
 public:
  // `experts` must outlive the loop.
  ExpertLoop(HostedExperts* experts, ExpertLoopOptions options);
  ~ExpertLoop();  // Stop
  ExpertLoop(const ExpertLoop&) = delete;
  ExpertLoop& operator=(const ExpertLoop&) = delete;

  void Start();
  // Computes nothing more and joins the thread. Idempotent.
  void Stop();

  // Any thread. RESOURCE_EXHAUSTED when full, UNAVAILABLE when stopped; the
  // sink is not called then.
  Status Push(QueuedBatch batch);
  // Returns true when no batch waits or is being computed, false if it is
  // still so at `deadline`.
  bool WaitIdle(TimePoint deadline);
  ExpertLoopStats Stats() const;
  // Whether batches wait without progress.
  bool Stalled() const;

 private:
  using Group = std::vector<QueuedBatch>;
  void Work();
  Group TakeGroup();
  // The number of clients that sent rows for `layer` lately.
  size_t RecentClients(int32_t layer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves all fitting batches from the queue to `group`.
  void Join(Group& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Compute(Group& group);
  void LayOut(const Group& group, int32_t rows);
  void RunRows(const Group& group, kernels::ConstMatrix x, float* sums);
  void Answer(Group& group, Buffer sums, int64_t begin_ns, int64_t end_ns);
  void NoteProgress() ABSL_LOCKS_EXCLUDED(mutex_);

  HostedExperts& experts_;
  const ExpertLoopOptions options_;
  NamedThread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<QueuedBatch> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // By layer: each client and when it last sent rows (nanoseconds).
  std::map<int32_t, std::map<const ExpertResultSink*, int64_t>> clients_
      ABSL_GUARDED_BY(mutex_);
  int32_t computing_ ABSL_GUARDED_BY(mutex_) = 0;  // batches
  ExpertLoopStats stats_ ABSL_GUARDED_BY(mutex_);
  TimePoint progress_ ABSL_GUARDED_BY(mutex_);  // the last, while it has any

  // The thread's own: the joined rows.
  Buffer x_;                     // [rows, H] of several batches
  std::vector<int32_t> ids_;     // [rows, k]; unused places: beyond all ids
  std::vector<float> weights_;   // [rows, k]
  std::vector<int32_t> counts_;  // [rows]: experts of each
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_HOST_EXPERT_LOOP_H_
