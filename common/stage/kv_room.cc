#include "common/stage/kv_room.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "common/base/log.h"
#include "common/device/make_backends.h"
#include "common/model_config/kv_layout.h"
#include "common/placement/layer_loads.h"

namespace sluice {
namespace {

// `memory`: the most that the stage takes of it, 0: all.
KvRoom RoomIn(const MemoryLoad& load, uint64_t memory) {
  const auto rest = [&load](uint64_t bytes) {
    return bytes > load.weights ? bytes - load.weights : 0;
  };
  const uint64_t at_hand = rest(load.available);
  KvRoom room = {load.device,
                 load.weights,
                 load.block_bytes,
                 at_hand,
                 load.device.empty() ? at_hand / kKvMemoryShare : at_hand,
                 load.state_bytes};
  if (memory == 0) return room;
  room.at_most = std::min(at_hand, rest(memory));
  room.to_choose = std::min(room.to_choose, room.at_most);
  return room;
}

// Returns at most `blocks`, in steps of a sixteenth or less. So a process that
// takes a lost one's place chooses as many though a little more or less memory
// is free, and the other stages' KV cache serves on.
uint64_t InSteps(uint64_t blocks) {
  const int steps = std::max(static_cast<int>(std::bit_width(blocks)) - 5, 0);
  return blocks >> steps << steps;
}

// The later allocation in one piece ends the process if memory is short.
Status CheckKvFits(int32_t blocks, const KvRoom& room) {
  const uint64_t bytes = room.block_bytes * static_cast<uint64_t>(blocks);
  if (bytes <= room.at_most) return OkStatus();
  return ResourceExhausted(room.device, room.device.empty() ? "" : ": ",
                           "a KV cache of ", blocks, " blocks takes ", bytes,
                           " bytes, available beside ", room.weights,
                           " of weights are ", room.at_most,
                           room.is_f32 ? "; --kv-type bf16 takes half" : "");
}

// A GPU that cannot hold its ranks' weights.
Status CheckWeightsFit(const MemoryLoad& load) {
  if (load.device.empty() || load.weights <= load.available) return OkStatus();
  return ResourceExhausted(load.device, ": its weights take ", load.weights,
                           " bytes, free beside the reserve are ",
                           load.available);
}

}  // namespace

StatusOr<KvRoom> RoomBeside(std::span<const MemoryLoad> loads,
                            uint64_t memory) {
  std::optional<KvRoom> least;
  for (const MemoryLoad& load : loads) {
    SLUICE_RETURN_IF_ERROR(CheckWeightsFit(load));
    const KvRoom room = RoomIn(load, memory / loads.size());
    if (!least.has_value() ||
        room.at_most / room.block_bytes < least->at_most / least->block_bytes) {
      least = room;
    }
  }
  return *least;
}

int32_t MostContext(const ModelConfig& config) {
  return std::min(config.max_position_embeddings, kMaxContext);
}

StatusOr<int32_t> ChooseMaxContext(const StageOptions& options,
                                   const ModelConfig& config,
                                   const KvRoom& room) {
  const int32_t most = MostContext(config);
  if (options.max_context != 0) {
    if (options.max_context >= 1 && options.max_context <= most) {
      return options.max_context;
    }
    return InvalidArgument("max_context must be between 1 and ", most,
                           " (the model has ", config.max_position_embeddings,
                           "), got ", options.max_context);
  }
  if (options.kv_blocks > 0) return most;
  const auto within = [&](uint64_t bytes, int32_t positions) {
    const auto blocks = static_cast<int64_t>(
        std::min<uint64_t>(InSteps(bytes / room.block_bytes), kMaxKvBlocks));
    return KvPositionsIn(config, blocks, options.max_step_tokens, positions);
  };
  const int32_t context =
      std::max(within(room.to_choose, most),
               within(room.at_most / 2, std::min(most, kDefaultMaxContext)));
  // CheckKvFits refuses when there is no room for a block.
  return std::max(context, std::min(most, kBlockTokens));
}

StatusOr<int32_t> ChooseKvBlocks(const StageOptions& options,
                                 const ModelConfig& config, int32_t max_context,
                                 const KvRoom& room) {
  if (options.kv_blocks > 0) {
    SLUICE_RETURN_IF_ERROR(CheckKvFits(options.kv_blocks, room));
    return options.kv_blocks;
  }
  const uint64_t one =
      KvBlocksOfOne(config, max_context, options.max_step_tokens);
  const uint64_t all =
      std::min<uint64_t>(one * options.max_sequences, kMaxKvBlocks);
  const uint64_t fit = InSteps(room.to_choose / room.block_bytes);
  const auto blocks = static_cast<int32_t>(std::clamp(fit, one, all));
  LogInfo("kv cache: chose ", blocks, " blocks of ", kBlockTokens, " tokens, ",
          blocks * room.block_bytes / (1 << 20), " MiB",
          room.device.empty() ? "" : " on ", room.device);
  SLUICE_RETURN_IF_ERROR(CheckKvFits(blocks, room));
  return blocks;
}

KvRoom KvRoom::Beside(int32_t state_blocks) const {
  const uint64_t bytes = state_bytes * static_cast<uint64_t>(state_blocks);
  KvRoom rest = *this;
  rest.at_most -= std::min(bytes, at_most);
  rest.to_choose -= std::min(bytes, to_choose);
  return rest;
}

StatusOr<int32_t> ChooseStateBlocks(const StageOptions& options,
                                    const ModelConfig& config,
                                    const KvRoom& room) {
  if (StateGroup(config) == 0) return 0;
  if (room.state_bytes == 0) return static_cast<int32_t>(kMaxKvBlocks);
  const uint64_t one =
      KvBlocksOfOne(config, MostContext(config), options.max_step_tokens);
  const uint64_t all = std::clamp<uint64_t>(one * options.max_sequences,
                                            kLeastStateBlocks, kMaxKvBlocks);
  const uint64_t fit = InSteps(room.to_choose / 2 / room.state_bytes);
  const auto blocks =
      static_cast<int32_t>(std::clamp<uint64_t>(fit, kLeastStateBlocks, all));
  const uint64_t bytes = room.state_bytes * static_cast<uint64_t>(blocks);
  if (bytes <= room.at_most) return blocks;
  return ResourceExhausted(room.device, room.device.empty() ? "" : ": ",
                           "the least number of states, ", blocks, ", takes ",
                           bytes, " bytes, available beside ", room.weights,
                           " of weights are ", room.at_most);
}

uint64_t EqualShares(const std::map<int, uint64_t>& available) {
  uint64_t least = UINT64_MAX;
  for (const auto& [memory, bytes] : available) least = std::min(least, bytes);
  return available.empty() ? 0 : least * available.size();
}

uint64_t AvailableOn(const std::string& device) {
  const auto found = FindDevices(device);
  std::map<int, uint64_t> available;
  for (size_t i = 0; found.ok() && i < found->size(); ++i) {
    available[static_cast<int>(i)] = (*found)[i].available;
  }
  return EqualShares(available);
}

}  // namespace sluice
