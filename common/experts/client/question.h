#ifndef SLUICE_COMMON_EXPERTS_CLIENT_QUESTION_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_QUESTION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/experts/client/shard_map.h"
#include "common/model/expert_owner.h"
#include "common/wire/expert.h"

namespace sluice {

// What a host answered to one batch, and which rows of the step they are.
struct ExpertReply {
  wire::ExpertResult result;
  std::vector<int32_t> rows;  // of the step, rising; one per row of the result
};

// A shard's experts for some rows: what is asked of one host at a time.
struct AskUnit {
  enum class State { kToAsk, kAsked, kAnswered, kFailed };
  int32_t shard = 0;          // of the layer
  int32_t chunk = 0;          // units of one batch are of one chunk of rows
  int32_t chunk_rows = 0;     // a batch of the chunk has at most so many
  std::vector<int32_t> rows;  // of the step, rising, at least one
  int64_t asks = 0;           // pairs of row and expert
  State state = State::kToAsk;
  std::vector<int32_t> asked;    // hosts that have not answered yet
  std::vector<int32_t> refused;  // hosts that will not
  int32_t attempts = 0;
  int64_t asked_ns = 0;    // when it was asked last
  int64_t batch_asks = 0;  // of the batch that it was asked with
  Status why;              // kFailed: the reason; before: what went wrong last
  std::shared_ptr<const ExpertReply> reply;  // kAnswered
  int32_t reply_node = 0;                    // the shard's first node in it
  bool open() const { return state == State::kToAsk || state == State::kAsked; }
};

// One layer's ExpertAsk, cut into units by shards and rows, its batches made
// and its answers put together. Knows no host and waits for nobody. `ask`'s
// memory and the map must outlive it; on a CPU that memory is read as it is.
class Question {
 public:
  // `max_rows`: of one batch.
  Question(const ExpertAsk& ask, const ShardMap& map, int32_t max_rows);

  std::vector<AskUnit>& units() { return units_; }
  const ExpertShard& shard(const AskUnit& unit) const {
    return map_->shards(ask_.layer)[static_cast<size_t>(unit.shard)];
  }
  bool open() const;

  // For a host that takes fewer rows: `unit` becomes a chunk of its own and
  // keeps its first `max_rows` rows; the others become new units of as many, at
  // the end, each a chunk that is to be asked. An answer that is under way for
  // the whole unit stays good for what it keeps.
  void Split(size_t unit, int32_t max_rows);

  // A batch of `units` (indices, rising, of one chunk) without ids; `rows`
  // become those of the step that it has.
  wire::ExpertBatch MakeBatch(std::span<const size_t> units,
                              std::vector<int32_t>& rows) const;
  // Gives `reply`, the answer to a batch of `units`, to those of them that
  // are open.
  void Answer(std::span<const size_t> units,
              std::shared_ptr<const ExpertReply> reply);

  // When nothing is open: parts as ExpertOwner::Finish gives them, and its
  // failures.
  std::vector<RowFailure> Join(std::span<const kernels::Matrix> parts) const;

 private:
  int64_t CountAsks(const AskUnit& unit) const;

  ExpertAsk ask_;
  const ShardMap* map_;
  std::vector<AskUnit> units_;
  int32_t chunks_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_QUESTION_H_
