// What it costs that a stage's ranks are of several processes: the way of a
// step from the lead to its followers.
//
//   begin   RankLink::Begin on the lead's loop: the frame is made and queued
//   there   from then on until the last follower may begin the step: gRPC, the
//           socket, the checks
//
// All processes' ends are in this one, over a socket file, so that one clock
// stamps all; with more followers than cores they wait for each other. The
// CPU's flags come first. Usage: rank_step_bench [followers] [rounds]
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/pipeline/ranks/lead_connection.h"
#include "common/pipeline/ranks/lead_ranks.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "common/pipeline/ranks/ranks_service.h"
#include "common/rpc/transport.h"
#include "common/tools/measure/machine.h"

namespace sluice {
namespace {

constexpr int32_t kHidden = 4096;

// A step of `sequences` with `tokens` each, of which the last one is at the end
// of `context`.
struct Shape {
  const char* name;
  int32_t sequences;
  int32_t tokens;
  int32_t context;
  bool has_hidden;  // of a stage that is not the first
};

constexpr Shape kShapes[] = {
    {"decode, 1 sequence of 1,024", 1, 1, 1024, false},
    {"decode, 32 sequences of 4,096", 32, 1, 4096, false},
    {"decode, 128 sequences of 8,192", 128, 1, 8192, false},
    {"decode, 128 of 8,192, hidden states", 128, 1, 8192, true},
    {"prompt of 2,048", 1, 2048, 2048, false},
    {"prompt of 2,048, hidden states", 1, 2048, 2048, true},
};

RankStepBounds Bounds(bool has_hidden) {
  RankStepBounds bounds;
  bounds.limits = {2048, 128, 8192, 1};
  bounds.kv_blocks = 1 << 16;
  bounds.vocab_size = 1 << 17;
  bounds.hidden_size = has_hidden ? kHidden : 0;
  return bounds;
}

void Fill(const Shape& shape, StepInputs& step) {
  KvGroupInputs& group = step.kv_groups[0];
  const int32_t blocks = shape.context / kBlockTokens;
  step.num_tokens = 0;
  step.num_logits_rows = 0;
  for (int32_t s = 0; s < shape.sequences; ++s) {
    const int64_t table = int64_t{s} * blocks;
    for (int32_t b = 0; b < blocks; ++b) {
      group.block_tables[static_cast<size_t>(table + b)] = s * blocks + b;
    }
    for (int32_t i = 0; i < shape.tokens; ++i) {
      const auto t = static_cast<size_t>(step.num_tokens++);
      step.positions[t] = shape.context - shape.tokens + i;
      step.token_ids[t] = i;
      group.slots[t] = table * kBlockTokens + step.positions[t];
      group.table_offsets[t] = table;
    }
    step.logits_rows[static_cast<size_t>(step.num_logits_rows++)] =
        step.num_tokens - 1;
  }
}

// Stamps the moment at which it may begin a step.
class Stamp final : public RankStepRunner {
 public:
  explicit Stamp(const RankStepBounds& bounds)
      : bounds_(bounds), step_(bounds.limits) {}
  const RankStepBounds& bounds() const override { return bounds_; }
  RankStep* Free() override { return &step_; }
  void Push() override {
    at_ns_ = MonotonicNanos();
    ++steps_;
  }
  int64_t Await(uint64_t steps) const {
    while (steps_ != steps) std::this_thread::yield();
    return at_ns_;
  }

 private:
  const RankStepBounds bounds_;
  RankStep step_;
  std::atomic<int64_t> at_ns_{0};
  std::atomic<uint64_t> steps_{0};
};

// A stream to the lead, with one rank.
struct Follower {
  std::unique_ptr<LeadConnection> connection;
  std::unique_ptr<Stamp> runner;
};

void Print(const char* name, std::vector<int64_t>& nanos) {
  std::sort(nanos.begin(), nanos.end());
  const auto at = [&](double share) {
    return 1e-3 * static_cast<double>(nanos[static_cast<size_t>(
                      share * static_cast<double>(nanos.size() - 1))]);
  };
  std::printf("  %s %8.1f us (90 %%: %8.1f)", name, at(0.5), at(0.9));
}

// Begins a load: both ends' Connect wait for each other.
void Connect(const RankOrder& order, LeadRanks& lead,
             std::vector<Follower>& followers) {
  std::vector<std::thread> threads;
  for (Follower& follower : followers) {
    threads.emplace_back([&] {
      const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
      SLUICE_CHECK(follower.connection->WaitOrder(deadline).ok());
      SLUICE_CHECK(follower.connection->Connect(order, "").ok());
    });
  }
  SLUICE_CHECK(lead.Connect(order, "id").ok());
  for (std::thread& thread : threads) thread.join();
}

// One load over `followers`, whose steps are of `shape`.
void Measure(const Shape& shape, LeadRanks& lead,
             std::vector<Follower>& followers, int rounds) {
  RankOrder order;
  order.model_digest = "0f";
  order.last_layer = 1;
  order.all_ranks = static_cast<int32_t>(followers.size()) + 1;
  order.numerics = "auto";
  const RankStepBounds bounds = Bounds(shape.has_hidden);
  order.max_step_tokens = bounds.limits.max_step_tokens;
  order.max_sequences = bounds.limits.max_sequences;
  Connect(order, lead, followers);
  for (Follower& follower : followers) {
    follower.runner = std::make_unique<Stamp>(bounds);
    follower.connection->Follow(follower.runner.get());
  }
  StepInputs step(bounds.limits);
  Fill(shape, step);
  const HiddenStates hidden = shape.has_hidden
                                  ? HiddenStates(step.num_tokens, kHidden)
                                  : HiddenStates();
  std::vector<int64_t> begin_ns;
  std::vector<int64_t> there_ns;
  for (int i = -rounds / 10; i < rounds; ++i) {
    const int64_t start = MonotonicNanos();
    lead.Begin(step, hidden);
    const int64_t begun = MonotonicNanos();
    int64_t last = begun;
    for (const Follower& follower : followers) {
      last = std::max(last, follower.runner->Await(
                                static_cast<uint64_t>(i + rounds / 10 + 1)));
    }
    if (i < 0) continue;
    begin_ns.push_back(begun - start);
    there_ns.push_back(last - start);
  }
  std::printf("%-38s", shape.name);
  Print("begin", begin_ns);
  Print("there", there_ns);
  std::printf("\n");
  lead.Drop();
  for (Follower& follower : followers) {
    SLUICE_CHECK(follower.connection
                     ->WaitDropped(Clock::now() + std::chrono::seconds(10))
                     .ok());
  }
}

int Main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 500;
  if (count < 1 || count > 15 || rounds < 10) {
    std::fprintf(stderr,
                 "usage: rank_step_bench [followers, 1 to 15] "
                 "[rounds >= 10]\n");
    return 2;
  }
  std::printf("%s%d followers\n", measure::DescribeCpu().c_str(), count);
  LeadRanksOptions options;
  options.all_ranks = count + 1;
  const auto lead = std::make_shared<LeadRanks>(options);
  const auto service = MakeRanksService(lead, nullptr);
  rpc::TransportOptions transport;
  transport.max_message_bytes = MaxStepFrameBytes(Bounds(true));
  auto server = rpc::Listen(Cat("unix:/tmp/rank-step-bench-", getpid()),
                            transport, service.get());
  SLUICE_CHECK(server.ok());
  std::vector<Follower> followers;
  for (int i = 0; i < count; ++i) {
    FollowerHello hello;
    hello.model_digest = "0f";
    hello.first_rank = i + 1;
    hello.num_ranks = 1;
    auto connection = LeadConnection::Open(server->address, transport, hello,
                                           [](const Status&) {});
    SLUICE_CHECK(connection.ok());
    followers.push_back({*std::move(connection), nullptr});
  }
  for (const Shape& shape : kShapes) Measure(shape, *lead, followers, rounds);
  lead->Stop();
  followers.clear();
  server->server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
