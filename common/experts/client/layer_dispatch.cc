#include "common/experts/client/layer_dispatch.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace sluice {

LayerDispatch::LayerDispatch(const RoutedRows& routed, const ShardMap& map,
                             int32_t max_rows)
    : routed_(routed), map_(&map) {
  const size_t shards = map.shards(routed.layer).size();
  const Routing& routing = routed.routing;
  std::vector<int32_t> unit_of(shards);
  for (int32_t begin = 0; begin < routed.x.rows; begin += max_rows) {
    std::fill(unit_of.begin(), unit_of.end(), -1);
    const auto end = static_cast<int32_t>(
        std::min<int64_t>(routed.x.rows, begin + max_rows));
    for (int32_t row = begin; row < end; ++row) {
      for (int32_t j = 0; j < routing.per_token; ++j) {
        const int32_t id = routing.ids[int64_t{row} * routing.per_token + j];
        const int32_t shard = map.ShardOf(routed.layer, id);
        if (shard < 0) continue;
        int32_t& index = unit_of[static_cast<size_t>(shard)];
        if (index < 0) {
          index = static_cast<int32_t>(units_.size());
          DispatchUnit& fresh = units_.emplace_back();
          fresh.shard = shard;
          fresh.chunk = begin / max_rows;
          fresh.chunk_rows = end - begin;
        }
        DispatchUnit& unit = units_[static_cast<size_t>(index)];
        if (unit.rows.empty() || unit.rows.back() != row) {
          unit.rows.push_back(row);
        }
        ++unit.pairs;
      }
    }
  }
  // By chunk, then by shard, so that a batch's nodes rise.
  std::stable_sort(units_.begin(), units_.end(),
                   [](const DispatchUnit& a, const DispatchUnit& b) {
                     return std::pair(a.chunk, a.shard) <
                            std::pair(b.chunk, b.shard);
                   });
  chunks_ = units_.empty() ? 0 : units_.back().chunk + 1;
}

int64_t LayerDispatch::CountPairs(const DispatchUnit& unit) const {
  const int32_t per_token = routed_.routing.per_token;
  int64_t pairs = 0;
  for (const int32_t row : unit.rows) {
    const int32_t* ids = routed_.routing.ids + int64_t{row} * per_token;
    pairs += std::count_if(ids, ids + per_token, [&](int32_t id) {
      return map_->ShardOf(routed_.layer, id) == unit.shard;
    });
  }
  return pairs;
}

void LayerDispatch::Split(size_t index, int32_t max_rows) {
  const std::vector<int32_t> rows = std::move(units_[index].rows);
  const auto piece = [&](size_t begin) {
    const size_t end =
        std::min(rows.size(), begin + static_cast<size_t>(max_rows));
    return std::vector<int32_t>(rows.begin() + static_cast<int64_t>(begin),
                                rows.begin() + static_cast<int64_t>(end));
  };
  const auto fill = [&](DispatchUnit& unit, size_t begin) {
    unit.rows = piece(begin);
    unit.chunk = chunks_++;
    unit.chunk_rows = static_cast<int32_t>(unit.rows.size());
    unit.pairs = CountPairs(unit);
  };
  fill(units_[index], 0);
  for (auto begin = static_cast<size_t>(max_rows); begin < rows.size();
       begin += static_cast<size_t>(max_rows)) {
    DispatchUnit fresh = units_[index];
    fill(fresh, begin);
    fresh.state = DispatchUnit::State::kToSend;
    fresh.sent_to.clear();
    units_.push_back(std::move(fresh));
  }
}

bool LayerDispatch::open() const {
  return std::any_of(units_.begin(), units_.end(),
                     [](const DispatchUnit& unit) { return unit.open(); });
}

wire::ExpertBatch LayerDispatch::MakeBatch(std::span<const size_t> units,
                                           std::vector<int32_t>& rows) const {
  wire::ExpertBatch batch;
  batch.replica = routed_.step.replica;
  batch.epoch = routed_.step.epoch;
  batch.step = routed_.step.step_id;
  batch.layer = routed_.layer;
  std::vector<bool> wanted(map_->shards(routed_.layer).size());
  rows.clear();
  for (const size_t index : units) {
    const DispatchUnit& unit = units_[index];
    wanted[static_cast<size_t>(unit.shard)] = true;
    const auto& nodes = shard(unit).nodes;
    batch.nodes.insert(batch.nodes.end(), nodes.begin(), nodes.end());
    rows.insert(rows.end(), unit.rows.begin(), unit.rows.end());
  }
  if (units.size() > 1) {
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  const auto cols = static_cast<int32_t>(routed_.x.cols);
  batch.x = HiddenStates(static_cast<int32_t>(rows.size()), cols);
  float* to = batch.x.values();
  const int32_t per_token = routed_.routing.per_token;
  for (const int32_t row : rows) {
    std::memcpy(to, routed_.x.row(row),
                sizeof(float) * static_cast<size_t>(cols));
    to += cols;
    int32_t count = 0;
    for (int32_t j = 0; j < per_token; ++j) {
      const int64_t at = int64_t{row} * per_token + j;
      const int32_t id = routed_.routing.ids[at];
      const int32_t shard = map_->ShardOf(routed_.layer, id);
      if (shard < 0 || !wanted[static_cast<size_t>(shard)]) continue;
      batch.expert_ids.push_back(id);
      batch.weights.push_back(routed_.routing.weights[at]);
      ++count;
    }
    batch.counts.push_back(count);
  }
  return batch;
}

void LayerDispatch::Take(std::span<const size_t> units,
                         std::shared_ptr<const HostReply> reply) {
  int32_t node = 0;
  for (const size_t index : units) {
    DispatchUnit& unit = units_[index];
    if (unit.open()) {
      unit.state = DispatchUnit::State::kAnswered;
      unit.reply = reply;
      unit.reply_node = node;
    }
    node += static_cast<int32_t>(shard(unit).nodes.size());
  }
}

std::vector<RowFailure> LayerDispatch::Combine(
    std::span<const kernels::Matrix> parts) const {
  for (const kernels::Matrix& part : parts) {
    for (int64_t row = 0; row < part.rows; ++row) {
      std::fill(part.row(row), part.row(row) + part.cols, -0.0f);
    }
  }
  std::map<int32_t, Status> failed;
  for (const DispatchUnit& unit : units_) {
    if (unit.state == DispatchUnit::State::kFailed) {
      for (const int32_t row : unit.rows) failed.emplace(row, unit.why);
      continue;
    }
    const HostReply& reply = *unit.reply;
    // A row that the host could not compute is no fault of the client.
    for (const wire::ExpertRowFailure& failure : reply.result.failures) {
      failed.emplace(reply.rows[static_cast<size_t>(failure.row)],
                     Internal(Message(failure.status)));
    }
    const ExpertShard& of = shard(unit);
    size_t at = 0;  // in the reply's rows, which have all of the unit's
    for (const int32_t row : unit.rows) {
      while (reply.rows[at] != row) ++at;
      if (failed.contains(row)) continue;
      for (size_t i = 0; i < of.nodes.size(); ++i) {
        const kernels::Matrix& part =
            parts[static_cast<size_t>(of.first_node) + i];
        const float* sum = reply.result.sum(
            unit.reply_node + static_cast<int32_t>(i), static_cast<int32_t>(at),
            static_cast<int32_t>(part.cols));
        std::memcpy(part.row(row), sum,
                    sizeof(float) * static_cast<size_t>(part.cols));
      }
    }
  }
  std::vector<RowFailure> failures;
  for (auto& [row, why] : failed) failures.push_back({row, std::move(why)});
  return failures;
}

}  // namespace sluice
