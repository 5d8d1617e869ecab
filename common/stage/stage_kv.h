#ifndef SLUICE_COMMON_STAGE_STAGE_KV_H_
#define SLUICE_COMMON_STAGE_STAGE_KV_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/core/step_plan.h"
#include "common/stage/kv_store.h"
#include "common/stage/stage.h"

namespace sluice {

// A stage's KvStore. It notes which blocks plans write, and for which KV group:
// layers of several groups share memory, so that a block has a meaning in the
// layers of its present group alone.
class StageKv : public KvStore {
 public:
  explicit StageKv(Stage* stage);

  // The blocks that the chunks write, in the order of plans.
  void Note(const std::vector<Stage::ChunkInput>& chunks);
  // These blocks hold nothing.
  void Vacate(const std::vector<BlockRange>& vacant);

  std::vector<KvName> Written(const StagePlace& place) const override;
  size_t BytesOf(const KvName& name) const override;
  size_t most_bytes() const override;
  uint64_t shelf_room() const override { return stage_.shelf_room(); }
  StatusOr<KvEntry> Read(const KvName& name) const override;
  Status Write(const KvEntry& entry) override;

  // Entries that were read or written so far. Any thread.
  uint64_t copied() const { return copied_; }

 private:
  static constexpr int16_t kNone = -1;

  Status Check(const KvName& name) const;
  bool IsState(int32_t group) const;
  // The group that a block is written for; kNone: for none.
  int16_t& GroupOf(int32_t group, int32_t block);
  int16_t GroupOf(int32_t group, int32_t block) const;

  Stage& stage_;
  mutable std::atomic<uint64_t> copied_{0};
  std::vector<int16_t> groups_;  // by block of keys and values
  std::vector<int16_t> states_;  // by block of states
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_STAGE_KV_H_
