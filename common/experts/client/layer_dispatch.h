#ifndef SLUICE_COMMON_EXPERTS_CLIENT_LAYER_DISPATCH_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_LAYER_DISPATCH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/experts/client/shard_map.h"
#include "common/model/expert_transport.h"
#include "common/wire/expert.h"

namespace sluice {

// A host's answer to one batch, with the batch's rows of the step.
struct HostReply {
  wire::ExpertResult result;
  std::vector<int32_t> rows;  // of the step, rising; one per row of the result
};

// A shard's experts for some rows, which go to one host together.
struct DispatchUnit {
  enum class State { kToSend, kSent, kAnswered, kFailed };
  int32_t shard = 0;          // of the layer
  int32_t chunk = 0;          // units of one batch are of one chunk of rows
  int32_t chunk_rows = 0;     // the most rows of a batch of the chunk
  std::vector<int32_t> rows;  // of the step, rising, at least one
  int64_t pairs = 0;          // of row and expert
  State state = State::kToSend;
  std::vector<int32_t> sent_to;     // hosts that have not answered yet
  std::vector<int32_t> refused_by;  // hosts that will not answer
  int32_t attempts = 0;
  int64_t sent_ns = 0;      // when the unit was last sent
  int64_t batch_pairs = 0;  // of the batch that it was sent with
  Status why;               // kFailed: the reason; before: the latest error
  std::shared_ptr<const HostReply> reply;  // kAnswered
  int32_t reply_node = 0;                  // the shard's first node in it
  bool open() const { return state == State::kToSend || state == State::kSent; }
};

// One layer's rows for remote experts: cut into units by shards and rows, made
// into batches, and the hosts' replies combined. Knows no host and never waits.
// The map, and the memory of `routed`, which is the host's, must outlive it.
class LayerDispatch {
 public:
  // `max_rows`: of one batch.
  LayerDispatch(const RoutedRows& routed, const ShardMap& map,
                int32_t max_rows);

  std::vector<DispatchUnit>& units() { return units_; }
  const std::vector<DispatchUnit>& units() const { return units_; }
  const ExpertShard& shard(const DispatchUnit& unit) const {
    return map_->shards(routed_.layer)[static_cast<size_t>(unit.shard)];
  }
  bool open() const;

  // For a host that takes fewer rows: `unit` becomes a chunk of its own with
  // its first `max_rows` rows. The others become new units of at most that many
  // rows, at the end, each an unsent chunk. A reply under way for the whole
  // unit stays good for the rows that the unit keeps.
  void Split(size_t unit, int32_t max_rows);

  // Returns a batch of `units` (indices, rising, of one chunk) without ids;
  // `rows` become its rows of the step.
  wire::ExpertBatch MakeBatch(std::span<const size_t> units,
                              std::vector<int32_t>& rows) const;
  // Gives `reply`, which answers a batch of `units`, to those that are open.
  void Take(std::span<const size_t> units,
            std::shared_ptr<const HostReply> reply);

  // Needs all units done. Fills in parts as ExpertTransport::Combine does, and
  // returns its failures.
  std::vector<RowFailure> Combine(std::span<const kernels::Matrix> parts) const;

 private:
  int64_t CountPairs(const DispatchUnit& unit) const;

  RoutedRows routed_;
  const ShardMap* map_;
  std::vector<DispatchUnit> units_;
  int32_t chunks_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_LAYER_DISPATCH_H_
