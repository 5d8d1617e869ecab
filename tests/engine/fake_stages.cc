#include "tests/engine/fake_stages.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr uint64_t kNothing = 0xdeadbeef;

// What a layer of the group keeps of a history.
uint64_t Kept(size_t group, uint64_t digest) { return Mix(digest + group); }

// What is before a block of states, and its slots.
constexpr size_t kStateSlots = kBlockTokens + 1;

}  // namespace

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Extend(uint64_t digest, TokenId token) {
  return Mix(digest * 31 + static_cast<uint64_t>(token) + 1);
}

uint64_t Digest(const TokenId* tokens, size_t count) {
  uint64_t digest = kNoHistory;
  for (size_t i = 0; i < count; ++i) digest = Extend(digest, tokens[i]);
  return digest;
}

FakeStages::FakeStages(int count, const PlanLimits& limits, bool logs)
    : limits_(limits), logs_(logs), num_layers_(count) {
  std::vector<int32_t> layers;
  for (int32_t i = 0; i < count; ++i) layers.push_back(i);
  Recut(layers);
}

void FakeStages::CopyFrom(const std::vector<Stage>& before, size_t index) {
  Stage& stage = stages_[index];
  bool is_first = true;
  for (const Stage& donor : before) {
    if (donor.first_layer >= stage.last_layer ||
        donor.last_layer <= stage.first_layer) {
      continue;
    }
    const auto take = [&](const std::vector<uint64_t>& from,
                          std::vector<uint64_t>& to) {
      for (size_t i = 0; i < to.size(); ++i) {
        to[i] = is_first || to[i] == from[i] ? from[i] : kNothing;
      }
    };
    take(donor.slots, stage.slots);
    take(donor.states, stage.states);
    is_first = false;
  }
  stage.has_log = false;
}

std::vector<int32_t> FakeStages::Recut(const std::vector<int32_t>& first_layers,
                                       bool copies) {
  const std::vector<Stage> old = copies ? stages_ : std::vector<Stage>();
  std::vector<Stage> before = std::exchange(stages_, {});
  std::vector<int32_t> replaced;
  for (size_t i = 0; i < first_layers.size(); ++i) {
    const int32_t first = first_layers[i];
    const int32_t last =
        i + 1 < first_layers.size() ? first_layers[i + 1] : num_layers_;
    const auto same = std::ranges::find_if(before, [&](const Stage& stage) {
      return stage.first_layer == first && stage.last_layer == last;
    });
    stages_.push_back(same == before.end()
                          ? Stage{first, last, {}, {}, {}, true}
                          : std::move(*same));
    if (same != before.end()) continue;
    Replace(i);
    if (copies) CopyFrom(old, i);
    replaced.push_back(static_cast<int32_t>(i));
  }
  return replaced;
}

void FakeStages::Replace(size_t index) {
  const size_t slots = static_cast<size_t>(limits_.num_blocks) * kBlockTokens;
  stages_.at(index).slots.assign(slots, kNothing);
  stages_[index].states.assign(
      static_cast<size_t>(limits_.num_state_blocks) * kStateSlots, kNothing);
  stages_[index].log.assign(slots, kNothing);
  stages_[index].has_log = true;
}

void FakeStages::Vacate(const std::vector<BlockRange>& vacant) {
  for (Stage& stage : stages_) {
    for (const BlockRange& range : vacant) {
      std::fill(stage.slots.begin() + range.begin * kBlockTokens,
                stage.slots.begin() + range.end * kBlockTokens, kNothing);
    }
  }
}

std::vector<int32_t> FakeStages::first_layers() const {
  std::vector<int32_t> layers;
  for (const Stage& stage : stages_) layers.push_back(stage.first_layer);
  return layers;
}

std::vector<int32_t> FakeStages::ReplayAt(
    const std::vector<int32_t>& lost) const {
  std::vector<int32_t> at = lost;
  for (int32_t i = count() - 1; i > 0; --i) {
    const bool feeds = std::ranges::count(at, i) > 0;
    const bool logs = logs_ && stages_[static_cast<size_t>(i - 1)].has_log;
    if (feeds && !logs && std::ranges::count(at, i - 1) == 0) {
      at.push_back(i - 1);
    }
  }
  for (int32_t& index : at) {
    index = stages_[static_cast<size_t>(index)].first_layer;
  }
  std::ranges::sort(at);
  return at;
}

Status FakeStages::Finish(StepId step) {
  for (; !parts_.empty() && parts_.front().step <= step; parts_.pop_front()) {
    for (size_t i = 0; i < stages_.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(Do(parts_.front(), i, parts_.front().end));
    }
  }
  return OkStatus();
}

void FakeStages::Add(Part part) {
  const bool starts = part.start == part.end;
  if (starts) failed_.erase(part.sequence);
  part.fails = failed_.contains(part.sequence);
  parts_.push_back(std::move(part));
}

std::vector<SequenceId> FakeStages::Carried(StepId step) const {
  std::vector<SequenceId> carried;
  for (const Part& part : parts_) {
    if (part.step == step && part.start < part.end) {
      carried.push_back(part.sequence);
    }
  }
  return carried;
}

void FakeStages::Spoil(StepId step, SequenceId sequence) {
  failed_.insert(sequence);
  for (Part& part : parts_) {
    if (part.step >= step && part.sequence == sequence) part.fails = true;
  }
}

Status FakeStages::Break(const std::function<size_t(size_t)>& pick) {
  size_t most = parts_.size();
  for (size_t i = 0; i < stages_.size(); ++i) {
    most = pick(most + 1);
    for (size_t p = 0; p < most; ++p) {
      SLUICE_RETURN_IF_ERROR(Do(parts_[p], i, parts_[p].end));
    }
    if (most == parts_.size()) continue;
    const Part& torn = parts_[most];
    const auto rows = pick(static_cast<size_t>(torn.end - torn.start) + 1);
    SLUICE_RETURN_IF_ERROR(
        Do(torn, i, torn.start + static_cast<int32_t>(rows)));
  }
  parts_.clear();
  failed_.clear();
  return OkStatus();
}

bool FakeStages::Computes(const Part& part, size_t index) const {
  return !part.replay ||
         std::ranges::count(part.replay_at, stages_[index].first_layer) > 0;
}

size_t FakeStages::SlotOf(const Part& part, size_t group,
                          int32_t position) const {
  const BlockId block =
      part.blocks[group].at(static_cast<size_t>(position / kBlockTokens));
  if (HoldsStates(group)) {
    return static_cast<size_t>(block.value()) * kStateSlots + 1 +
           static_cast<size_t>(position % kBlockTokens);
  }
  return static_cast<size_t>(block.value() * kBlockTokens +
                             position % kBlockTokens);
}

Status FakeStages::CheckHistory(const Part& part, const Stage& stage,
                                int32_t query, int32_t end) const {
  for (size_t g = 0; g < part.blocks.size(); ++g) {
    if (HoldsStates(g)) {
      SLUICE_RETURN_IF_ERROR(CheckState(part, stage, g, query, end));
      continue;
    }
    const int32_t window = limits_.kv_window(static_cast<int32_t>(g));
    uint64_t digest = 1;
    for (int32_t p = 0; p < end; ++p) {
      digest = Extend(digest, part.tokens->at(static_cast<size_t>(p)));
      if (window > 0 && p <= query - window) continue;
      if (stage.slots.at(SlotOf(part, g, p)) != Kept(g, digest)) {
        return Internal("position ", p, " of ", end,
                        " reads another history's slot");
      }
    }
  }
  return OkStatus();
}

// The block of the position before the query is whole up to there.
Status FakeStages::CheckState(const Part& part, const Stage& stage,
                              size_t group, int32_t query, int32_t end) const {
  if (query == 0 || end == 0) return OkStatus();
  const int32_t first = (query - 1) / kBlockTokens * kBlockTokens;
  uint64_t digest = kNoHistory;
  for (int32_t p = 0; p < end; ++p) {
    const uint64_t before = digest;
    digest = Extend(digest, part.tokens->at(static_cast<size_t>(p)));
    if (p < first) continue;
    const size_t slot = SlotOf(part, group, p);
    const bool opens = p % kBlockTokens == 0;
    if (stage.states.at(slot) != Kept(group, digest) ||
        (opens && stage.states.at(slot - 1) != Kept(group, before))) {
      return Internal("position ", p, " of ", end,
                      " resumes another history's state");
    }
  }
  return OkStatus();
}

void FakeStages::WriteSlot(const Part& part, size_t group, int32_t position,
                           uint64_t before, uint64_t digest,
                           Stage& stage) const {
  const size_t slot = SlotOf(part, group, position);
  const uint64_t kept = part.fails ? kNothing : Kept(group, digest);
  if (!HoldsStates(group)) {
    stage.slots.at(slot) = kept;
    return;
  }
  stage.states.at(slot) = kept;
  if (position % kBlockTokens != 0) return;
  stage.states.at(slot - 1) = part.fails ? kNothing : Kept(group, before);
}

Status FakeStages::Do(const Part& part, size_t index, int32_t end) {
  Stage& stage = stages_[index];
  const bool lacks = std::ranges::count(part.replay_at, stage.first_layer) > 0;
  Status read = OkStatus();
  if (part.fails) {
    // Reads what it left itself.
  } else if (part.start == part.end && lacks) {
    read = CheckHistory(part, stage, part.whole, part.whole);
  } else if (Computes(part, index)) {
    read = CheckHistory(part, stage, part.query, part.known);
  }
  if (!read.ok()) {
    return Annotate(read, "stage ", index, ", step ", part.step, ", sequence ",
                    part.sequence, " at ", part.start);
  }
  const bool is_lost = part.fails;
  const bool feeds = index + 1 < stages_.size() && Computes(part, index + 1);
  uint64_t digest =
      Digest(part.tokens->data(), static_cast<size_t>(part.start));
  for (int32_t p = part.start; p < end; ++p) {
    const uint64_t before = digest;
    digest = Extend(digest, part.tokens->at(static_cast<size_t>(p)));
    uint64_t& handed_on = stage.log.at(SlotOf(part, 0, p));
    if (Computes(part, index)) {
      for (size_t g = 0; g < part.blocks.size(); ++g) {
        WriteSlot(part, g, p, before, digest, stage);
      }
      handed_on = is_lost ? kNothing : digest;
    } else if (feeds && !part.fails && (!logs_ || handed_on != digest)) {
      return Internal("stage ", index, ", step ", part.step, ", sequence ",
                      part.sequence, ": the log lacks position ", p);
    }
  }
  return OkStatus();
}

}  // namespace sluice
