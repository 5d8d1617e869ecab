#include "tests/simulation/world.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <utility>

#include "common/base/check.h"
#include "tests/engine/fake_stages.h"

namespace sluice::simulation {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kGuardBytes = 4096;
// Of a fibre that gives way: others run, or time passes as well.
constexpr Duration kLongestPause = std::chrono::milliseconds(3);
// Far more than any run has.
constexpr uint64_t kMostMoves = 20'000'000;

thread_local World* g_world = nullptr;

// Stacks are kept for the next runs.
std::vector<std::byte*>& FreeStacks() {
  static auto* const stacks = new std::vector<std::byte*>();
  return *stacks;
}

std::byte* TakeStack() {
  std::vector<std::byte*>& free = FreeStacks();
  if (!free.empty()) {
    std::byte* const stack = free.back();
    free.pop_back();
    return stack;
  }
  void* const memory =
      mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SLUICE_CHECK(memory != MAP_FAILED);
  SLUICE_CHECK(mprotect(memory, kGuardBytes, PROT_NONE) == 0);
  return static_cast<std::byte*>(memory) + kGuardBytes;
}

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

struct Fibre {
  uint64_t number = 0;
  Process* process = nullptr;
  std::function<void()> body;
  std::byte* stack = nullptr;
  boost::context::fiber context;  // while it does not run
  boost::context::fiber caller;   // while it runs
  bool done = false;
  uint64_t waits = 0;  // so far
  WaitList* list = nullptr;
  bool timed_out = false;
  TimePoint deadline = TimePoint::max();
};

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15;
  return Mix(state_);
}

// Process --------------------------------------------------------------------

void Process::Resume() {
  stopped_ = false;
  for (Fibre* fibre : std::exchange(parked_, {})) {
    World::Get().MakeReady(fibre);
  }
  while (!held_.empty() && !stopped_) {
    const auto work = std::move(held_.front());
    held_.pop_front();
    work();
  }
}

void Process::WhenRunning(std::function<void()> work) {
  if (!stopped_) return work();
  held_.push_back(std::move(work));
}

void Process::Jump(Duration ahead) {
  clock_ += ahead;
  for (const auto& fibre : World::Get().fibres_) {
    if (fibre->process == this && fibre->list != nullptr &&
        fibre->deadline != TimePoint::max()) {
      World::Get().WakeAt(fibre.get(), fibre->waits);
    }
  }
}

// WaitList -------------------------------------------------------------------

WaitList::~WaitList() {
  for (Fibre* fibre : fibres_) fibre->list = nullptr;
}

void WaitList::Wait() { WaitUntil(TimePoint::max()); }

bool WaitList::WaitUntil(TimePoint deadline) {
  World& world = World::Get();
  Fibre* const fibre = world.current_;
  SLUICE_CHECK(fibre != nullptr);
  fibres_.push_back(fibre);
  fibre->list = this;
  fibre->timed_out = false;
  fibre->deadline = deadline;
  ++fibre->waits;
  if (deadline != TimePoint::max()) world.WakeAt(fibre, fibre->waits);
  world.Suspend();
  return !fibre->timed_out;
}

void WaitList::WakeOne() {
  if (fibres_.empty()) return;
  Fibre* const fibre = fibres_.front();
  fibres_.erase(fibres_.begin());
  fibre->list = nullptr;
  World::Get().MakeReady(fibre);
}

void WaitList::WakeAll() {
  while (!fibres_.empty()) WakeOne();
}

void MayYield() {
  World* const world = g_world;
  if (world == nullptr || world->current_ == nullptr) return;
  Fibre* const fibre = world->current_;
  const int yields = fibre->process->yields;
  if (yields == 0 || !world->random_.Chance(yields)) return;
  if (world->random_.Below(8) == 0) {
    return world->Sleep(world->random_.Up(kLongestPause) *
                        fibre->process->slowness);
  }
  world->MakeReady(fibre);
  world->Suspend();
}

bool Joint::IsCurrent() const {
  const Fibre* const current = World::Get().current_;
  return current != nullptr && current->number == fibre;
}

std::shared_ptr<Joint> SpawnHere(std::string name, std::function<void()> body) {
  World& world = World::Get();
  SLUICE_CHECK(world.current_ != nullptr);
  auto joint = std::make_shared<Joint>();
  Fibre* const fibre =
      world.Make(world.current_->process, [joint, body = std::move(body)] {
        body();
        joint->done = true;
        joint->waiting.WakeAll();
      });
  joint->fibre = fibre->number;
  world.MakeReady(fibre);
  return joint;
}

// World ----------------------------------------------------------------------

World::World(uint64_t seed) : random_(Mix(seed)) { g_world = this; }

World::~World() {
  for (const auto& fibre : fibres_) {
    SLUICE_CHECK(fibre->done);
    FreeStacks().push_back(fibre->stack);
  }
  // Events that come to nothing may still hold what the run has made.
  events_.clear();
  g_world = nullptr;
}

World& World::Get() {
  SLUICE_CHECK(g_world != nullptr);
  return *g_world;
}

void World::Note(uint64_t what) {
  digest_ = Mix(digest_ ^ what ^ static_cast<uint64_t>(now_.count()));
}

Process* World::AddProcess(std::string name, int host, Duration clock) {
  processes_.push_back(std::make_unique<Process>(std::move(name), host, clock));
  return processes_.back().get();
}

Fibre* World::Make(Process* process, std::function<void()> body) {
  if (idle_.empty()) {
    fibres_.push_back(std::make_unique<Fibre>());
    fibres_.back()->stack = TakeStack();
    idle_.push_back(fibres_.back().get());
  }
  Fibre* const fibre = idle_.back();
  idle_.pop_back();
  fibre->number = ++numbers_;
  fibre->process = process;
  fibre->body = std::move(body);
  fibre->done = false;
  fibre->context =
      boost::context::fiber(std::allocator_arg, KeptStack{fibre->stack},
                            [fibre](boost::context::fiber&& caller) {
                              fibre->caller = std::move(caller);
                              fibre->body();
                              fibre->body = nullptr;
                              fibre->done = true;
                              return std::move(fibre->caller);
                            });
  ++num_fibres_;
  return fibre;
}

void World::Spawn(Process* process, std::function<void()> body) {
  MakeReady(Make(process, std::move(body)));
}

void World::After(Duration delay, std::function<void()> event) {
  events_.push_back({now_ + delay, ++numbers_, std::move(event)});
  std::push_heap(events_.begin(), events_.end(),
                 [](const Event& a, const Event& b) {
                   return a.at != b.at ? a.at > b.at : a.number > b.number;
                 });
}

void World::Sleep(Duration time) {
  Fibre* const fibre = current_;
  After(time, [this, fibre] { MakeReady(fibre); });
  Suspend();
}

bool World::Await(const std::function<bool()>& condition, Duration limit,
                  Duration pause) {
  const Duration last = now_ + limit;
  while (!condition()) {
    if (now_ >= last) return false;
    Sleep(pause);
  }
  return true;
}

void World::MakeReady(Fibre* fibre) {
  (fibre->process->stopped_ ? fibre->process->parked_ : ready_)
      .push_back(fibre);
}

// At the fibre's deadline, as its clock has it now.
void World::WakeAt(Fibre* fibre, uint64_t wait) {
  const Duration left =
      fibre->deadline - (TimePoint(now_) + fibre->process->clock_);
  After(std::max(left, Duration::zero()), [this, fibre, wait] {
    if (fibre->list == nullptr || fibre->waits != wait) return;
    if (TimePoint(now_) + fibre->process->clock_ < fibre->deadline) {
      return WakeAt(fibre, wait);
    }
    std::erase(fibre->list->fibres_, fibre);
    fibre->list = nullptr;
    fibre->timed_out = true;
    MakeReady(fibre);
  });
}

void World::Suspend() {
  Fibre* const fibre = current_;
  fibre->caller = std::move(fibre->caller).resume();
}

void World::Resume(Fibre* fibre) {
  Note(fibre->number);
  current_ = fibre;
  fibre->context = std::move(fibre->context).resume();
  current_ = nullptr;
  if (!fibre->done) return;
  --num_fibres_;
  idle_.push_back(fibre);
}

bool World::RunFibre() {
  while (!ready_.empty()) {
    const auto chosen = static_cast<size_t>(random_.Below(std::ssize(ready_)));
    Fibre* const fibre = ready_[chosen];
    ready_[chosen] = ready_.back();
    ready_.pop_back();
    if (fibre->process->stopped_) {
      fibre->process->parked_.push_back(fibre);
      continue;
    }
    Resume(fibre);
    return true;
  }
  return false;
}

bool World::RunEvent() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end(),
                [](const Event& a, const Event& b) {
                  return a.at != b.at ? a.at > b.at : a.number > b.number;
                });
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ = std::max(now_, event.at);
  Note(event.number);
  event.run();
  return true;
}

void World::Run(const std::function<bool()>& done) {
  while (failure_.empty() && !done()) {
    if (++moves_ > kMostMoves) return Fail("the run has no end");
    if (!RunFibre() && !RunEvent()) return Fail("nothing happens any more");
  }
}

void World::Fail(std::string why) {
  if (!failure_.empty()) return;
  failure_ = "at " + std::to_string(Seconds(now_)) + " s: " + std::move(why);
}

Process* World::process() const {
  return current_ == nullptr ? nullptr : current_->process;
}

TimePoint World::Now() const {
  return TimePoint(now_) +
         (current_ == nullptr ? Duration::zero() : current_->process->clock_);
}

}  // namespace sluice::simulation

namespace sluice {

Clock::time_point Clock::now() noexcept {
  return simulation::World::Get().Now();
}

}  // namespace sluice
