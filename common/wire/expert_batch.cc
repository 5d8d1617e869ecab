// Batches and results of expert.proto.
#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "common/wire/checks.h"
#include "common/wire/expert.h"
#include "common/wire/types.h"

namespace sluice::wire {
namespace {

constexpr size_t kMaxBatchMessage = 2048;
constexpr size_t kMaxRowMessage = 256;
constexpr int64_t kMaxNs = 3'600'000'000'000;  // an hour on one host
// A placement may cut experts finer than one host needs, since other replicas
// may be on other hosts. A batch may have twice the fewest nodes and this many.
constexpr int64_t kMoreNodes = 16;

// Returns the most nodes that a correct client wants of this layer. The bound
// is needed because every node has as many sums as the batch has rows.
int64_t MostNodes(const ExpertWelcome& host, int32_t layer) {
  const int32_t experts = host.model.num_experts;
  int64_t fewest = 0;
  for (const LayerExperts& held : host.held) {
    if (held.layer != layer) continue;
    for (const kernels::TreeNode& range : held.ranges) {
      const auto nodes = kernels::AlignedNodes(range.begin, range.end, experts);
      fewest += static_cast<int64_t>(nodes.size());
    }
  }
  return std::min<int64_t>(experts, kMoreNodes + 2 * fewest);
}

Status CheckNodes(const v1::ExpertBatch& proto, const ExpertWelcome& host) {
  const int32_t experts = host.model.num_experts;
  SLUICE_RETURN_IF_ERROR(CheckRange("number of nodes", proto.nodes_size(), 1,
                                    MostNodes(host, proto.layer())));
  int32_t lowest = 0;
  for (const v1::ExpertIds& ids : proto.nodes()) {
    const kernels::TreeNode node = {ids.begin(), ids.end()};
    if (!IsAlignedNode(node, experts)) {
      return InvalidArgument("node [", node.begin, ", ", node.end,
                             ") is not aligned in a tree over ", experts,
                             " experts");
    }
    SLUICE_RETURN_IF_ERROR(
        CheckRange("begin of a node", node.begin, lowest, experts - 1));
    if (!Holds(host.held, proto.layer(), node)) {
      return FailedPrecondition("experts ", node.begin, "-", node.end - 1,
                                " of layer ", proto.layer(),
                                " are asked and not all of them are here");
    }
    lowest = node.end;
  }
  return OkStatus();
}

// Checks that the lists fit each other; each row's values are checked later.
Status CheckShape(const v1::ExpertBatch& proto, const Buffer& payload,
                  const ExpertWelcome& host) {
  const ExpertModel& model = host.model;
  SLUICE_RETURN_IF_ERROR(CheckRange("number of rows", proto.counts_size(), 1,
                                    host.limits.max_rows));
  const size_t want = sizeof(float) * static_cast<size_t>(proto.counts_size()) *
                      static_cast<size_t>(model.hidden_size);
  if (payload.size() != want) {
    return InvalidArgument("hidden states have ", payload.size(), " bytes, ",
                           proto.counts_size(), " rows have ", want,
                           " (hidden size ", model.hidden_size, ")");
  }
  // The answer is one message as well.
  const int64_t sums = int64_t{proto.nodes_size()} * static_cast<int64_t>(want);
  SLUICE_RETURN_IF_ERROR(
      CheckRange("bytes of sums", sums, 1, kMaxMessageBytes));
  int64_t total = 0;
  for (const int32_t count : proto.counts()) {
    SLUICE_RETURN_IF_ERROR(
        CheckRange("experts of a row", count, 1, model.experts_per_token));
    total += count;
  }
  if (proto.expert_ids_size() != total) {
    return InvalidArgument("the rows' counts add up to ", total, ", there are ",
                           proto.expert_ids_size(), " expert ids");
  }
  if (proto.weights_size() != total) {
    return InvalidArgument("the rows' counts add up to ", total, ", there are ",
                           proto.weights_size(), " weights");
  }
  return OkStatus();
}

bool AllFinite(std::span<const float> values) {
  uint32_t odd = 0;
  for (const float value : values) {
    const uint32_t exponent = std::bit_cast<uint32_t>(value) & 0x7f800000u;
    odd |= static_cast<uint32_t>(exponent == 0x7f800000u);
  }
  return odd == 0;
}

bool InNodes(int32_t id, const std::vector<kernels::TreeNode>& nodes) {
  const auto after =
      std::upper_bound(nodes.begin(), nodes.end(), id,
                       [](int32_t value, const kernels::TreeNode& n) {
                         return value < n.begin;
                       });
  return after != nodes.begin() && id < std::prev(after)->end;
}

// Entries [first, first + count) of the batch's lists, which belong to one row.
struct RowEntries {
  int32_t row = 0;
  size_t first = 0;
  size_t count = 0;
};

Status CheckRow(const ExpertBatch& batch, const RowEntries& at,
                int32_t num_experts) {
  int32_t before = -1;
  for (size_t i = at.first; i < at.first + at.count; ++i) {
    const int32_t id = batch.expert_ids[i];
    SLUICE_RETURN_IF_ERROR(CheckRange("expert id", id, 0, num_experts - 1));
    if (id <= before) {
      return InvalidArgument("expert ids must rise within a row, got ", id,
                             " after ", before);
    }
    if (!InNodes(id, batch.nodes)) {
      return InvalidArgument("expert ", id, " is in no node that is wanted");
    }
    if (!std::isfinite(batch.weights[i])) {
      return InvalidArgument("weight of expert ", id, " is not finite");
    }
    before = id;
  }
  const auto cols = static_cast<size_t>(batch.x.cols);
  const float* values = batch.x.values() + cols * static_cast<size_t>(at.row);
  if (AllFinite({values, cols})) return OkStatus();
  return InvalidArgument("hidden states are not finite");
}

void CheckRows(int32_t num_experts, ExpertBatch* batch) {
  RowEntries at;
  for (const int32_t count : batch->counts) {
    at.count = static_cast<size_t>(count);
    Status status = CheckRow(*batch, at, num_experts);
    if (!status.ok()) {
      batch->failures.push_back({at.row, Annotate(status, "row ", at.row,
                                                  " of layer ", batch->layer)});
    }
    at.first += at.count;
    ++at.row;
  }
}

std::string Cut(const Status& status, size_t most) {
  return Message(status).substr(0, most);
}

Status CheckCode(int32_t code) {
  return CheckRange("status_code", code, 1, 16);
}

// After CheckCode.
Status StatusOf(int32_t code, const std::string& message, size_t most) {
  return MakeStatus(static_cast<StatusCode>(code), message.substr(0, most));
}

Status CheckAnswers(const v1::ExpertResult& proto, const SentBatch& asked) {
  const auto differs = [](const char* what, auto want, auto got) {
    return InvalidArgument("a result's ", what, " is ", got, ", asked was ",
                           want);
  };
  if (proto.batch_id() != asked.batch_id) {
    return differs("batch_id", asked.batch_id, proto.batch_id());
  }
  if (proto.header().replica() != asked.replica.value()) {
    return differs("replica", asked.replica.value(), proto.header().replica());
  }
  if (const Epoch epoch = EpochOf(proto.header()); epoch != asked.epoch) {
    return differs("epoch", asked.epoch, epoch);
  }
  if (proto.header().step_id() != asked.step.value()) {
    return differs("step_id", asked.step.value(), proto.header().step_id());
  }
  if (proto.layer() != asked.layer) {
    return differs("layer", asked.layer, proto.layer());
  }
  return OkStatus();
}

StatusOr<ExpertTimes> TimesFromProto(const v1::ExpertTimes& proto) {
  SLUICE_RETURN_IF_ERROR(CheckRange("queue_ns", proto.queue_ns(), 0, kMaxNs));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("compute_ns", proto.compute_ns(), 0, kMaxNs));
  SLUICE_RETURN_IF_ERROR(CheckRange("total_ns", proto.total_ns(), 0, kMaxNs));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("joined_batches", proto.joined_batches(), 0, 1 << 20));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("joined_rows", proto.joined_rows(), 0, 1 << 30));
  return ExpertTimes{proto.queue_ns(), proto.compute_ns(), proto.total_ns(),
                     proto.joined_batches(), proto.joined_rows()};
}

Status CheckSums(const v1::ExpertResult& proto, const Buffer& payload,
                 const SentBatch& asked) {
  if (proto.nodes() != asked.nodes || proto.rows() != asked.rows) {
    return InvalidArgument("a result has ", proto.nodes(), " nodes of ",
                           proto.rows(), " rows, asked were ", asked.nodes,
                           " of ", asked.rows);
  }
  const size_t want = sizeof(float) * static_cast<size_t>(asked.nodes) *
                      static_cast<size_t>(asked.rows) *
                      static_cast<size_t>(asked.hidden_size);
  if (payload.size() == want) return OkStatus();
  return InvalidArgument("sums have ", payload.size(), " bytes, ", asked.nodes,
                         " nodes of ", asked.rows, " rows have ", want);
}

StatusOr<std::vector<ExpertRowFailure>> FailuresFromProto(
    const v1::ExpertResult& proto, int32_t rows) {
  std::vector<ExpertRowFailure> failures;
  int32_t lowest = 0;
  for (const v1::ExpertRowFailure& failure : proto.failures()) {
    SLUICE_RETURN_IF_ERROR(
        CheckRange("row of a failure", failure.row(), lowest, rows - 1));
    SLUICE_RETURN_IF_ERROR(CheckCode(failure.status_code()));
    failures.push_back(
        {failure.row(), StatusOf(failure.status_code(),
                                 failure.status_message(), kMaxRowMessage)});
    lowest = failure.row() + 1;
  }
  return failures;
}

}  // namespace

v1::ExpertFrame ExpertFrameHead(const ExpertBatch& batch) {
  v1::ExpertFrame frame;
  v1::ExpertBatch* proto = frame.mutable_batch();
  *proto->mutable_header() = ToProto(batch.replica, batch.epoch, batch.step);
  proto->set_batch_id(batch.batch_id);
  proto->set_layer(batch.layer);
  for (const kernels::TreeNode& node : batch.nodes) {
    v1::ExpertIds* ids = proto->add_nodes();
    ids->set_begin(node.begin);
    ids->set_end(node.end);
  }
  proto->mutable_counts()->Add(batch.counts.begin(), batch.counts.end());
  proto->mutable_expert_ids()->Add(batch.expert_ids.begin(),
                                   batch.expert_ids.end());
  proto->mutable_weights()->Add(batch.weights.begin(), batch.weights.end());
  proto->set_sent_ns(batch.sent_ns);
  return frame;
}

StatusOr<ExpertBatch> FromProto(const v1::ExpertBatch& proto, Buffer payload,
                                const ExpertWelcome& host) {
  SLUICE_RETURN_IF_ERROR(CheckRange("layer", proto.layer(), 0,
                                    int64_t{host.model.num_layers} - 1));
  SLUICE_RETURN_IF_ERROR(CheckNodes(proto, host));
  SLUICE_RETURN_IF_ERROR(CheckShape(proto, payload, host));
  ExpertBatch batch;
  batch.replica = ReplicaId(proto.header().replica());
  batch.epoch = EpochOf(proto.header());
  batch.step = StepId(proto.header().step_id());
  batch.batch_id = proto.batch_id();
  batch.layer = proto.layer();
  for (const v1::ExpertIds& ids : proto.nodes()) {
    batch.nodes.push_back({ids.begin(), ids.end()});
  }
  batch.counts.assign(proto.counts().begin(), proto.counts().end());
  batch.expert_ids.assign(proto.expert_ids().begin(), proto.expert_ids().end());
  batch.weights.assign(proto.weights().begin(), proto.weights().end());
  batch.sent_ns = proto.sent_ns();
  batch.x.rows = proto.counts_size();
  batch.x.cols = host.model.hidden_size;
  batch.x.data = std::move(payload);
  CheckRows(host.model.num_experts, &batch);
  return batch;
}

SentBatch SentOf(const ExpertBatch& batch) {
  return {batch.replica,  batch.epoch, batch.step,
          batch.batch_id, batch.layer, static_cast<int32_t>(batch.nodes.size()),
          batch.x.rows,   batch.x.cols};
}

v1::ExpertAnswer ExpertAnswerHead(const ExpertResult& result) {
  v1::ExpertAnswer answer;
  v1::ExpertResult* proto = answer.mutable_result();
  *proto->mutable_header() = ToProto(result.replica, result.epoch, result.step);
  proto->set_batch_id(result.batch_id);
  proto->set_layer(result.layer);
  proto->set_status_code(static_cast<int32_t>(result.status.code()));
  proto->set_status_message(Cut(result.status, kMaxBatchMessage));
  proto->set_nodes(result.nodes);
  proto->set_rows(result.rows);
  for (const ExpertRowFailure& failure : result.failures) {
    v1::ExpertRowFailure* out = proto->add_failures();
    out->set_row(failure.row);
    out->set_status_code(static_cast<int32_t>(failure.status.code()));
    out->set_status_message(Cut(failure.status, kMaxRowMessage));
  }
  v1::ExpertTimes* times = proto->mutable_times();
  times->set_queue_ns(result.times.queue_ns);
  times->set_compute_ns(result.times.compute_ns);
  times->set_total_ns(result.times.total_ns);
  times->set_joined_batches(result.times.joined_batches);
  times->set_joined_rows(result.times.joined_rows);
  proto->set_sent_ns(result.sent_ns);
  return answer;
}

StatusOr<ExpertResult> FromProto(const v1::ExpertResult& proto, Buffer payload,
                                 const SentBatch& asked) {
  SLUICE_RETURN_IF_ERROR(CheckAnswers(proto, asked));
  ExpertResult result;
  result.replica = asked.replica;
  result.epoch = asked.epoch;
  result.step = asked.step;
  result.batch_id = asked.batch_id;
  result.layer = asked.layer;
  result.sent_ns = proto.sent_ns();
  SLUICE_ASSIGN_OR_RETURN(result.times, TimesFromProto(proto.times()));
  if (proto.status_code() != 0) {
    SLUICE_RETURN_IF_ERROR(CheckCode(proto.status_code()));
    result.status =
        StatusOf(proto.status_code(), proto.status_message(), kMaxBatchMessage);
    return result;
  }
  SLUICE_RETURN_IF_ERROR(CheckSums(proto, payload, asked));
  result.nodes = asked.nodes;
  result.rows = asked.rows;
  SLUICE_ASSIGN_OR_RETURN(result.failures,
                          FailuresFromProto(proto, asked.rows));
  result.sums = std::move(payload);
  return result;
}

}  // namespace sluice::wire
