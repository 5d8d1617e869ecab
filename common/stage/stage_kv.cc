#include "common/stage/stage_kv.h"

#include <algorithm>
#include <utility>

#include "common/core/kv_groups.h"
#include "common/weights/xxh64.h"

namespace sluice {

uint64_t KvChecksum(std::string_view data) {
  return weights::Xxh64(data.data(), data.size());
}

StageKv::StageKv(Stage* stage)
    : stage_(*stage),
      groups_(static_cast<size_t>(stage->info().limits.num_blocks), kNone),
      states_(static_cast<size_t>(stage->info().limits.num_state_blocks),
              kNone) {}

bool StageKv::IsState(int32_t group) const {
  return sluice::IsState(stage_.info().limits.kv_window(group));
}

int16_t& StageKv::GroupOf(int32_t group, int32_t block) {
  return (IsState(group) ? states_ : groups_).at(static_cast<size_t>(block));
}

int16_t StageKv::GroupOf(int32_t group, int32_t block) const {
  const std::vector<int16_t>& all = IsState(group) ? states_ : groups_;
  const auto at = static_cast<size_t>(block);
  return block >= 0 && at < all.size() ? all[at] : kNone;
}

void StageKv::Note(const std::vector<Stage::ChunkInput>& chunks) {
  for (const Stage::ChunkInput& input : chunks) {
    const Chunk& chunk = *input.chunk;
    const auto count = static_cast<int32_t>(chunk.tokens.size());
    if (count == 0) continue;
    const int32_t last = (chunk.start + count - 1) / kBlockTokens;
    const auto groups = static_cast<int32_t>(input.state->blocks.size());
    for (int32_t group = 0; group < groups; ++group) {
      const auto& table = input.state->blocks[static_cast<size_t>(group)];
      for (int32_t i = chunk.start / kBlockTokens; i <= last; ++i) {
        GroupOf(group, table[static_cast<size_t>(i)].value()) =
            static_cast<int16_t>(group);
      }
    }
  }
}

void StageKv::Vacate(const std::vector<BlockRange>& vacant) {
  for (const BlockRange& range : vacant) {
    std::fill(groups_.begin() + range.begin, groups_.begin() + range.end,
              kNone);
  }
}

std::vector<KvName> StageKv::Written(const StagePlace& place) const {
  const StageInfo& info = stage_.info();
  std::vector<KvName> names;
  const int32_t first = std::max(place.first_layer, info.first_layer);
  const int32_t last = std::min(place.last_layer, info.last_layer);
  for (int32_t layer = first; layer < last; ++layer) {
    for (const auto* blocks : {&groups_, &states_}) {
      for (size_t block = 0; block < blocks->size(); ++block) {
        const int32_t group = (*blocks)[block];
        if (group == kNone || stage_.KvBytes(layer, group) == 0) continue;
        names.push_back({layer, group, BlockId(static_cast<int32_t>(block))});
      }
    }
  }
  return names;
}

Status StageKv::Check(const KvName& name) const {
  const StageInfo& info = stage_.info();
  if (name.layer < info.first_layer || name.layer >= info.last_layer) {
    return FailedPrecondition("layer ", name.layer, ": this stage has layers ",
                              info.first_layer, " to ", info.last_layer - 1);
  }
  if (name.group < 0 || name.group >= info.limits.num_kv_groups) {
    return FailedPrecondition("KV group ", name.group, ", limit ",
                              info.limits.num_kv_groups - 1);
  }
  const size_t count = (IsState(name.group) ? states_ : groups_).size();
  if (name.block.value() < 0 ||
      static_cast<size_t>(name.block.value()) >= count) {
    return FailedPrecondition("block ", name.block, " of KV group ", name.group,
                              ": this stage has ", count, " blocks");
  }
  return OkStatus();
}

size_t StageKv::BytesOf(const KvName& name) const {
  return stage_.KvBytes(name.layer, name.group);
}

size_t StageKv::most_bytes() const {
  const StageInfo& info = stage_.info();
  size_t most = 0;
  for (int32_t layer = info.first_layer; layer < info.last_layer; ++layer) {
    for (int32_t group = 0; group < info.limits.num_kv_groups; ++group) {
      most = std::max(most, stage_.KvBytes(layer, group));
    }
  }
  return most;
}

StatusOr<KvEntry> StageKv::Read(const KvName& name) const {
  SLUICE_RETURN_IF_ERROR(Check(name));
  if (GroupOf(name.group, name.block.value()) != name.group) {
    return FailedPrecondition("block ", name.block,
                              " holds nothing of KV group ", name.group);
  }
  KvEntry entry;
  entry.name = name;
  entry.data.resize(stage_.KvBytes(name.layer, name.group));
  stage_.ReadKv(name, entry.data.data());
  ++copied_;
  entry.checksum = KvChecksum(entry.data);
  return entry;
}

Status StageKv::Write(const KvEntry& entry) {
  const KvName& name = entry.name;
  SLUICE_RETURN_IF_ERROR(Check(name));
  const size_t bytes = stage_.KvBytes(name.layer, name.group);
  if (bytes == 0) {
    return FailedPrecondition("layer ", name.layer, " has nothing of KV group ",
                              name.group);
  }
  if (entry.data.size() != bytes) {
    return FailedPrecondition("block ", name.block, " of layer ", name.layer,
                              ", KV group ", name.group, ", has ",
                              entry.data.size(), " bytes, this stage has ",
                              bytes);
  }
  if (KvChecksum(entry.data) != entry.checksum) {
    return DataLoss("block ", name.block, " of layer ", name.layer,
                    ": its bytes are not those of its checksum");
  }
  stage_.WriteKv(name, entry.data.data());
  ++copied_;
  GroupOf(name.group, name.block.value()) = static_cast<int16_t>(name.group);
  return OkStatus();
}

}  // namespace sluice
