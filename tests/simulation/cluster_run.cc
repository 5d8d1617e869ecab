#include "tests/simulation/cluster_run.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "tests/engine/random_shape.h"
#include "tests/simulation/client.h"
#include "tests/simulation/cluster_shape.h"
#include "tests/simulation/gateway_process.h"
#include "tests/simulation/network.h"
#include "tests/simulation/stage_process.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Once nothing goes wrong any more all clients have their end within this time.
constexpr Duration kMostToEnd = seconds(240);
constexpr Duration kMostToUp = seconds(120);
constexpr Duration kMostToStop = seconds(60);

// The cluster of one seed, and what befalls it.
class ClusterRun {
 public:
  explicit ClusterRun(uint64_t seed)
      : world_(seed),
        shape_(RandomCluster(seed)),
        network_(shape_.weather),
        requests_(static_cast<uint32_t>(seed)) {}

  Outcome Run() {
    Process* const outside = world_.AddProcess("outside", -1, Duration::zero());
    bool done = false;
    world_.Spawn(outside, [&] {
      Live();
      done = true;
    });
    world_.Run([&] { return done; });
    Outcome outcome;
    outcome.failure = world_.failure();
    outcome.digest = world_.digest();
    totals_.seeds = 1;
    totals_.seconds = Seconds(world_.now());
    totals_.moves = world_.moves();
    outcome.totals = std::move(totals_);
    return outcome;
  }

 private:
  Random& random() { return world_.random(); }
  Process* NewProcess(const char* kind, int host) {
    Process* const process = world_.AddProcess(
        Cat(kind, " ", host), host, random().Up(std::chrono::hours(1000)));
    process->yields = shape_.yields;
    return process;
  }

  void Live() {
    for (size_t i = 0; i < shape_.stages.size(); ++i) {
      stages_.emplace_back();
      StartStage(i);
    }
    StartGateway();
    const Duration end = world_.now() + shape_.duration;
    Duration next_fault = world_.now() + random().Up(shape_.fault_every * 2);
    Duration next_request = world_.now();
    int left = shape_.num_requests;
    while (world_.now() < end) {
      if (left > 0 && world_.now() >= next_request && Arrive()) {
        --left;
        next_request = world_.now() +
                       random().Up(2 * shape_.duration / shape_.num_requests);
      }
      if (world_.now() >= next_fault) {
        GoWrong();
        next_fault = world_.now() + random().Up(shape_.fault_every * 2);
      }
      if (random().Chance(10) && !clients_.empty()) Cancel();
      world_.Sleep(random().Up(milliseconds(100)));
    }
    Heal();
    ExpectEnds();
    ExpectService();
    StopAll();
    Count();
  }

  // Processes -----------------------------------------------------------------

  void StartStage(size_t index) {
    stages_[index] = std::make_shared<StageProcess>(
        shape_.stages[index],
        NewProcess("stage", shape_.first_host + static_cast<int>(index)));
    stages_[index]->Start();
  }
  void StartGateway() {
    gateway_ = std::make_shared<GatewayProcess>(shape_.gateway,
                                                NewProcess("gateway", 0));
    gateways_.push_back(gateway_);
    gateway_->Start();
  }
  // Starts the stage again `delay` after its end.
  void StartAgain(size_t index, Duration delay) {
    const auto ended = stages_[index];
    world_.After(delay, [this, ended, index] {
      if (stages_[index] != ended) return;
      if (!ended->process()->dead()) return StartAgain(index, milliseconds(20));
      StartStage(index);
    });
  }

  // Clients -------------------------------------------------------------------

  bool Arrive() {
    GenerateRequest request = RandomRequest(requests_, shape_.max_positions);
    request.num_choices =
        random().Below(4) == 0 ? 2 + static_cast<int>(random().Below(2)) : 1;
    request.request_id = std::to_string(++num_requests_);
    request.arrival = TimePoint();
    std::vector<std::shared_ptr<Client>> choices;
    for (int i = 0; i < request.num_choices; ++i) {
      request.sampling.choice = static_cast<uint32_t>(i);
      request.sampling.seed += static_cast<uint64_t>(i);
      if (!CheckRequest(request, shape_.limits).ok()) return false;
      choices.push_back(std::make_shared<Client>(request));
    }
    Submit(std::move(choices));
    return true;
  }
  void Submit(std::vector<std::shared_ptr<Client>> choices) {
    gateway_->Submit(
        std::move(choices), [this](const Status&) { ++totals_.refused; },
        [this](const std::shared_ptr<Client>& client) {
          clients_.push_back(client);
        });
  }
  void Cancel() {
    gateway_->Cancel(
        clients_[static_cast<size_t>(random().Below(std::ssize(clients_)))]);
  }

  // Faults --------------------------------------------------------------------

  void GoWrong() {
    const Fault fault = shape_.faults[static_cast<size_t>(
        random().Below(std::ssize(shape_.faults)))];
    const auto index = static_cast<size_t>(random().Below(std::ssize(stages_)));
    const auto stage = stages_[index];
    if (stage->process()->dead()) return;
    ++totals_.faults[static_cast<size_t>(fault)];
    const Duration time = AnyTime();
    const int host = stage->process()->host();
    const int other = OtherHost(host);
    switch (fault) {
      case Fault::kCrash:
        stage->Crash(/*silently=*/false);
        return StartAgain(index, time);
      case Fault::kPowerLoss:
        stage->Crash(/*silently=*/true);
        for (int any = 0; any < shape_.num_hosts(); ++any) {
          network_.Block(host, any, time);
          network_.Block(any, host, time);
        }
        return StartAgain(index, time);
      case Fault::kStop:
        return Stop(stage->process(), time);
      case Fault::kLeave:
        stage->Leave(AnyTime());
        return StartAgain(index, time);
      case Fault::kBreak:
        return network_.BreakBetween(host, other);
      case Fault::kPartition:
        network_.Block(host, other, time);
        return network_.Block(other, host, time);
      case Fault::kOneWay:
        return random().Below(2) == 0 ? network_.Block(host, other, time)
                                      : network_.Block(other, host, time);
      case Fault::kSlow:
        return SlowDown(
            random().Below(3) == 0 ? gateway_->process() : stage->process(),
            time);
      case Fault::kJump:
        return (random().Below(3) == 0 ? gateway_->process() : stage->process())
            ->Jump(AnyTime());
      case Fault::kGatewayStop:
        return Stop(gateway_->process(), time);
      case Fault::kGatewayCrash:
        gateway_->Crash();
        return StartGateway();
    }
  }
  // From a moment to far beyond the limits of silence.
  Duration AnyTime() {
    return random().Up(random().Below(2) == 0 ? milliseconds(1500)
                                              : milliseconds(15000));
  }
  // The gateway's, or another stage's.
  int OtherHost(int host) {
    int other = host;
    while (other == host) {
      other = random().Below(2) == 0
                  ? 0
                  : static_cast<int>(random().Below(shape_.num_hosts()));
    }
    return other;
  }
  void Stop(Process* process, Duration time) {
    process->Stop();
    world_.After(time, [process] { process->Resume(); });
  }
  void SlowDown(Process* process, Duration time) {
    process->slowness = 2 + static_cast<int>(random().Below(30));
    world_.After(time, [process] { process->slowness = 1; });
  }

  // The end -------------------------------------------------------------------

  void Heal() {
    network_.FreeAll();
    for (size_t i = 0; i < stages_.size(); ++i) {
      Process* const process = stages_[i]->process();
      process->slowness = 1;
      process->Resume();
      if (process->dead()) StartStage(i);
    }
    gateway_->process()->slowness = 1;
    gateway_->process()->Resume();
  }

  void ExpectEnds() {
    const auto all_ended = [this] {
      return std::ranges::all_of(clients_, [](const auto& client) {
        return client->ended() || client->left();
      });
    };
    if (world_.Await(all_ended, kMostToEnd)) return;
    world_.Fail("sequences have no end");
  }

  // The cluster is whole again.
  void ExpectService() {
    if (!world_.Await([this] { return gateway_->ready(); }, kMostToUp)) {
      return world_.Fail("no pipeline comes up");
    }
    GenerateRequest request;
    request.request_id = "last";
    request.prompt_tokens = {1, 2, 3};
    request.max_tokens = 5;
    const auto last = std::make_shared<Client>(request);
    bool refused = false;
    gateway_->Submit(
        {last},
        [&](const Status& why) {
          refused = true;
          world_.Fail("the last request is refused: " + Message(why));
        },
        [](const auto&) {});
    if (!world_.Await([&] { return last->ended() || refused; }, kMostToEnd)) {
      return world_.Fail("the last request has no end");
    }
    if (!last->excuse().empty()) {
      world_.Fail("the last request ends with: " + last->excuse());
    }
  }

  void StopAll() {
    gateway_->Leave(seconds(5));
    const auto all_gone = [](const auto& lives) {
      return std::ranges::all_of(lives,
                                 [](const auto& one) { return one->ended(); });
    };
    if (!world_.Await([&] { return all_gone(gateways_); }, kMostToStop)) {
      return world_.Fail("a gateway does not end");
    }
    for (const auto& stage : stages_) stage->Leave(seconds(1));
    if (!world_.Await([&] { return all_gone(stages_); }, kMostToStop)) {
      return world_.Fail("a stage does not end");
    }
  }

  void Count() {
    for (const auto& gateway : gateways_) {
      const EngineCounters& counters = gateway->counters();
      totals_.steps += counters.steps;
      totals_.recoveries += counters.recoveries;
      totals_.replayed += counters.replayed_tokens;
      totals_.kept += counters.kept_tokens;
      totals_.stale += counters.stale_results;
      totals_.shrinks += gateway->shrinks();
      totals_.growths += gateway->growths();
      if (counters.exceptions > 0) world_.Fail("an exception was caught");
    }
    for (const auto& client : clients_) {
      ++totals_.clients;
      totals_.tokens += static_cast<uint64_t>(client->tokens());
      totals_.suspensions += static_cast<uint64_t>(client->suspensions());
      totals_.left += client->left() ? 1 : 0;
      totals_.cancelled += client->cancelled() ? 1 : 0;
      if (!client->excuse().empty()) ++totals_.excuses[client->excuse()];
    }
  }

  World world_;
  const ClusterShape shape_;
  Network network_;
  std::mt19937 requests_;
  std::vector<std::shared_ptr<StageProcess>> stages_;
  std::shared_ptr<GatewayProcess> gateway_;
  std::vector<std::shared_ptr<GatewayProcess>> gateways_;
  std::vector<std::shared_ptr<Client>> clients_;
  int num_requests_ = 0;
  Totals totals_;
};

}  // namespace

const char* ToString(Fault fault) {
  static constexpr const char* kNames[kNumFaults] = {"crashes",
                                                     "power losses",
                                                     "stops",
                                                     "leaves",
                                                     "breaks",
                                                     "partitions",
                                                     "one-way partitions",
                                                     "slow times",
                                                     "clock jumps",
                                                     "stops of the gateway",
                                                     "crashes of the gateway"};
  return kNames[static_cast<size_t>(fault)];
}

void Totals::Add(const Totals& other) {
  seeds += other.seeds;
  seconds += other.seconds;
  moves += other.moves;
  steps += other.steps;
  tokens += other.tokens;
  clients += other.clients;
  refused += other.refused;
  cancelled += other.cancelled;
  left += other.left;
  recoveries += other.recoveries;
  replayed += other.replayed;
  kept += other.kept;
  stale += other.stale;
  suspensions += other.suspensions;
  shrinks += other.shrinks;
  growths += other.growths;
  for (size_t i = 0; i < faults.size(); ++i) faults[i] += other.faults[i];
  for (const auto& [what, count] : other.excuses) excuses[what] += count;
}

std::string Totals::Text() const {
  std::string text = Cat(
      seeds, " seeds: ", seconds / 3600, " hours, ", moves, " moves, ", steps,
      " steps, ", clients, " clients with ", tokens, " tokens, ", refused,
      " refused, ", cancelled, " cancelled, ", left, " left by their gateway; ",
      recoveries, " recoveries, ", suspensions, " suspensions, ", replayed,
      " tokens replayed, ", kept, " of them on some stages, ", stale,
      " stale results, ", shrinks, " shrinks, ", growths, " growths; faults:");
  for (int i = 0; i < kNumFaults; ++i) {
    text += Cat(i == 0 ? " " : ", ", faults[static_cast<size_t>(i)], " ",
                ToString(static_cast<Fault>(i)));
  }
  text += "; ended early:";
  for (const auto& [what, count] : excuses) {
    text += Cat(" ", count, " \"", what, "\"");
  }
  return text;
}

Outcome RunCluster(uint64_t seed) { return ClusterRun(seed).Run(); }

}  // namespace sluice::simulation
