#include "tests/cuda_machine/machine.h"

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
  boost::context::fiber fiber;  // the thread, while it does not run
};

// Threads of a warp that become ready together go on one behind the other, and
// the last of them gives way to the machine: half the switches that a return to
// the machine behind each would take.
struct Machine::Fibres {
  // Gives way from `own` to `next`, or to the machine, and comes back when
  // another gives way to `own`.
  void Switch(boost::context::fiber* own, Thread* next) {
    left = own;
    Keep(Of(next).resume());
  }
  // The fibre of `next`, or the machine's where it is null, to be resumed.
  boost::context::fiber&& Of(Thread* next) {
    return std::move(next != nullptr ? next->fiber : machine);
  }
  // Stores `other`, which has given way, in its owner's place.
  void Keep(boost::context::fiber&& other) { *left = std::move(other); }

  boost::context::fiber machine;          // while a thread runs
  boost::context::fiber* left = nullptr;  // where Keep stores what gave way
};

Machine::Machine(Schedule schedule)
    : schedule_(schedule), fibres_(std::make_unique<Fibres>()) {}
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

void Machine::RunAll(const MachineLaunch& launch, const Body& body) {
  SLUICE_CHECK(early_block_ == kNoBlock);
  Prepare(launch, body);
  RunBlocksBut(kNoBlock);
}

void Machine::RunWaiting(const MachineLaunch& launch, const Body& body) {
  if (early_block_ == kNoBlock) {
    RunAll(launch, body);
    return CheckWaited();
  }
  Prepare(launch, body);
  is_early_ = true;
  BeginBlock(early_block_);
  RunBlock();
  is_early_ = false;
}

void Machine::RunRest() {
  const int64_t begun = std::exchange(early_block_, kNoBlock);
  for (int t = 0; t < threads_; ++t) {
    Thread& thread = *pool_[t];
    if (thread.state == State::kAtInputs) thread.state = State::kReady;
  }
  RunBlock();
  RunBlocksBut(begun);
  CheckWaited();
}

void Machine::Prepare(const MachineLaunch& launch, const Body& body) {
  SLUICE_CHECK(launch.threads > 0 && launch.threads <= 1024 &&
               launch.threads % kWarpLanes == 0);
  SLUICE_CHECK(launch.shared_bytes <= limits_.shared_bytes);
  SLUICE_CHECK(alive_ == 0);
  blocks_ = launch.blocks;
  threads_ = launch.threads;
  shared_bytes_ = launch.shared_bytes;
  body_ = body;
  has_waited_ = false;
  while (pool_.size() < static_cast<size_t>(threads_)) {
    pool_.push_back(std::make_unique<Thread>());
  }
  for (auto& words : words_) words.resize(pool_.size());
  for (auto& tiles : tiles_) tiles.resize(pool_.size());
}

void Machine::RunBlocksBut(int64_t block) {
  for (int64_t i = 0; i < blocks_; ++i) {
    const int64_t next = schedule_ == Schedule::kForward ? i : blocks_ - 1 - i;
    if (next == block) continue;
    BeginBlock(next);
    RunBlock();
  }
}

void Machine::CheckWaited() {
  if (has_waited_ || faults_.size() >= kMostFaults) return;
  faults_.push_back("no thread of a launch of " + std::to_string(blocks_) +
                    " blocks waits for its inputs");
}

void Machine::TakeFaults(Machine* other) {
  for (std::string& fault : other->faults_) {
    if (faults_.size() < kMostFaults) faults_.push_back(std::move(fault));
  }
  other->faults_.clear();
}

void Machine::BeginBlock(int64_t block) {
  block_ = block;
  Clear(threads_, shared_bytes_);
  gates_ = {};
  alive_ = threads_;
  for (int t = 0; t < threads_; ++t) {
    Thread& thread = *pool_[t];
    thread.state = State::kReady;
    thread.fiber =
        boost::context::fiber(std::allocator_arg, KeptStack{thread.stack.get()},
                              [this, t](boost::context::fiber&& other) {
                                fibres_->Keep(std::move(other));
                                body_(t);
                                pool_[t]->state = State::kDone;
                                --alive_;
                                fibres_->left = &pool_[t]->fiber;
                                return fibres_->Of(NextOf(t));
                              });
  }
}

void Machine::RunBlock() {
  while (alive_ > 0) {
    RunReady();
    if (is_early_ && WaitsForInputs()) return;
    Release();
  }
}

bool Machine::WaitsForInputs() const {
  return std::any_of(pool_.begin(), pool_.begin() + threads_,
                     [](const std::unique_ptr<Thread>& thread) {
                       return thread->state == State::kAtInputs;
                     });
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
  const int lane =
      schedule_ == Schedule::kForward ? first : first + kWarpLanes - 1;
  Thread* thread = pool_[lane].get();
  if (thread->state != State::kReady) thread = NextOf(lane);
  if (thread != nullptr) fibres_->Switch(&fibres_->machine, thread);
}

Machine::Thread* Machine::NextOf(int thread) const {
  const bool is_forward = schedule_ == Schedule::kForward;
  const int first = thread / kWarpLanes * kWarpLanes;
  const int end = is_forward ? first + kWarpLanes : first - 1;
  const int step = is_forward ? 1 : -1;
  for (int t = thread + step; t != end; t += step) {
    if (pool_[t]->state == State::kReady) return pool_[t].get();
  }
  return nullptr;
}

void Machine::Wait(int thread, State state, int line) {
  Thread& own = *pool_[thread];
  own.state = state;
  own.line = line;
  fibres_->Switch(&own.fiber, NextOf(thread));
}

void Machine::WaitForInputs(int thread) {
  has_waited_ = true;
  if (is_early_) Wait(thread, State::kAtInputs, 0);
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
  if (state == State::kAtWarp) PassWarp(first / kWarpLanes);
  for (int t = first; t < first + kWarpLanes; ++t) {
    pool_[t]->state = State::kReady;
  }
  return true;
}

void Machine::OpenAll() {
  PassBlock();
  for (int t = 0; t < threads_; ++t) {
    if (pool_[t]->state != State::kDone) pool_[t]->state = State::kReady;
  }
}

void Machine::Fault(int thread, const std::string& what) {
  if (faults_.size() >= kMostFaults) return;
  faults_.push_back("block " + std::to_string(block_) + ", thread " +
                    std::to_string(thread) + " " + what);
}

}  // namespace sluice::kernels::cuda
