#include "common/pipeline/gateway/stage_places.h"

#include <algorithm>
#include <utility>

#include "common/core/epochs.h"
#include "common/pipeline/gateway/handshake.h"
#include "common/pipeline/gateway/term_check.h"

namespace sluice {

StagePlaces::StagePlaces(StageProcesses stages, size_t count,
                         std::vector<StagePlace> layers, act::Outbox& out,
                         std::function<Status(const StageFacts&)> check_model)
    : stages_(std::move(stages)),
      places_(std::move(layers)),
      are_given_(!places_.empty()),
      out_(out),
      check_model_(check_model != nullptr
                       ? std::move(check_model)
                       : [](const StageFacts&) { return OkStatus(); }) {
  places_.resize(count);
  for (size_t i = 0; i < count; ++i) stages_[i]->SetIndex(i);
}

StageProcesses StagePlaces::holders() const {
  return {stages_.begin(), stages_.begin() + std::ssize(places_)};
}

std::optional<size_t> StagePlaces::IndexOf(uint64_t link_id) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i]->linked() && stages_[i]->link_id() == link_id) return i;
  }
  return std::nullopt;
}

void StagePlaces::OnWelcome(size_t index, bool is_up) {
  for (const auto& any : stages_) any->SetConflict("");
  if (is_up) CheckSpares();
  breaks_.Forget(stages_[index]->address());
  if (!has(index) || are_given_) return;
  const StageFacts& facts = stages_[index]->facts();
  if (facts.place().empty()) return;
  if (facts.assignable && !places_[index].empty()) return;
  places_[index] = facts.place();
}

bool StagePlaces::Fill(TimePoint now, Duration patience, std::string& message) {
  bool changed = false;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (stages_[i]->vacant(now, patience) || Succeeded(i)) {
      const bool given = Give(i, message);
      changed = given || changed;
      if (!given) {
        for (const auto& any : stages_) any->EndPause(now);
      }
    }
    StageProcess& stage = *stages_[i];
    const StagePlace& place = places_[i];
    if (!stage.available() || stage.holds(place)) continue;
    if (place.empty()) {
      message = Cat(stage.Describe(),
                    " waits to be told its layers: no stage has held this "
                    "place's, and --layers does not name them");
    } else if (stage.facts().assignable) {
      stage.AskToLoad(place, epoch_, out_, moves_.IsDonor(stage));
    } else {
      message = Cat(stage.Describe(), " does not hold its place's layers, ",
                    place.first_layer, " to ", place.last_layer - 1);
      stage.SetConflict(message);
    }
  }
  return changed;
}

bool StagePlaces::Succeeded(size_t index) const {
  if (!stages_[index]->gone()) return false;
  const StagePlace place =
      places_[index].empty() ? Between(index) : places_[index];
  return std::any_of(
      stages_.begin() + std::ssize(places_), stages_.end(),
      [&](const auto& s) { return s->available() && s->holds(place); });
}

StagePlace StagePlaces::Between(size_t index) const {
  if (index > 0 && places_[index - 1].empty()) return {};
  StagePlace gap;
  if (index > 0) gap.first_layer = places_[index - 1].last_layer;
  if (index + 1 < places_.size()) {
    gap.last_layer = places_[index + 1].first_layer;
    return gap;
  }
  for (const auto& stage : stages_) {
    gap.last_layer = std::max(gap.last_layer, stage->facts().num_layers);
  }
  return gap;
}

size_t StagePlaces::SpareFor(const StagePlace& place) {
  size_t chosen = 0;
  for (size_t i = places_.size(); i < stages_.size(); ++i) {
    StageProcess& spare = *stages_[i];
    if (!spare.available()) continue;
    if (const Status fits = CheckSpare(spare.facts()); !fits.ok()) {
      Refuse(spare, Message(fits));
    } else if (spare.holds(place)) {
      chosen = i;  // has nothing to load
      break;
    } else if (chosen == 0 && spare.facts().assignable) {
      chosen = i;
    }
  }
  return chosen;
}

bool StagePlaces::Prepare(size_t index) {
  const size_t chosen = SpareFor(places_[index]);
  if (chosen == 0) return false;
  if (stages_[chosen]->holds(places_[index])) return true;
  stages_[chosen]->AskToLoad(places_[index], epoch_, out_);
  return false;
}

bool StagePlaces::has_spare(size_t index) const {
  return std::any_of(
      stages_.begin() + std::ssize(places_), stages_.end(),
      [&](const auto& spare) {
        const bool takes =
            spare->facts().assignable || spare->holds(places_[index]);
        const bool is_there = spare->available() || spare->loading();
        // A load that failed is no reason to wait for another one.
        const bool fails =
            spare->load_failed() && !spare->holds(places_[index]);
        return takes && is_there && !fails && CheckSpare(spare->facts()).ok();
      });
}

bool StagePlaces::Give(size_t index, std::string& message) {
  const StagePlace place =
      places_[index].empty() ? Between(index) : places_[index];
  const bool any_spare =
      std::any_of(stages_.begin() + std::ssize(places_), stages_.end(),
                  [](const auto& spare) { return spare->available(); });
  if (place.empty() && any_spare) {
    message = Cat(stages_[index]->Describe(),
                  " is gone before this gateway knew its layers: a spare "
                  "takes its place if --layers names them");
  }
  const size_t chosen = place.empty() ? 0 : SpareFor(place);
  if (chosen == 0) return false;
  out_.Warn(stages_[index]->Describe(), " loses its place to ",
            stages_[chosen]->Describe(), ": layers ", place.first_layer, " to ",
            place.last_layer - 1);
  places_[index] = place;
  std::swap(stages_[index], stages_[chosen]);
  stages_[index]->SetIndex(index);
  stages_[chosen]->SetIndex(std::nullopt);
  return true;
}

void StagePlaces::OnStreamBroken(size_t index, const std::string& peer,
                                 TimePoint now) {
  StageProcess& stage = *stages_[index];
  const bool again = breaks_.Add(stage.address(), peer, now - up_since_);
  if (again && stage.welcomed() && Prepare(index)) stage.GiveUp(now, out_);
}

StatusOr<StageFacts> StagePlaces::Join(
    const std::optional<StageFacts>& before) {
  std::vector<StageFacts> welcomes;
  Status serve;
  const uint64_t most = TermOfMost(stages_, own_term_);
  for (const auto& stage : holders()) {
    welcomes.push_back(stage->facts());
    Status serves = check_model_(stage->facts());
    std::string told = Message(serves);
    if (serves.ok()) {
      serves = CheckTerm(stage->facts(), most);
      told = Cat(stage->Describe(), ": ", Message(serves));
    }
    if (serves.ok()) continue;
    stage->SetConflict(told);
    if (serve.ok()) serve = MakeStatus(serves.code(), told);
  }
  SLUICE_RETURN_IF_ERROR(serve);
  size_t conflict = 0;
  auto joined = JoinStages(welcomes, before, conflict);
  if (!joined.ok()) stages_[conflict]->SetConflict(Message(joined.status()));
  return joined;
}

void StagePlaces::CheckSpares() {
  for (size_t i = places_.size(); i < stages_.size(); ++i) {
    StageProcess& spare = *stages_[i];
    if (!spare.welcomed()) continue;
    const Status fits = CheckSpare(spare.facts());
    if (fits.ok()) continue;
    Refuse(spare, Message(fits));
  }
}

void StagePlaces::Refuse(StageProcess& spare, const std::string& why) {
  if (refused_[spare.address()] != spare.link_id()) {
    out_.Warn(spare.Describe(), ": ", why);
  }
  refused_[spare.address()] = spare.link_id();
  spare.SetConflict(why);
}

Status StagePlaces::CheckSpare(const StageFacts& spare) const {
  SLUICE_RETURN_IF_ERROR(check_model_(spare));
  SLUICE_RETURN_IF_ERROR(CheckTerm(spare, TermOfMost(stages_, own_term_)));
  for (size_t i = 0; i < places_.size(); ++i) {
    const StageFacts& stage = stages_[i]->facts();
    const std::string& digest = stage.model_digest;
    if (digest.empty() || digest == spare.model_digest) continue;
    // The one in the place is wrong itself.
    if (stages_[i]->refused() || !check_model_(stage).ok()) continue;
    return FailedPrecondition("its model digest is ", spare.model_digest,
                              ", that of ", stages_[i]->Describe(), " is ",
                              digest);
  }
  return OkStatus();
}

void StagePlaces::Set(const std::vector<size_t>& holders,
                      std::vector<StagePlace> layers) {
  StageProcesses ordered;
  for (const size_t index : holders) ordered.push_back(stages_[index]);
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (std::ranges::count(holders, i) == 0) ordered.push_back(stages_[i]);
  }
  stages_ = std::move(ordered);
  places_ = std::move(layers);
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i]->SetIndex(has(i) ? std::optional<size_t>(i) : std::nullopt);
  }
}

size_t StagePlaces::Slowest() const {
  const auto end = stages_.begin() + std::ssize(places_);
  const auto slowest =
      std::min_element(stages_.begin(), end, [](const auto& a, const auto& b) {
        return a->load().steps_done < b->load().steps_done;
      });
  return static_cast<size_t>(slowest - stages_.begin());
}

LostStages StagePlaces::OnUp(Epoch epoch, TimePoint now) {
  up_since_ = now;
  own_term_ = epoch.term();
  CheckSpares();
  std::vector<int32_t> lost;
  bool feeds = false;  // the stage behind computes again
  for (size_t i = places_.size(); i-- > 0;) {
    const StageProcess& stage = *stages_[i];
    const bool kept = stage.kept(epoch);
    feeds = !kept || (feeds && !stage.has_log());
    if (feeds) lost.insert(lost.begin(), places_[i].first_layer);
  }
  for (size_t i = 0; i < stages_.size(); ++i) {
    const bool is_lost =
        has(i) && std::ranges::count(lost, places_[i].first_layer) > 0;
    stages_[i]->OnUp(epoch, has(i), is_lost);
  }
  moves_.OnUp(epoch, holders(), places_);
  if (lost.size() == places_.size()) return std::nullopt;
  return lost;
}

bool StagePlaces::Assign(size_t index, const PipelineLimits& limits,
                         const StageProcess* last) {
  StageProcess& stage = *stages_[index];
  std::vector<act::KvDonor> donors = moves_.DonorsOf(stage, places_[index]);
  const bool copies = !donors.empty();
  const StageProcess* const next =
      has(index + 1) ? stages_[index + 1].get() : nullptr;
  stage.Assign(epoch_, limits, next, last, std::move(donors), moves_.epoch(),
               out_);
  return copies;
}

Epoch StagePlaces::NextEpoch() const {
  Epoch highest;
  for (size_t i = 0; i < places_.size(); ++i) {
    highest = std::max(highest, stages_[i]->highest_epoch());
  }
  if (!IsAboveBy(epoch_.term(), highest.term(), kMostTermsAbove)) {
    highest = std::max(highest, epoch_);
  }
  return ++highest;
}

std::optional<size_t> StagePlaces::first_held() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (stages_[i]->held()) return i;
  }
  return std::nullopt;
}

bool StagePlaces::all_held() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!stages_[i]->held()) return false;
  }
  return true;
}

bool StagePlaces::filled() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!stages_[i]->holds(places_[i])) return false;
  }
  return true;
}

void StagePlaces::Drain() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (stages_[i]->welcomed()) out_.Add(act::SendDrain{stages_[i]->id()});
  }
}

bool StagePlaces::drained() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (stages_[i]->welcomed() && !stages_[i]->drained()) return false;
  }
  return true;
}

PipelineStatus StagePlaces::Report(TimePoint now, TimePoint passed,
                                   Duration suspect_after, bool up) const {
  PipelineStatus status;
  status.ready = up;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const StageProcess& stage = *stages_[i];
    const bool used = has(i);
    StageStatus part = stage.Report(now, used ? passed : TimePoint(),
                                    suspect_after, up || !used);
    if (!used) {
      status.spares.push_back(std::move(part));
      continue;
    }
    if (part.state == StageState::kLoading && part.assignable) {
      status.message = Cat(stage.Describe(), ": ", part.message);
    }
    if (status.ready && part.state != StageState::kReady) {
      status.message = Cat(stage.Describe(), part.state == StageState::kDraining
                                                 ? " is draining"
                                                 : ": " + part.message);
      status.ready = false;
    }
    if (stage.heard() != TimePoint()) part.last_heard = now - stage.heard();
    status.stages.push_back(std::move(part));
  }
  return status;
}

}  // namespace sluice
