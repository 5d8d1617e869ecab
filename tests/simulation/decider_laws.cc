#include "tests/simulation/decider_laws.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "common/core/epochs.h"

namespace sluice::simulation {
namespace {

constexpr Duration kLeastPause = std::chrono::milliseconds(100);
constexpr Duration kLeastRaisePause = std::chrono::milliseconds(10);

// Returns whether `process` keeps its place: no spare may take it.
bool Keeps(const StageProcess& process) {
  return process.available() || process.loading() || process.held();
}

}  // namespace

DeciderLaws::DeciderLaws(const PipelineOptions& options, size_t processes)
    : options_(options), processes_(processes) {}

void DeciderLaws::OnWelcome(size_t process, uint64_t link_id, Epoch highest,
                            const StagePlace& place, TimePoint now) {
  Process& one = Of(process);
  Expect(one.link == link_id, "a Welcome of another stream is told");
  one.welcomed = true;
  one.highest = highest;
  one.place = place;
  one.heard = now;
  // Every Welcome ends the refusals, and with them the loads that were asked.
  for (Process& any : processes_) {
    if (any.refused) any.loads = 0;
  }
}

void DeciderLaws::OnEnd(size_t process, TimePoint now) {
  Process& one = Of(process);
  one.link.reset();
  one.welcomed = one.leaving = false;
  one.loads = 0;
  one.ended = now;
}

void DeciderLaws::OnAssigned(size_t process, Epoch epoch, bool ok) {
  if (ok) Of(process).accepted = epoch;
}

void DeciderLaws::On(const act::Action& action, const ClusterDecider& decider,
                     TimePoint now) {
  std::visit([&](const auto& what) { OnAction(what, decider, now); }, action);
}

void DeciderLaws::OnAction(const act::OpenControl& open, const ClusterDecider&,
                           TimePoint now) {
  Process& one = Of(open.process);
  Expect(open.link_id > links_, "law 2: a stream's number comes twice");
  links_ = open.link_id;
  Expect(!draining_, "law 2: a hello after the drain");
  Expect(!in_tick_ || !is_anothers_, "law 6: a hello while another one leads");
  if (one.link.has_value()) {
    Expect(one.welcomed, "law 2: a hello while one is under way");
    Expect(!one.raised || now - *one.raised >= kLeastRaisePause,
           "law 2: a term is raised without a pause");
    one.raised = now;
  } else {
    Expect(!one.ended || now - *one.ended >= kLeastPause,
           "law 2: a hello without a pause");
    one.raised.reset();
  }
  one.link = open.link_id;
  one.welcomed = one.leaving = false;
  one.loads = 0;
  one.opened = now;
}

void DeciderLaws::OnAction(const act::EndControl& end, const ClusterDecider&,
                           TimePoint now) {
  const Process& one = Of(end.process);
  Expect(one.link.has_value(), "law 2: a stream is ended that is not there");
  if (std::exchange(has_lost_, false) && end.is_leaving && !owner_.is_idle) {
    const bool is_replaced = std::ranges::any_of(processes_, [&](auto& other) {
      return &other != &one && other.welcomed && !other.leaving &&
             other.place == one.place;
    });
    Expect(is_replaced, "law 8: a stage is released that is needed");
  }
  OnEnd(end.process, now);
}

void DeciderLaws::OnAction(const act::SendHeartbeat& beat,
                           const ClusterDecider&, TimePoint now) {
  Process& one = Of(beat.process);
  Expect(one.welcomed, "law 2: a heartbeat to no stage");
  Expect(beat.sequence > beats_, "law 2: a heartbeat's number comes twice");
  beats_ = beat.sequence;
  Expect(!one.beat || now - *one.beat >= options_.heartbeat,
         "law 2: a heartbeat too early");
  one.beat = now;
}

void DeciderLaws::OnAction(const act::SendLoad& load, const ClusterDecider&,
                           TimePoint) {
  Process& one = Of(load.process);
  Expect(one.welcomed && !one.leaving, "law 2: a load for nobody");
  Expect(!load.place.empty() && load.place != one.place,
         "law 2: a load of no other layers");
  Expect(++one.loads == 1, "law 2: a load comes twice");
  Expect(load.epoch == epoch_, "law 2: a load in another epoch");
}

void DeciderLaws::CheckTerm(uint64_t term) {
  std::vector<uint64_t> terms;
  for (const Process& one : processes_) {
    if (one.welcomed) terms.push_back(one.highest.term());
  }
  std::ranges::sort(terms);
  const uint64_t most =
      std::max({terms.empty() ? 0 : terms[(terms.size() - 1) / 2],
                epoch_.term(), own_term_});
  Expect(!IsAboveBy(term, most, kMostTermsAbove), "law 7: an epoch of term ",
         term, ", most stages have ", most);
}

void DeciderLaws::OnAction(const act::SendAssign& assign,
                           const ClusterDecider& decider, TimePoint now) {
  const Process& one = Of(assign.process);
  const StagePlaces& places = decider.places();
  Expect(one.welcomed, "law 1: an epoch for nobody");
  Expect(assign.epoch > one.highest, "law 1: an epoch that the stage has seen");
  if (assign.epoch != epoch_) {
    Expect(!up_ && !opened_, "law 1: an epoch while another one goes on");
    Expect(!failed_at_ || now - *failed_at_ >= kLeastPause,
           "law 9: an epoch without a pause");
    Expect(assign.epoch > epoch_ ||
               IsAboveBy(epoch_.term(), assign.epoch.term(), kMostTermsAbove),
           "law 1: an epoch comes twice");
    CheckTerm(assign.epoch.term());
    epoch_ = assign.epoch;
    tries_ = true;
    assigned_.clear();
    Expect(!assign.next, "law 1: the last stage has a successor");
    Expect(one.place.last_layer ==
               places.stages()[places.count() - 1]->facts().num_layers,
           "law 1: the last stage has not the last layers");
  } else {
    const Process& next = Of(assigned_.back());
    Expect(assign.next == assigned_.back(), "law 1: another successor");
    Expect(next.accepted == epoch_, "law 1: the successor has not accepted");
    Expect(one.place.last_layer == next.place.first_layer,
           "law 1: the layers do not join up");
  }
  Expect(std::ranges::count(assigned_, assign.process) == 0,
         "law 1: a process has two places");
  assigned_.push_back(assign.process);
  const size_t count = places.count();
  Expect(assigned_.size() <= count &&
             places.stages()[count - assigned_.size()]->id() == assign.process,
         "law 1: an epoch for a process without that place");
  if (assigned_.size() == count) {
    Expect(one.place.first_layer == 0,
           "law 1: the first stage has not the first layer");
  }
}

void DeciderLaws::OnAction(const act::SendDrain& drain, const ClusterDecider&,
                           TimePoint) {
  Expect(Of(drain.process).welcomed, "law 2: a drain of nobody");
}

void DeciderLaws::OnAction(const act::SetHolders& holders,
                           const ClusterDecider&, TimePoint) {
  Expect(!opened_, "law 4: the holders change under plans");
  for (const size_t process : holders.processes) {
    Expect(std::ranges::count(holders.processes, process) == 1,
           "law 4: a process has two places");
  }
}

void DeciderLaws::OnAction(const act::OpenPlans& open,
                           const ClusterDecider& decider, TimePoint) {
  Expect(open.epoch == epoch_ && !opened_ && !assigned_.empty() &&
             assigned_.size() == decider.places().count() &&
             Of(assigned_.back()).accepted == epoch_,
         "law 3: plans for an epoch that not every stage has accepted");
  opened_ = true;
}

void DeciderLaws::OnAction(const act::LetPlansPass&, const ClusterDecider&,
                           TimePoint) {
  Expect(opened_ && !live_, "law 3: plans pass that were not opened");
  live_ = true;
}

void DeciderLaws::OnAction(const act::ClosePlans&, const ClusterDecider&,
                           TimePoint now) {
  if (tries_) failed_at_ = now;
  tries_ = opened_ = live_ = false;
}

void DeciderLaws::OnAction(const act::TellUp& up, const ClusterDecider&,
                           TimePoint) {
  Expect(live_ && !up_ && up.epoch == epoch_, "law 3: up, and no plans pass");
  up_ = true;
  own_term_ = up.epoch.term();
  tries_ = false;
  failed_at_.reset();
}

void DeciderLaws::OnAction(const act::TellLost&, const ClusterDecider&,
                           TimePoint) {
  Expect(up_ && !live_, "law 3: lost, and was not up");
  has_lost_ = true;
  up_ = false;
}

void DeciderLaws::OnAction(const act::TellLeaving&, const ClusterDecider&,
                           TimePoint) {
  Expect(up_, "law 3: leaving, and is not up");
}

void DeciderLaws::After(const ClusterDecider& decider, TimePoint now,
                        bool is_tick) {
  const StageProcesses& stages = decider.places().stages();
  const size_t count = decider.places().count();
  Expect(up_ == decider.up(), "law 3: up, and the owner was not told");
  const Duration lost =
      std::min(options_.lost_after, options_.transport.peer_timeout);
  for (const auto& stage : stages) {
    Process& one = Of(stage->id());
    Expect(stage->linked() == one.link.has_value() &&
               stage->welcomed() == one.welcomed &&
               (!one.link || *one.link == stage->link_id()),
           "law 2: ", stage->address(), " is not what its stream is");
    one.refused = stage->refused();
    if (!is_tick || !one.link) continue;
    Expect(!is_anothers_, "law 6: ", stage->address(),
           " is kept while another one leads");
    const TimePoint heard =
        was_up_ && one.welcomed ? std::max(one.heard, passed_) : one.heard;
    Expect(one.welcomed ? now - heard < lost
                        : now - one.opened < options_.transport.peer_timeout,
           "law 5: ", stage->address(), " is silent");
  }
  for (size_t i = 0; i < holders_.size(); ++i) {
    if (!keeps_[i]) continue;
    const auto at = std::ranges::find_if(
        stages, [&](const auto& stage) { return stage->id() == holders_[i]; });
    Expect(at - stages.begin() < static_cast<ptrdiff_t>(count) || !Keeps(**at),
           "law 4: ", (*at)->address(), " has lost its place");
  }
  holders_.clear();
  keeps_.clear();
  for (size_t i = 0; i < count; ++i) {
    if (up_) {
      Expect(Of(stages[i]->id()).welcomed &&
                 stages[i]->facts().place() == decider.places().layers()[i],
             "law 4: up without ", stages[i]->address());
    }
    holders_.push_back(stages[i]->id());
    keeps_.push_back(Keeps(*stages[i]));
  }
  const bool has_lease = options_.lease > Duration::zero();
  const bool leads = decider.role() == GatewayRole::kLeader;
  Expect(!has_lease || up_ || !leads || !decider.places().all_held(),
         "law 6: it leads, and another one has all stages");
  is_anothers_ = has_lease && !leads && peers_ != PeerLead::kNone;
  was_up_ = up_;
  in_tick_ = has_lost_ = false;
}

}  // namespace sluice::simulation
