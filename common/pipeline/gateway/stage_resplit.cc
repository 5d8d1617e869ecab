#include "common/pipeline/gateway/stage_resplit.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice {
namespace {

// Between two tries to split the layers.
constexpr Duration kLook = std::chrono::milliseconds(250);

bool JoinUp(const std::vector<StagePlace>& layers, int32_t num_layers) {
  int32_t next = 0;
  for (const StagePlace& place : layers) {
    if (place.empty() || place.first_layer != next) return false;
    next = place.last_layer;
  }
  return next == num_layers;
}

}  // namespace

SplitPart StageResplit::PartOf(size_t index) const {
  static const StageRoom kNone;
  const StageFacts& facts = places_.stages()[index]->facts();
  return {facts.assignable ? &facts.room : &kNone, facts.place()};
}

void StageResplit::Log(const std::string& why) {
  std::string split;
  for (size_t i = 0; i < places_.count(); ++i) {
    const StagePlace& place = places_.layers()[i];
    const StageProcess& stage = *places_.stages()[i];
    split +=
        Cat(i == 0 ? "" : ", ", place.first_layer, "-", place.last_layer - 1,
            " on ", stage.address(), stage.holds(place) ? " as before" : "");
  }
  out_.Warn("the layers are split anew, ", why, ": ", split);
}

bool StageResplit::Shrink(TimePoint now, Duration patience,
                          std::string& message) {
  growth_.reset();
  const StageProcesses& stages = places_.stages();
  std::vector<size_t> kept;
  std::vector<size_t> gone;
  bool waits = options_.shrink_after == Duration::zero();
  const Duration after = options_.shrink_after * (was_up_ ? 1 : kStartFactor);
  for (size_t i = 0; i < places_.count(); ++i) {
    const Duration missing = stages[i]->Missing(now);
    const bool is_gone = stages[i]->vacant(now, patience);
    (is_gone ? gone : kept).push_back(i);
    // One that was to make the pipeline larger is not waited for.
    const bool is_late = missing >= after || stages[i] == newcomer_;
    waits |= is_gone ? !is_late : !stages[i]->available();
  }
  if (waits || kept.empty()) return false;
  if (gone.empty()) return Align(now, message);
  if (!MayLook(now)) return false;
  std::vector<SplitPart> parts;
  for (const size_t i : kept) {
    if (!places_.CheckSpare(stages[i]->facts()).ok()) return false;
    parts.push_back(PartOf(i));
  }
  const std::string lost = stages[gone[0]]->Describe();
  auto split = ResplitLayers(parts, stages[kept[0]]->facts().num_layers);
  if (!split.ok()) {
    std::string told = Cat(lost,
                           " is gone, nothing takes its place, and the "
                           "other stages cannot: ",
                           Message(split.status()));
    if (told != message) out_.Warn(told);
    message = std::move(told);
    return false;
  }
  message = Cat("the layers are split anew: ", lost, " is gone");
  Become({kept, std::move(split->places)}, Cat(lost, " is gone"));
  // What grew and shrinks soon after may do so again. A stage that is told to
  // end does not.
  if (grown_at_ && now - *grown_at_ < kMostGrowAfter) {
    grow_after_ = std::min<Duration>(2 * grow_after_, kMostGrowAfter);
  }
  return true;
}

void StageResplit::Become(Smaller smaller, const std::string& why) {
  places_.Set(smaller.kept, std::move(smaller.layers));
  ++shrinks_;
  Log(why);
  newcomer_ = nullptr;
}

std::optional<StageResplit::Smaller> StageResplit::Without(size_t index) const {
  if (options_.shrink_after == Duration::zero()) return std::nullopt;
  const StageProcesses& stages = places_.stages();
  Smaller smaller;
  std::vector<SplitPart> parts;
  for (size_t i = 0; i < places_.count(); ++i) {
    if (i == index) continue;
    if (!stages[i]->available() ||
        !places_.CheckSpare(stages[i]->facts()).ok()) {
      return std::nullopt;
    }
    smaller.kept.push_back(i);
    parts.push_back(PartOf(i));
  }
  if (parts.empty()) return std::nullopt;
  auto split = ResplitLayers(parts, stages[index]->facts().num_layers);
  if (!split.ok()) return std::nullopt;
  smaller.layers = std::move(split->places);
  return smaller;
}

bool StageResplit::Leave(size_t index) {
  auto smaller = Without(index);
  if (!smaller) return false;
  growth_.reset();
  const std::string who = places_.stages()[index]->Describe();
  Become(*std::move(smaller), Cat(who, " was told to end"));
  return true;
}

bool StageResplit::MayLook(TimePoint now) {
  if (now < look_at_) return false;
  look_at_ = now + kLook;
  return true;
}

bool StageResplit::Align(TimePoint now, std::string& message) {
  const StageProcesses& stages = places_.stages();
  for (size_t i = 0; i < places_.count(); ++i) {
    if (!stages[i]->available()) return false;
  }
  const int32_t num_layers = stages[0]->facts().num_layers;
  if (places_.are_given() || JoinUp(places_.layers(), num_layers) ||
      !MayLook(now)) {
    return false;
  }
  std::vector<SplitPart> parts;
  std::vector<size_t> all(places_.count());
  std::iota(all.begin(), all.end(), size_t{0});
  for (const size_t i : all) {
    if (!places_.CheckSpare(stages[i]->facts()).ok()) return false;
    parts.push_back(PartOf(i));
  }
  auto split = ResplitLayers(parts, num_layers);
  if (!split.ok()) return false;  // the handshake says what does not fit
  places_.Set(all, std::move(split->places));
  message = "the layers are split anew: the stages do not agree on them";
  Log("which the stages do not agree on");
  return true;
}

std::optional<StageResplit::Growth> StageResplit::With(size_t joiner) const {
  const StageProcesses& stages = places_.stages();
  const int32_t num_layers = stages[joiner]->facts().num_layers;
  const bool to_home = home_.size() == places_.count() + 1;
  std::optional<Growth> best;
  for (const bool home : {true, false}) {
    if (best || (home && !to_home)) continue;
    for (size_t position = 0; position <= places_.count(); ++position) {
      Growth growth;
      growth.joiner = stages[joiner];
      growth.position = position;
      growth.holders.resize(places_.count());
      std::iota(growth.holders.begin(), growth.holders.end(), size_t{0});
      growth.holders.insert(
          growth.holders.begin() + static_cast<ptrdiff_t>(position), joiner);
      std::vector<SplitPart> parts;
      for (const size_t i : growth.holders) parts.push_back(PartOf(i));
      Status fits;
      if (home) {
        growth.layers = home_;
        for (size_t i = 0; i < parts.size() && fits.ok(); ++i) {
          const auto bytes = LoadFor(parts[i], home_[i]);
          fits = bytes.status();
          growth.loaded_bytes += bytes.value_or(0);
        }
      } else {
        auto split = ResplitLayers(parts, num_layers);
        fits = split.status();
        if (split.ok()) {
          growth.layers = std::move(split->places);
          growth.loaded_bytes = split->loaded_bytes;
        }
      }
      if (!fits.ok()) continue;
      if (!best || growth.loaded_bytes < best->loaded_bytes) {
        best = std::move(growth);
      }
    }
  }
  return best;
}

void StageResplit::FindGrowth(TimePoint now) {
  if (!MayLook(now)) return;
  const StageProcesses& stages = places_.stages();
  for (size_t i = places_.count(); i < stages.size() && !growth_; ++i) {
    if (!stages[i]->available() ||
        !places_.CheckSpare(stages[i]->facts()).ok()) {
      continue;
    }
    growth_ = With(i);
    if (!growth_) continue;
    growth_->since = now;
    growth_->link_id = stages[i]->link_id();
  }
}

bool StageResplit::IsReady(TimePoint now) {
  StageProcess& joiner = *growth_->joiner;
  if (growth_->is_asked && joiner.loading()) return false;
  const bool is_new = joiner.link_id() != growth_->link_id;
  const StagePlace& place = growth_->layers[growth_->position];
  const bool holds = joiner.holds(place);
  // It was away for another reason than to load, or could not load.
  if (!joiner.available() || (is_new && !(growth_->is_asked && holds))) {
    growth_.reset();
    return false;
  }
  if (now - growth_->since < grow_after_) return false;
  growth_->link_id = joiner.link_id();
  if (holds) return true;
  growth_->is_asked = true;
  joiner.AskToLoad(place, places_.epoch(), out_);
  return false;
}

bool StageResplit::Grow(TimePoint now, int64_t cost) {
  if (options_.shrink_after == Duration::zero() || places_.count() >= full_) {
    return false;
  }
  const StageProcesses& stages = places_.stages();
  for (size_t i = 0; i < places_.count(); ++i) {
    if (!stages[i]->available()) return false;
  }
  if (!growth_) FindGrowth(now);
  if (!growth_ || !IsReady(now)) return false;
  if (!growth_->ready_since) {
    growth_->ready_since = now;
    growth_->least_cost = cost;
  }
  // As cheap as the cheapest moment of the first ones, or it is too late.
  const Duration waited = now - *growth_->ready_since;
  const bool learns = waited < options_.grow_after;
  if (learns) growth_->least_cost = std::min(growth_->least_cost, cost);
  const bool is_cheap = cost == 0 || (!learns && cost <= growth_->least_cost);
  const bool is_late = waited >= kCheapFactor * options_.grow_after;
  if (cost == INT64_MAX || (!is_cheap && !is_late)) return false;
  const std::string who = growth_->joiner->address();
  const size_t position = growth_->position;
  places_.Set(growth_->holders, std::move(growth_->layers));
  growth_.reset();
  ++growths_;
  grown_at_ = now;
  newcomer_ = places_.stages()[position];
  Log(Cat(who, " joins"));
  return true;
}

void StageResplit::OnUp(TimePoint now) {
  was_up_ = true;
  newcomer_ = nullptr;
  growth_.reset();
  if (grown_at_ && now - *grown_at_ >= kMostGrowAfter) {
    grow_after_ = options_.grow_after;
  }
  if (home_.empty() && places_.count() == full_) home_ = places_.layers();
}

}  // namespace sluice
