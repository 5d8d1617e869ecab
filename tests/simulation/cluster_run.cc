#include "tests/simulation/cluster_run.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/log.h"
#include "tests/engine/random_shape.h"
#include "tests/simulation/client.h"
#include "tests/simulation/cluster_shape.h"
#include "tests/simulation/gateway_process.h"
#include "tests/simulation/network.h"
#include "tests/simulation/rogue.h"
#include "tests/simulation/stage_process.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Once nothing goes wrong any more all clients have their end within this time.
constexpr Duration kMostToEnd = seconds(240);
constexpr Duration kMostToUp = seconds(120);
// A load that began while its process was slow takes its time.
constexpr Duration kMostToStop = seconds(180);
// A pipeline that is up for so long stays up.
constexpr Duration kSettled = seconds(5);

// The cluster of one seed, and what befalls it.
class ClusterRun {
 public:
  explicit ClusterRun(uint64_t seed)
      : world_(seed),
        shape_(RandomCluster(seed)),
        rogue_choices_(~seed),
        network_(shape_.weather),
        requests_(static_cast<uint32_t>(seed)) {}

  Outcome Run() {
    world_.on_log = [this](std::string_view line) { Read(line); };
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
    totals_.ahead = world_.steps_ahead;
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
    for (int i = 0; i < shape_.num_gateways; ++i) {
      gateways_.emplace_back();
      StartGateway(static_cast<size_t>(i));
    }
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
      if (shape_.rogues) MayComeBy();
      if (random().Chance(10) && !clients_.empty()) Cancel();
      world_.Sleep(random().Up(milliseconds(100)));
    }
    Heal();
    ExpectEnds();
    ExpectService();
    StopAll();
    ExpectNoHang();
    Count();
  }

  // Lines by which a process tells of what cannot be among honest peers.
  void Read(std::string_view line) {
    for (const char* wrong :
         {"steps unacknowledged", "acknowledged a frame that was not sent",
          "wait for credits", "INVALID_ARGUMENT"}) {
      if (line.find(wrong) == std::string_view::npos) continue;
      world_.Fail(std::string(line));
    }
    if (line.find("answers and does no step") != std::string_view::npos) {
      is_stuck_ = true;
    }
  }
  // A step hangs only where something is slow: an end of a stream is told.
  void ExpectNoHang() {
    if (!is_stuck_) return;
    for (const Fault slow :
         {Fault::kStop, Fault::kPartition, Fault::kOneWay, Fault::kSlow,
          Fault::kJump, Fault::kGatewayStop, Fault::kPowerLoss}) {
      if (totals_.faults[static_cast<size_t>(slow)] > 0) return;
    }
    world_.Fail("a step hung, and nothing was slow");
  }

  // Processes -----------------------------------------------------------------

  void StartStage(size_t index) {
    stages_[index] = std::make_shared<StageProcess>(
        shape_.stages[index],
        NewProcess("stage", shape_.num_gateways + static_cast<int>(index)));
    LogInfo(stages_[index]->process()->name(), " starts");
    stages_[index]->Start();
  }
  void StartGateway(size_t index) {
    GatewaySetup setup = shape_.gateway;
    // The other one, in whatever life.
    if (shape_.num_gateways > 1) {
      setup.peer = [this, index] { return gateways_[1 - index].get(); };
    }
    gateways_[index] = std::make_shared<GatewayProcess>(
        setup, NewProcess("gateway", static_cast<int>(index)));
    lives_.push_back(gateways_[index]);
    gateways_[index]->Start();
  }
  const std::shared_ptr<GatewayProcess>& AnyGateway() {
    return gateways_[static_cast<size_t>(
        random().Below(std::ssize(gateways_)))];
  }
  // The one that serves; null: none does.
  std::shared_ptr<GatewayProcess> Leader() const {
    for (const auto& gateway : gateways_) {
      if (!gateway->process()->dead() && gateway->ready()) return gateway;
    }
    return nullptr;
  }
  // Starts the process at `index` again, `delay` after its end.
  template <typename One>
  void StartAgain(std::vector<std::shared_ptr<One>>& all, size_t index,
                  Duration delay) {
    ++restarts_;
    world_.After(delay, [this, &all, ended = all[index], index] {
      --restarts_;
      if (all[index] != ended) return;
      if (!ended->process()->dead()) {
        StartAgain(all, index, milliseconds(20));
      } else if constexpr (std::is_same_v<One, StageProcess>) {
        StartStage(index);
      } else {
        StartGateway(index);
      }
    });
  }

  // Clients -------------------------------------------------------------------

  // Most requests come while they can be served.
  bool Arrive() {
    auto gateway = Leader();
    if (gateway == nullptr && random().Below(10) > 0) return false;
    if (gateway == nullptr) gateway = AnyGateway();
    GenerateRequest request = RandomRequest(requests_, shape_.max_positions);
    request.num_choices =
        random().Below(4) == 0 ? 2 + static_cast<int>(random().Below(2)) : 1;
    request.request_id = std::to_string(num_requests_ + 1);
    std::vector<std::shared_ptr<Client>> choices;
    for (int i = 0; i < request.num_choices; ++i) {
      request.sampling.choice = static_cast<uint32_t>(i);
      request.sampling.seed += static_cast<uint64_t>(i);
      if (!CheckRequest(request, shape_.limits).ok()) return false;
      choices.push_back(std::make_shared<Client>(request));
    }
    ++num_requests_;
    gateway->Submit(
        std::move(choices),
        [this, id = request.request_id](const Status&) {
          ++totals_.refused;
          answered_.insert(id);
        },
        [this](const std::shared_ptr<Client>& client) {
          clients_.push_back(client);
          answered_.insert(client->request().request_id);
        });
    return true;
  }
  void Cancel() {
    const auto& client =
        clients_[static_cast<size_t>(random().Below(std::ssize(clients_)))];
    for (const auto& gateway : gateways_) gateway->Cancel(client);
  }

  // Faults --------------------------------------------------------------------

  void GoWrong() {
    const Fault fault = shape_.faults[static_cast<size_t>(
        random().Below(std::ssize(shape_.faults)))];
    const auto index = static_cast<size_t>(random().Below(std::ssize(stages_)));
    const auto stage = stages_[index];
    const auto at = static_cast<size_t>(random().Below(std::ssize(gateways_)));
    const auto gateway = gateways_[at];
    if (stage->process()->dead() || gateway->process()->dead()) return;
    ++totals_.faults[static_cast<size_t>(fault)];
    const Duration time = AnyTime();
    const int host = stage->process()->host();
    const int other = OtherHost(host);
    LogInfo(ToString(fault), ": stage ", host, ", host ", other, ", gateway ",
            at, ", ", Seconds(time), " s");
    switch (fault) {
      case Fault::kCrash:
        stage->Crash(/*silently=*/false);
        return StartAgain(stages_, index, time);
      case Fault::kPowerLoss:
        stage->Crash(/*silently=*/true);
        for (int any = 0; any < shape_.num_hosts(); ++any) {
          network_.Block(host, any, time);
          network_.Block(any, host, time);
        }
        return StartAgain(stages_, index, time);
      case Fault::kStop:
        return Stop(stage->process(), time);
      case Fault::kLeave:
        stage->Leave(AnyTime());
        return StartAgain(stages_, index, time);
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
            random().Below(3) == 0 ? gateway->process() : stage->process(),
            time);
      case Fault::kJump:
        return (random().Below(3) == 0 ? gateway->process() : stage->process())
            ->Jump(AnyTime());
      case Fault::kFlaky:
        return BreakOften(host, other, time);
      case Fault::kGatewayStop:
        return Stop(gateway->process(), time);
      case Fault::kGatewayCrash:
        gateway->Crash();
        return StartAgain(gateways_, at, time / 4);
      case Fault::kGatewayLeave:
        gateway->Leave(time);
        return StartAgain(gateways_, at, time / 4);
    }
  }
  // Now and then a rogue wants a stage. It has choices of its own.
  void MayComeBy() {
    if (!rogue_choices_.Chance(20)) return;
    const auto index =
        static_cast<size_t>(rogue_choices_.Below(std::ssize(stages_)));
    const int host = shape_.num_hosts() + static_cast<int>(totals_.rogues++);
    LogInfo("a rogue comes by: stage ", index);
    world_.Spawn(NewProcess("rogue", host), [this, index] {
      TakeHoldAndLeave(
          Network::AddressOf(shape_.num_gateways + static_cast<int>(index)),
          rogue_choices_);
    });
  }
  // From a moment to far beyond the limits of silence.
  Duration AnyTime() {
    return random().Up(random().Below(2) == 0 ? milliseconds(1500)
                                              : milliseconds(15000));
  }
  // A gateway's, or another stage's.
  int OtherHost(int host) {
    int other = host;
    while (other == host) {
      other = static_cast<int>(random().Below(
          random().Below(2) == 0 ? shape_.num_gateways : shape_.num_hosts()));
    }
    return other;
  }
  void BreakOften(int a, int b, Duration time) {
    network_.BreakBetween(a, b);
    const Duration pause = random().Up(milliseconds(1000));
    if (is_over_ || time < pause) return;
    world_.After(pause, [=, this] { BreakOften(a, b, time - pause); });
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
    is_over_ = true;
    over_at_ = world_.now();
    network_.FreeAll();
    for (size_t i = 0; i < stages_.size(); ++i) {
      Process* const process = stages_[i]->process();
      process->slowness = 1;
      process->Resume();
      if (process->dead()) StartStage(i);
    }
    for (size_t i = 0; i < gateways_.size(); ++i) {
      Process* const process = gateways_[i]->process();
      process->slowness = 1;
      process->Resume();
      if (process->dead()) StartGateway(i);
    }
  }

  void ExpectEnds() {
    // Of a gateway that stood still, too.
    const auto all_ended = [this] {
      return std::ssize(answered_) == num_requests_ &&
             std::ranges::all_of(clients_, [](const auto& client) {
               return client->ended() || client->left();
             });
    };
    const bool in_time = world_.Await(all_ended, kMostToEnd);
    totals_.to_ends = Seconds(world_.now() - over_at_);
    if (in_time) return;
    world_.Fail("sequences have no end: " + Describe());
  }

  // The cluster is whole again.
  void ExpectService() {
    std::shared_ptr<GatewayProcess> leader;
    Duration since = world_.now();
    const auto leads = [&] {
      const auto now = Leader();
      if (now == nullptr || now != leader || restarts_ > 0) {
        since = world_.now();
      }
      leader = now;
      return world_.now() - since >= kSettled;
    };
    if (!world_.Await(leads, kMostToUp)) {
      return world_.Fail("no pipeline comes up: " + Describe());
    }
    GenerateRequest request;
    request.request_id = "last";
    request.prompt_tokens = {1, 2, 3};
    request.max_tokens = 5;
    const auto last = std::make_shared<Client>(request);
    bool refused = false;
    leader->Submit(
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

  std::string Describe() const {
    std::string text;
    for (const auto& gateway : gateways_) text += gateway->Describe() + "\n";
    for (const auto& stage : stages_) {
      const Process& process = *stage->process();
      text += Cat(process.name(), process.dead() ? " dead" : "",
                  process.stopped() ? " stopped" : "", ", ", process.calls,
                  " calls\n");
    }
    return text;
  }

  void StopAll() {
    for (const auto& gateway : gateways_) gateway->Leave(seconds(5));
    const auto all_gone = [](const auto& lives) {
      return std::ranges::all_of(lives,
                                 [](const auto& one) { return one->ended(); });
    };
    if (!world_.Await([&] { return all_gone(lives_); }, kMostToStop)) {
      return world_.Fail("a gateway does not end");
    }
    for (const auto& stage : stages_) stage->Leave(seconds(1));
    if (!world_.Await([&] { return all_gone(stages_); }, kMostToStop)) {
      return world_.Fail("a stage does not end");
    }
    // But for this one.
    if (!world_.Await([&] { return world_.fibres() == 1; }, kMostToStop)) {
      world_.Fail("a thread or a call has no end");
    }
  }

  void Count() {
    for (const auto& gateway : lives_) {
      const EngineCounters& counters = gateway->counters();
      totals_.steps += counters.steps;
      totals_.recoveries += counters.recoveries;
      totals_.replayed += counters.replayed_tokens;
      totals_.kept += counters.kept_tokens;
      totals_.stale += counters.stale_results;
      totals_.shrinks += gateway->shrinks();
      totals_.growths += gateway->growths();
      totals_.takeovers += gateway->takeovers();
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
  Random rogue_choices_;
  Network network_;
  std::mt19937 requests_;
  std::vector<std::shared_ptr<StageProcess>> stages_;
  std::vector<std::shared_ptr<GatewayProcess>> gateways_;  // by host
  std::vector<std::shared_ptr<GatewayProcess>> lives_;     // of all gateways
  std::vector<std::shared_ptr<Client>> clients_;
  int num_requests_ = 0;
  std::set<std::string> answered_;  // requests that were taken or refused
  int restarts_ = 0;                // of processes, that are to come
  Duration over_at_{};              // the faults
  bool is_stuck_ = false;           // a step hung
  bool is_over_ = false;            // nothing goes wrong any more
  Totals totals_;
};

}  // namespace

Outcome RunCluster(uint64_t seed) {
  auto run = std::make_unique<ClusterRun>(seed);
  Outcome outcome = run->Run();
  // A run that failed ends in the middle: its fibres are left where they are.
  if (!outcome.failure.empty()) (void)run.release();
  return outcome;
}

}  // namespace sluice::simulation
