#include "common/model/read_ahead.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/catch_exceptions.h"
#include "common/base/control_group.h"
#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"

namespace sluice {
namespace {

// More threads read no faster than one copies to a device.
constexpr int kMostThreads = 16;

Status ReadPart(const AheadRead& read, int64_t part) {
  return part < read.parts ? read.read(part) : OkStatus();
}

// At least one: a read without parts is a part of nothing.
int64_t PartsOf(const AheadRead& read) {
  return std::max<int64_t>(read.parts, 1);
}

Status ReadInTurn(std::span<const AheadRead> reads) {
  for (const AheadRead& read : reads) {
    if (read.begin) read.begin();
    for (int64_t part = 0; part < PartsOf(read); ++part) {
      SLUICE_RETURN_IF_ERROR(ReadPart(read, part));
      if (read.progress) read.progress(part + 1);
    }
    SLUICE_RETURN_IF_ERROR(read.take());
  }
  return OkStatus();
}

// What the threads share.
class Readers {
 public:
  Readers(std::span<const AheadRead> reads, const ReadAheadOptions& options)
      : reads_(reads), most_bytes_(options.most_bytes), states_(reads.size()) {
    try {
      for (int i = 0; i < options.threads; ++i) {
        threads_.emplace_back(Cat("read-", i), [this] { Work(); });
      }
    } catch (...) {
      Stop();  // those that run wait for it
      throw;
    }
  }
  ~Readers() { Stop(); }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Returns when read `i` has all its parts, or the error of one.
  Status WaitFor(size_t i) {
    const AheadRead& read = reads_[i];
    for (int64_t told = 0; told < PartsOf(read);) {
      told = WaitForMore(i, told);
      if (read.progress) read.progress(told);
    }
    MutexLock lock(mutex_);
    return states_[i].error;
  }
  void Taken(size_t i) {
    MutexLock lock(mutex_);
    bytes_ -= reads_[i].bytes;
    changed_.NotifyAll();
  }

 private:
  struct State {
    int64_t done = 0;  // parts
    int64_t error_part = 0;
    Status error;
  };

  void Stop() {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }

  // Returns the parts that are done once they are more than `told`.
  int64_t WaitForMore(size_t i, int64_t told) {
    MutexLock lock(mutex_);
    while (states_[i].done == told) changed_.Wait(mutex_);
    return states_[i].done;
  }

  bool MayTakePart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return next_part_ > 0 || bytes_ == 0 ||
           bytes_ + reads_[next_read_].bytes <= most_bytes_;
  }

  // Returns false if there is nothing more to read.
  bool TakePart(size_t* read, int64_t* part) {
    MutexLock lock(mutex_);
    while (!stop_ && next_read_ < reads_.size() && !MayTakePart()) {
      changed_.Wait(mutex_);
    }
    if (stop_ || next_read_ == reads_.size()) return false;
    *read = next_read_;
    *part = next_part_++;
    const AheadRead& taken = reads_[*read];
    if (*part == 0) {
      bytes_ += taken.bytes;
      if (taken.begin) taken.begin();
    }
    if (next_part_ == PartsOf(taken)) {
      ++next_read_;
      next_part_ = 0;
    }
    return true;
  }

  void Work() {
    size_t read = 0;
    int64_t part = 0;
    while (TakePart(&read, &part)) {
      Status status;
      const Status ran = CatchExceptions(
          "reading", [&] { status = ReadPart(reads_[read], part); });
      if (!ran.ok()) status = ran;
      MutexLock lock(mutex_);
      State& state = states_[read];
      if (!status.ok() && (state.error.ok() || part < state.error_part)) {
        state.error = std::move(status);
        state.error_part = part;
      }
      ++state.done;
      changed_.NotifyAll();
    }
  }

  const std::span<const AheadRead> reads_;
  const uint64_t most_bytes_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
  // The part that is read next.
  size_t next_read_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_part_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // begun and not taken
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<NamedThread> threads_;  // joined before the rest goes
};

}  // namespace

Status ReadAhead(std::span<const AheadRead> reads,
                 const ReadAheadOptions& options) {
  if (options.threads == 0) return ReadInTurn(reads);
  Readers readers(reads, options);
  for (size_t i = 0; i < reads.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(readers.WaitFor(i));
    SLUICE_RETURN_IF_ERROR(reads[i].take());
    readers.Taken(i);
  }
  return OkStatus();
}

ReadAheadOptions ReadAheadFor(const BackendInfo& device) {
  ReadAheadOptions options;
  if (device.shares_host_memory) return options;
  options.threads = std::min(UsableCpus(), kMostThreads);
  return options;
}

}  // namespace sluice
