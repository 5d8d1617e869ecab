#include "common/experts/host/expert_loop.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "common/experts/host/expert_metrics.h"

namespace sluice {
namespace {

// Bytes of the outputs of one kernel call: the kernel keeps that much memory.
// Rows are independent, so cutting them changes no bit.
constexpr int64_t kMaxOutputBytes = int64_t{16} << 20;

bool SameNodes(const wire::ExpertBatch& a, const wire::ExpertBatch& b) {
  return a.layer == b.layer && a.nodes == b.nodes;
}

int32_t RowsOf(const std::vector<QueuedBatch>& group) {
  int32_t rows = 0;
  for (const QueuedBatch& queued : group) rows += queued.batch.rows();
  return rows;
}

wire::ExpertResult EmptyResult(const wire::ExpertBatch& batch) {
  wire::ExpertResult result;
  result.replica = batch.replica;
  result.epoch = batch.epoch;
  result.step = batch.step;
  result.batch_id = batch.batch_id;
  result.layer = batch.layer;
  result.nodes = static_cast<int32_t>(batch.nodes.size());
  result.rows = batch.rows();
  result.sent_ns = batch.sent_ns;
  return result;
}

// Writes NaN into every node of failed rows, so that no stage adds them.
void SpoilFailed(const wire::ExpertBatch& batch, Buffer& sums) {
  const int64_t cols = batch.x.cols;
  for (const wire::ExpertRowFailure& failure : batch.failures) {
    for (size_t node = 0; node < batch.nodes.size(); ++node) {
      const int64_t at =
          (static_cast<int64_t>(node) * batch.rows() + failure.row) * cols;
      std::fill_n(sums.as<float>() + at, cols,
                  std::numeric_limits<float>::quiet_NaN());
    }
  }
}

}  // namespace

ExpertLoop::ExpertLoop(HostedExperts* experts, ExpertLoopOptions options)
    : experts_(*experts), options_(options) {}

ExpertLoop::~ExpertLoop() { Stop(); }

void ExpertLoop::Start() {
  thread_ = NamedThread("expert-loop", [this] { Work(); });
}

void ExpertLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.Join();
}

Status ExpertLoop::Push(QueuedBatch batch) {
  {
    MutexLock lock(mutex_);
    if (stop_) return Unavailable("this host is shutting down");
    if (queue_.size() >= static_cast<size_t>(options_.max_queued)) {
      return ResourceExhausted("this host's queue is full: limit ",
                               options_.max_queued, " batches");
    }
    if (queue_.empty() && computing_ == 0) progress_ = Clock::now();
    clients_[batch.batch.layer][batch.sink.get()] = batch.queued_ns;
    queue_.push_back(std::move(batch));
  }
  changed_.NotifyAll();
  return OkStatus();
}

bool ExpertLoop::WaitIdle(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!queue_.empty() || computing_ > 0) {
    if (!changed_.WaitUntil(mutex_, deadline)) {
      return queue_.empty() && computing_ == 0;
    }
  }
  return true;
}

ExpertLoopStats ExpertLoop::Stats() const {
  MutexLock lock(mutex_);
  ExpertLoopStats stats = stats_;
  stats.queue_depth = static_cast<int32_t>(queue_.size()) + computing_;
  return stats;
}

bool ExpertLoop::Stalled() const {
  MutexLock lock(mutex_);
  if (stop_ || (queue_.empty() && computing_ == 0)) return false;
  return Clock::now() - progress_ > options_.stalled_after;
}

void ExpertLoop::NoteProgress() {
  MutexLock lock(mutex_);
  progress_ = Clock::now();
}

void ExpertLoop::Work() {
  // The window is shorter than the system's usual slack of timers.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  while (true) {
    Group group = TakeGroup();
    if (group.empty()) return;
    Compute(group);
    {
      MutexLock lock(mutex_);
      stats_.batches_done += group.size();
      computing_ = 0;
      progress_ = Clock::now();
    }
    changed_.NotifyAll();
  }
}

void ExpertLoop::Join(Group& group) {
  int32_t rows = RowsOf(group);
  for (auto at = queue_.begin(); at != queue_.end();) {
    const bool fits = rows + at->batch.rows() <= options_.max_rows;
    if (!fits || !SameNodes(at->batch, group.front().batch)) {
      ++at;
      continue;
    }
    rows += at->batch.rows();
    group.push_back(std::move(*at));
    at = queue_.erase(at);
  }
}

size_t ExpertLoop::RecentClients(int32_t layer) {
  auto& clients = clients_[layer];
  const int64_t oldest = ToNanos(Clock::now() - options_.recent);
  std::erase_if(clients,
                [&](const auto& client) { return client.second < oldest; });
  return clients.size();
}

ExpertLoop::Group ExpertLoop::TakeGroup() {
  Group group;
  MutexLock lock(mutex_);
  const TimePoint begin = Clock::now();
  while (queue_.empty() && !stop_) changed_.Wait(mutex_);
  stats_.wait_seconds += Seconds(Clock::now() - begin);
  if (stop_) return group;
  group.push_back(std::move(queue_.front()));
  queue_.pop_front();
  computing_ = 1;
  Join(group);
  // Stages of other replicas may be about to send rows for the same layer.
  const size_t others = RecentClients(group.front().batch.layer);
  const TimePoint deadline =
      TimePoint(std::chrono::nanoseconds(group.front().queued_ns)) +
      options_.join_window;
  while (!stop_ && group.size() + queue_.size() < others &&
         changed_.WaitUntil(mutex_, deadline)) {
    Join(group);
  }
  Join(group);
  computing_ = static_cast<int32_t>(group.size());
  return group;
}

void ExpertLoop::LayOut(const Group& group, int32_t rows) {
  const auto per_row = static_cast<size_t>(experts_.info().experts_per_token);
  ids_.resize(static_cast<size_t>(rows) * per_row);
  weights_.assign(ids_.size(), 0.0f);
  counts_.assign(static_cast<size_t>(rows), 0);
  size_t row = 0;
  for (const QueuedBatch& queued : group) {
    const wire::ExpertBatch& batch = queued.batch;
    auto failure = batch.failures.begin();
    size_t from = 0;
    for (int32_t t = 0; t < batch.rows(); ++t, ++row) {
      const auto count = static_cast<size_t>(batch.counts[t]);
      const bool failed = failure != batch.failures.end() && failure->row == t;
      if (failed) ++failure;
      const size_t asks = failed ? 0 : count;
      counts_[row] = static_cast<int32_t>(asks);
      for (size_t j = 0; j < per_row; ++j) {
        const size_t to = row * per_row + j;
        // The ids of unused places rise beyond the last expert.
        ids_[to] = j < asks
                       ? batch.expert_ids[from + j]
                       : experts_.info().num_experts + static_cast<int32_t>(j);
        if (j < asks) weights_[to] = batch.weights[from + j];
      }
      from += count;
    }
  }
}

void ExpertLoop::RunRows(const Group& group, kernels::ConstMatrix x,
                         float* sums) {
  const std::vector<kernels::TreeNode>& nodes = group.front().batch.nodes;
  const int32_t per_row = experts_.info().experts_per_token;
  const int64_t most = std::max<int64_t>(
      1, kMaxOutputBytes / (static_cast<int64_t>(sizeof(float)) * x.cols));
  std::vector<kernels::Matrix> parts(nodes.size());
  for (int64_t begin = 0; begin < x.rows;) {
    int64_t end = begin;
    int64_t asks = 0;
    while (end < x.rows && (end == begin || asks + counts_[end] <= most)) {
      asks += counts_[end++];
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) * x.rows + begin;
      parts[i] = {sums + row * x.cols, end - begin, x.cols, x.cols};
    }
    RoutedRows routed;
    routed.layer = group.front().batch.layer;
    routed.x = {x.row(begin), end - begin, x.cols, x.stride};
    routed.routing = {ids_.data() + begin * per_row,
                      weights_.data() + begin * per_row, per_row};
    experts_.Run(routed, nodes, parts);
    NoteProgress();
    begin = end;
  }
}

void ExpertLoop::Compute(Group& group) {
  const int64_t begin_ns = MonotonicNanos();
  const int32_t rows = RowsOf(group);
  const int64_t cols = experts_.info().hidden_size;
  const size_t row_bytes = sizeof(float) * static_cast<size_t>(cols);
  LayOut(group, rows);
  kernels::ConstMatrix x = {group.front().batch.x.values(), rows, cols, cols};
  if (group.size() > 1) {
    const size_t bytes = row_bytes * static_cast<size_t>(rows);
    if (x_.size() < bytes) x_ = Buffer(bytes);
    std::byte* to = x_.data();
    for (const QueuedBatch& queued : group) {
      std::memcpy(to, queued.batch.x.values(), queued.batch.x.data.size());
      to += queued.batch.x.data.size();
    }
    x.data = x_.as<float>();
  }
  Buffer sums(row_bytes * static_cast<size_t>(rows) *
              group.front().batch.nodes.size());
  RunRows(group, x, sums.as<float>());
  if (options_.debug_delay > Duration::zero()) {
    std::this_thread::sleep_for(options_.debug_delay);
  }
  const int64_t end_ns = MonotonicNanos();
  {
    MutexLock lock(mutex_);
    stats_.busy_ns += end_ns - begin_ns;
  }
  Answer(group, std::move(sums), begin_ns, end_ns);
}

void ExpertLoop::Answer(Group& group, Buffer sums, int64_t begin_ns,
                        int64_t end_ns) {
  const int32_t rows = RowsOf(group);
  const size_t row_bytes =
      sizeof(float) * static_cast<size_t>(experts_.info().hidden_size);
  if (options_.metrics != nullptr) {
    options_.metrics->OnComputed(static_cast<int32_t>(group.size()), rows,
                                 end_ns - begin_ns);
  }
  size_t first = 0;  // row of the joined matrix
  for (QueuedBatch& queued : group) {
    const wire::ExpertBatch& batch = queued.batch;
    wire::ExpertResult result = EmptyResult(batch);
    result.times.queue_ns = std::max<int64_t>(0, begin_ns - queued.queued_ns);
    result.times.compute_ns = end_ns - begin_ns;
    result.times.joined_batches = static_cast<int32_t>(group.size());
    result.times.joined_rows = rows;
    const size_t bytes = row_bytes * static_cast<size_t>(batch.rows());
    if (group.size() == 1) {
      result.sums = std::move(sums);
    } else {
      result.sums = Buffer(bytes * batch.nodes.size(), Buffer::Kept::kPass);
      for (size_t i = 0; i < batch.nodes.size(); ++i) {
        const size_t from = i * static_cast<size_t>(rows) + first;
        std::memcpy(result.sums.data() + i * bytes,
                    sums.data() + from * row_bytes, bytes);
      }
    }
    first += static_cast<size_t>(batch.rows());
    SpoilFailed(batch, result.sums);
    result.failures = batch.failures;
    if (options_.heat != nullptr) {
      options_.heat->Add(batch.layer, batch.expert_ids);
    }
    if (options_.metrics != nullptr) {
      options_.metrics->OnAnswered(result);
    }
    queued.sink->OnResult(std::move(result), queued.received_ns);
  }
}

}  // namespace sluice
