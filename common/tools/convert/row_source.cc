#include "common/tools/convert/row_source.h"

#include <utility>

#include "common/base/check.h"
#include "common/model_config/gguf_keys.h"

namespace sluice {
namespace {

using weights::DType;
using weights::ModelFile;
using weights::Slice;
using weights::TensorInfo;

std::vector<int64_t> Steps(int64_t first, int64_t step, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t& at : order) at = std::exchange(first, first + step);
  return order;
}

// The rows of `heads` heads, each with its halves interleaved.
std::vector<int64_t> Interleaved(int64_t rows, int64_t heads) {
  const int64_t head = rows / heads;
  std::vector<int64_t> order;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row % head;
    order.push_back(row - at + at % 2 * (head / 2) + at / 2);
  }
  return order;
}

}  // namespace

RowFinder::RowFinder(const ModelConfig& config, const ModelFile& model)
    : config_(config),
      model_(model),
      storage_(ExpertStorageOf(config, model)),
      permuted_(GgufFamilyOf(config.model_type)->permuted) {}

RowSource RowFinder::Find(const TensorRow& row, int32_t layer,
                          int64_t expert) const {
  if (row.cut == RankCut::kExperts) return OfExpert(row, layer, expert);
  RowSource source;
  source.name = NameOf(row, layer);
  const TensorInfo& info = *model_.Find(source.name);
  source.slice = Slice::All(info);
  source.order = Steps(0, 1, info.rows());
  if (!permuted_) return source;
  const AttentionConfig& attention =
      config_.layers[static_cast<size_t>(std::max(layer, 0))].attention;
  const bool is_q = row.gguf.starts_with("attn_q.");
  if (!is_q && !row.gguf.starts_with("attn_k.")) return source;
  source.transposed = row.is_vector();
  source.order =
      Interleaved(row.is_vector() ? info.cols() : info.rows(),
                  is_q ? attention.num_heads : attention.num_kv_heads);
  return source;
}

RowSource RowFinder::OfExpert(const TensorRow& row, int32_t layer,
                              int64_t expert) const {
  const MoeConfig& moe = config_.layers[static_cast<size_t>(layer)].moe;
  const bool is_bias = row.gguf.ends_with(".bias");
  const bool is_gate = row.gguf.starts_with("ffn_gate");
  const bool is_down = row.gguf.starts_with("ffn_down");
  const int64_t count =
      is_down ? config_.hidden_size : int64_t{moe.intermediate_size};
  RowSource source;
  source.name = NameInFolder(row, layer, expert);
  const TensorInfo& info = *model_.Find(source.name);
  source.slice = Slice::All(info);
  source.order = Steps(0, 1, count);
  if (storage_ == ExpertStorage::kSeparate) return source;
  const bool is_apart = storage_ == ExpertStorage::kApart;
  const int64_t rows = info.rows() / moe.num_experts;
  source.slice = Slice::Rows(info, expert * rows, expert * rows + rows);
  source.transposed = storage_ == ExpertStorage::kTransposed || is_bias;
  if (is_down || is_apart) return source;
  // Gate and up are in one tensor.
  source.order = moe.interleaved ? Steps(is_gate ? 0 : 1, 2, count)
                                 : Steps(is_gate ? 0 : count, 1, count);
  return source;
}

std::string RowFinder::NameInFolder(const TensorRow& row, int32_t layer,
                                    int64_t expert) const {
  for (const WeightRows& weight : WeightsOf(config_, layer, storage_)) {
    if (weight.place != row.place) continue;
    const bool is_second =
        weight.rows.size() > 1 && row.gguf.starts_with("ffn_up");
    return NameOf(*weight.rows[is_second ? 1 : 0], layer,
                  static_cast<int32_t>(expert));
  }
  SLUICE_CHECK(false);
}

bool RowReader::IsStoredAs(const RowSource& source, DType type) const {
  const TensorInfo& info = *model_.Find(source.name);
  return info.dtype == type && !source.transposed &&
         (weights::BlocksOf(type).has_value() ||
          model_.FindStored(source.name) == &info);
}

StatusOr<Buffer> RowReader::ReadStored(const RowSource& source) const {
  const Slice& slice = source.slice;
  const int64_t cols = slice.col_end - slice.col_begin;
  const weights::BlockSize block =
      weights::BlockSizeOf(model_.Find(source.name)->dtype);
  const auto row = static_cast<size_t>(cols / block.elements * block.bytes);
  Buffer stored(row * static_cast<size_t>(slice.row_end - slice.row_begin));
  SLUICE_RETURN_IF_ERROR(
      model_.ReadStoredRows(source.name, slice, stored.data()));
  if (source.is_whole()) return stored;
  Buffer rows(row * source.order.size());
  std::byte* out = rows.data();
  for (const int64_t at : source.order) {
    out = std::copy_n(stored.data() + static_cast<size_t>(at) * row, row, out);
  }
  return rows;
}

StatusOr<Buffer> RowReader::ReadWide(const RowSource& source) const {
  const Slice& slice = source.slice;
  Buffer read(sizeof(float) * static_cast<size_t>(slice.elements()));
  SLUICE_RETURN_IF_ERROR(model_.ReadF32(source.name, slice, read.as<float>()));
  if (source.is_whole()) return read;
  const auto rows = static_cast<size_t>(slice.row_end - slice.row_begin);
  const auto cols = static_cast<size_t>(slice.col_end - slice.col_begin);
  const size_t length = source.transposed ? rows : cols;
  Buffer wide(sizeof(float) * source.order.size() * length);
  float* out = wide.as<float>();
  for (const int64_t from : source.order) {
    const auto at = static_cast<size_t>(from);
    if (source.transposed) {
      for (size_t i = 0; i < rows; ++i) {
        *out++ = read.as<float>()[i * cols + at];
      }
    } else {
      out = std::copy_n(read.as<float>() + at * cols, cols, out);
    }
  }
  return wide;
}

}  // namespace sluice
