#include "kernels/cuda/device_host/machine.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <utility>

#include "common/base/check.h"

namespace sluice::kernels::cuda {
namespace {

// No power of two: the tops of all stacks would be in the same sets of the
// CPU's caches.
constexpr size_t kStackBytes = 64 * 1024 + 9 * 64;
constexpr size_t kMostFaults = 8;
constexpr int kNone = -1;
constexpr int kSeveral = -2;
constexpr std::byte kPoison{0xA5};

// Hands a fibre the stack that its thread keeps.
struct KeptStack {
  std::byte* begin;
  boost::context::stack_context allocate() const {
    boost::context::stack_context stack;
    stack.size = kStackBytes;
    stack.sp = begin + kStackBytes;
    return stack;
  }
  void deallocate(boost::context::stack_context&) const {}
};

}  // namespace

struct Machine::Thread {
  State state = State::kReady;
  int line = 0;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  boost::context::fiber fiber;   // the thread, while it does not run
  boost::context::fiber caller;  // the machine, while it runs
};

// Who touched an element of shared memory, and in which epochs.
struct Machine::Cell {
  int writer = kNone;
  int32_t write_epoch = 0;
  int32_t write_warp_epoch = 0;
  int reader = kNone;
  int reader_warp = kNone;
  int32_t read_epoch = 0;
  int32_t read_warp_epoch = 0;
  int adder = kNone;
  int32_t add_epoch = 0;
  bool awaited = false;  // a copy to it has begun
};

Machine::Machine(Schedule schedule) : schedule_(schedule) {}
Machine::~Machine() = default;

void MachineWork::Enqueue(std::function<void()> work) {
  if (recorded_ != nullptr) return recorded_->push_back(std::move(work));
  if (!later_) return work();
  enqueued_.push_back(std::move(work));
}

MachineWork::Recorded MachineWork::Record(
    const std::function<void()>& enqueue) {
  Recorded recorded;
  recorded_ = &recorded;
  enqueue();
  recorded_ = nullptr;
  return recorded;
}

void MachineWork::RunEnqueued(size_t count) {
  for (; count > 0; --count) {
    const auto work = std::move(enqueued_.front());
    enqueued_.pop_front();
    work();
  }
}

void Machine::Run(int64_t blocks, int threads, size_t shared_bytes,
                  const std::function<void(int thread)>& body) {
  SLUICE_CHECK(threads > 0 && threads <= 1024 && threads % kWarpLanes == 0);
  SLUICE_CHECK(shared_bytes <= limits_.shared_bytes);
  blocks_ = blocks;
  threads_ = threads;
  shared_bytes_ = shared_bytes;
  while (pool_.size() < static_cast<size_t>(threads)) {
    pool_.push_back(std::make_unique<Thread>());
  }
  for (auto& words : words_) words.resize(pool_.size());
  for (auto& tiles : tiles_) tiles.resize(pool_.size());
  for (int64_t i = 0; i < blocks; ++i) {
    block_ = schedule_ == Schedule::kForward ? i : blocks - 1 - i;
    RunBlock(body);
  }
}

void Machine::RunBlock(const std::function<void(int thread)>& body) {
  epoch_ = 0;
  warp_epochs_.assign(static_cast<size_t>(threads_ / kWarpLanes), 0);
  free_bytes_ = shared_bytes_;
  shared_.clear();
  cells_.clear();
  arrays_.clear();
  gates_ = {};
  alive_ = threads_;
  for (int t = 0; t < threads_; ++t) {
    Thread& thread = *pool_[t];
    thread.state = State::kReady;
    thread.fiber = boost::context::fiber(
        std::allocator_arg, KeptStack{thread.stack.get()},
        [&thread, &body, t](boost::context::fiber&& caller) {
          thread.caller = std::move(caller);
          body(t);
          thread.state = State::kDone;
          return std::move(thread.caller);
        });
  }
  while (alive_ > 0) {
    RunReady();
    Release();
  }
}

// Every warp runs up to its next barrier of the block.
void Machine::RunReady() {
  for (int i = 0; i < threads_; i += kWarpLanes) {
    const int first =
        schedule_ == Schedule::kForward ? i : threads_ - kWarpLanes - i;
    do {
      RunWarp(first);
    } while (OpenWarp(first));
  }
}

void Machine::RunWarp(int first) {
  for (int i = 0; i < kWarpLanes; ++i) {
    Thread& thread =
        *pool_[first +
               (schedule_ == Schedule::kForward ? i : kWarpLanes - 1 - i)];
    if (thread.state != State::kReady) continue;
    thread.fiber = std::move(thread.fiber).resume();
    if (thread.state == State::kDone) --alive_;
  }
}

void Machine::Wait(int thread, State state, int line) {
  Thread& own = *pool_[thread];
  own.state = state;
  own.line = line;
  own.caller = std::move(own.caller).resume();
}

void Machine::SyncBlock(int thread, int line) {
  Wait(thread, State::kAtBlock, line);
}

void Machine::SyncWarp(int thread, int line) {
  Wait(thread, State::kAtWarp, line);
}

void Machine::Meet(int thread, int line) { Wait(thread, State::kMeets, line); }

void Machine::Release() {
  if (alive_ == 0) return;
  for (int t = 0; t < threads_; ++t) {
    const Thread& thread = *pool_[t];
    if (thread.state == State::kAtBlock && thread.line == pool_[0]->line &&
        pool_[0]->state == State::kAtBlock) {
      continue;
    }
    Fault(t, "is not at the barrier at which other threads wait");
    break;
  }
  OpenAll();
}

// Returns whether all of the warp wait for each other at one place, and go on.
bool Machine::OpenWarp(int first) {
  const State state = pool_[first]->state;
  if (state != State::kAtWarp && state != State::kMeets) return false;
  for (int t = first; t < first + kWarpLanes; ++t) {
    if (pool_[t]->state != state || pool_[t]->line != pool_[first]->line) {
      return false;
    }
  }
  if (state == State::kAtWarp) ++warp_epochs_[first / kWarpLanes];
  for (int t = first; t < first + kWarpLanes; ++t) {
    pool_[t]->state = State::kReady;
  }
  return true;
}

void Machine::OpenAll() {
  ++epoch_;
  for (int t = 0; t < threads_; ++t) {
    if (pool_[t]->state != State::kDone) pool_[t]->state = State::kReady;
  }
}

SharedArray Machine::Allocate(int thread, int index, size_t size,
                              int64_t count) {
  if (index < static_cast<int>(arrays_.size())) {
    if (arrays_[index].count != count) {
      Fault(thread, "allocates another shared array than other threads");
    }
    return arrays_[index];
  }
  SharedArray array;
  if (!arrays_.empty()) {
    const SharedArray& last = arrays_.back();
    array.bytes_begin = last.bytes_begin + static_cast<size_t>(last.count) * 16;
    array.cells_begin = cells_.size();
  }
  // The machine keeps every cell apart; a GPU packs them.
  array.count = count;
  cells_.resize(array.cells_begin + static_cast<size_t>(count));
  shared_.resize(array.bytes_begin + static_cast<size_t>(count) * 16, kPoison);
  SLUICE_CHECK(size <= 16);
  const size_t used = (size * static_cast<size_t>(count) + 15) / 16 * 16;
  if (used > free_bytes_) {
    Fault(thread, "allocates more shared memory than the launch has");
    free_bytes_ = used;
  }
  free_bytes_ -= used;
  arrays_.push_back(array);
  return array;
}

bool Machine::IsInside(int thread, const SharedArray& array, int64_t i) {
  if (i >= 0 && i < array.count) return true;
  Fault(thread, "leaves a shared array of " + std::to_string(array.count) +
                    ": index " + std::to_string(i));
  return false;
}

// Whether what another thread did in these epochs is before what `thread` does
// now.
bool Machine::Ordered(int other_warp, int thread, int32_t epoch,
                      int32_t warp_epoch) const {
  if (epoch != epoch_) return true;
  const int warp = thread / kWarpLanes;
  return other_warp == warp && warp_epoch != warp_epochs_[warp];
}

std::byte* Machine::Read(int thread, const SharedArray& array, int64_t i,
                         size_t) {
  if (!IsInside(thread, array, i)) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  const int warp = thread / kWarpLanes;
  if (cell.writer == kNone) {
    Fault(thread, "reads shared memory that is not written: index " +
                      std::to_string(i));
  } else if (!IsAddedTo(thread, cell, i) && cell.writer != thread &&
             !Ordered(cell.writer / kWarpLanes, thread, cell.write_epoch,
                      cell.write_warp_epoch)) {
    Fault(thread, "reads without a barrier what thread " +
                      std::to_string(cell.writer) + " writes: index " +
                      std::to_string(i));
  }
  // Readers before the warp's last barrier are before what comes behind it.
  const bool fresh =
      cell.reader == kNone ||
      Ordered(cell.reader_warp, thread, cell.read_epoch, cell.read_warp_epoch);
  if (fresh) cell.reader_warp = warp;
  if (cell.reader_warp != warp) cell.reader_warp = kSeveral;
  cell.reader = fresh || cell.reader == thread ? thread : kSeveral;
  cell.read_epoch = epoch_;
  cell.read_warp_epoch = warp_epochs_[warp];
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

std::byte* Machine::Write(int thread, const SharedArray& array, int64_t i,
                          size_t) {
  if (!IsInside(thread, array, i)) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  const bool over_write = cell.writer != kNone && cell.writer != thread &&
                          !Ordered(cell.writer / kWarpLanes, thread,
                                   cell.write_epoch, cell.write_warp_epoch);
  const bool over_read =
      cell.reader != kNone && cell.reader != thread &&
      !Ordered(cell.reader_warp, thread, cell.read_epoch, cell.read_warp_epoch);
  if (cell.awaited) {
    Fault(thread, "writes what a copy is to bring: index " + std::to_string(i));
  } else if (!IsAddedTo(thread, cell, i) && (over_write || over_read)) {
    Fault(thread, "writes without a barrier what another thread " +
                      std::string(over_write ? "writes" : "reads") +
                      ": index " + std::to_string(i));
  }
  cell.writer = thread;
  cell.write_epoch = epoch_;
  cell.write_warp_epoch = warp_epochs_[thread / kWarpLanes];
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

std::byte* Machine::Update(int thread, const SharedArray& array, int64_t i) {
  if (!IsInside(thread, array, i)) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  if (cell.writer == kNone) {
    Fault(thread, "adds to shared memory that is not written: index " +
                      std::to_string(i));
  } else if (IsRace(cell, thread)) {
    Fault(thread,
          "adds without a barrier to what another thread reads or writes: "
          "index " +
              std::to_string(i));
  }
  const bool alone =
      cell.add_epoch != epoch_ || cell.adder == kNone || cell.adder == thread;
  cell.adder = alone ? thread : kSeveral;
  cell.add_epoch = epoch_;
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

// Whether another thread reads or writes the place, and no barrier orders that
// with what `thread` does now.
bool Machine::IsRace(const Cell& cell, int thread) const {
  return (cell.writer != kNone && cell.writer != thread &&
          !Ordered(cell.writer / kWarpLanes, thread, cell.write_epoch,
                   cell.write_warp_epoch)) ||
         (cell.reader != kNone && cell.reader != thread &&
          !Ordered(cell.reader_warp, thread, cell.read_epoch,
                   cell.read_warp_epoch));
}

// Whether other threads add to the place between the same barriers of the
// block: atomic operations are of no warp.
bool Machine::IsAddedTo(int thread, const Cell& cell, int64_t i) {
  if (cell.adder == kNone || cell.adder == thread || cell.add_epoch != epoch_) {
    return false;
  }
  Fault(thread, "reads or writes without a barrier what others add to: index " +
                    std::to_string(i));
  return true;
}

void Machine::Take(int thread, const SharedArray& array, int64_t i) {
  if (!IsInside(thread, array, i)) return;
  std::fill_n(Write(thread, array, i, 0), 16, kPoison);
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  cell.writer = kNone;
  cell.awaited = true;
}

std::byte* Machine::Arrive(int thread, const SharedArray& array, int64_t i) {
  if (!IsInside(thread, array, i)) return outside_;
  cells_[array.cells_begin + static_cast<size_t>(i)].awaited = false;
  return Write(thread, array, i, 0);
}

std::byte* Machine::Land(const SharedArray& array, int64_t i) {
  if (i < 0 || i >= array.count) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  // Before all that the threads do from here on.
  cell.awaited = false;
  cell.writer = 0;
  cell.write_epoch = kNone;
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

void Machine::Fault(int thread, const std::string& what) {
  if (faults_.size() >= kMostFaults) return;
  faults_.push_back("block " + std::to_string(block_) + ", thread " +
                    std::to_string(thread) + " " + what);
}

}  // namespace sluice::kernels::cuda
