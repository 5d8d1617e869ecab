#ifndef SLUICE_TESTS_SIMULATION_DECIDER_LAWS_H_
#define SLUICE_TESTS_SIMULATION_DECIDER_LAWS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/core/gateway_role.h"
#include "common/pipeline/gateway/cluster_decider.h"

namespace sluice::simulation {

// Holds the actions of one gateway's decider against the laws:
//
//   1. an epoch is assigned once to each place, last place first, to a process
//      that is there, holds the place's layers and has said that its successor
//      accepted the epoch; epochs rise while the stages' terms do
//   2. nothing is sent to a process that is not there, nor twice without cause:
//      one hello per pause, one load per stream, one heartbeat per period,
//      a load in the latest epoch
//   3. plans pass between TellUp and TellLost alone; the two take turns
//   4. a pipeline that is up has a process in each place; a process that may
//      serve, or loads, keeps its place, unless the layers are split anew
//   5. after a tick no process that was silent for too long is there
//   6. a gateway that another one leads takes no stage, and keeps none
//   7. no epoch has a term far above those of most stages
//   8. a stage that was told to end keeps its place while the owner needs it
//   9. after a failed try the next one waits
class DeciderLaws {
 public:
  DeciderLaws(const PipelineOptions& options, size_t processes);

  // What the decider is told; before it is.
  void OnWelcome(size_t process, uint64_t link_id, Epoch highest,
                 const StagePlace& place, TimePoint now);
  void OnHeard(size_t process, TimePoint now) { Of(process).heard = now; }
  void OnEnd(size_t process, TimePoint now);
  void OnDraining(size_t process) { Of(process).leaving = true; }
  void OnAssigned(size_t process, Epoch epoch, bool ok);
  void OnPeers(PeerLead peers) { peers_ = peers; }
  void OnDrain() { draining_ = true; }
  void BeforeTick(const OwnerSigns& owner, TimePoint passed) {
    owner_ = owner;
    passed_ = passed;
    in_tick_ = true;
  }

  // ReleaseLeaving follows.
  void BeforeRelease(const OwnerSigns& owner) { owner_ = owner; }

  // One action of the decider.
  void On(const act::Action& action, const ClusterDecider& decider,
          TimePoint now);
  // After an event, whose actions are done.
  void After(const ClusterDecider& decider, TimePoint now, bool is_tick);

  // The law that was broken first; empty: none was.
  const std::string& failure() const { return failure_; }

 private:
  struct Process {
    std::optional<uint64_t> link;
    bool welcomed = false;
    bool leaving = false;
    bool refused = false;  // by the gateway, for its facts
    int loads = 0;         // asked on this stream
    StagePlace place;
    Epoch highest;
    Epoch accepted;
    TimePoint opened{}, heard{};
    std::optional<TimePoint> beat, ended;
    std::optional<TimePoint> raised;  // the latest hello on an open stream
  };
  Process& Of(size_t process) { return processes_[process]; }
  template <typename... Parts>
  void Expect(bool holds, const Parts&... parts) {
    if (!holds && failure_.empty()) failure_ = Cat(parts...);
  }
  void OnAction(const act::OpenControl& open, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::EndControl& end, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::SendHeartbeat& beat, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::SendLoad& load, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::SendAssign& assign, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::SendDrain& drain, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::SetHolders& holders, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::OpenPlans& open, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::LetPlansPass& pass, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::ClosePlans& close, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::TellUp& up, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::TellLost& lost, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::TellLeaving& leaving, const ClusterDecider& decider,
                TimePoint now);
  void OnAction(const act::WriteLog& line, const ClusterDecider& decider,
                TimePoint now) {}
  void CheckTerm(uint64_t term);

  const PipelineOptions options_;
  std::vector<Process> processes_;
  uint64_t links_ = 0;
  uint64_t beats_ = 0;
  PeerLead peers_ = PeerLead::kNone;
  OwnerSigns owner_;
  TimePoint passed_{};
  bool draining_ = false;
  // Of the latest epoch: the processes that were told it, last place first.
  Epoch epoch_;
  std::vector<size_t> assigned_;
  bool opened_ = false, live_ = false, up_ = false, tries_ = false;
  uint64_t own_term_ = 0;  // of the latest pipeline
  std::optional<TimePoint> failed_at_;
  // Before the event.
  bool in_tick_ = false, was_up_ = false, is_anothers_ = false;
  bool has_lost_ = false;  // TellLost came just before, in this event
  std::vector<size_t> holders_;
  std::vector<bool> keeps_;  // whether the holder may keep its place
  std::string failure_;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_DECIDER_LAWS_H_
