#include "common/weights/code_tile.h"

#include <algorithm>

#include "common/tensor/buffer.h"
#include "common/weights/awq_order.h"
#include "common/weights/file.h"
#include "kernels/block_format.h"

namespace sluice::weights {
namespace {

using kernels::kShortBlock;

constexpr int64_t kStripCols = 64;  // decoded together, a line of memory

}  // namespace

CodeTile::CodeTile(const ModelFile& model, const ComposedTensor& tensor,
                   const Slice& slice)
    : model_(model),
      tensor_(tensor),
      slice_(slice),
      rows_(slice.row_end - slice.row_begin),
      cols_(slice.col_end - slice.col_begin),
      num_groups_((tensor.info.cols() + tensor.scale_cols - 1) /
                  tensor.scale_cols) {}

Status CodeTile::Read() {
  SLUICE_RETURN_IF_ERROR(ReadCodes());
  SLUICE_RETURN_IF_ERROR(ReadScales());
  SLUICE_RETURN_IF_ERROR(ReadZeros());
  return ReadGroups();
}

int64_t CodeTile::scale_rows() const {
  return rows_ == 0 ? 0
                    : (slice_.row_end - 1) / tensor_.scale_rows -
                          slice_.row_begin / tensor_.scale_rows + 1;
}

Status CodeTile::ReadCodes() {
  codes_.reset(new uint8_t[static_cast<size_t>(rows_ * cols_)]);
  switch (tensor_.layout) {
    case CodeLayout::kGptq:
    case CodeLayout::kAwq:
      return ReadColumns();
    case CodeLayout::kPacked:
      return ReadPacked();
    case CodeLayout::kNvfp4:
      return ReadNibbles();
    default:
      break;
  }
  const int64_t all = tensor_.info.cols();
  const int64_t step = cols_ == all ? std::max<int64_t>(rows_, 1) : 1;
  for (int64_t r = 0; r < rows_; r += step) {
    SLUICE_RETURN_IF_ERROR(ReadBytes(
        tensor_.codes, (slice_.row_begin + r) * all + slice_.col_begin,
        step * cols_, MutableRow(r)));
  }
  if (tensor_.layout == CodeLayout::kInt8) {  // 0 becomes 128
    for (int64_t i = 0; i < rows_ * cols_; ++i) codes_[i] ^= 0x80;
  }
  return OkStatus();
}

Status CodeTile::ReadPacked() {
  const int64_t per_word = kWordBits / tensor_.bits;
  const int64_t all = (tensor_.info.cols() + per_word - 1) / per_word;
  const int64_t first = slice_.col_begin / per_word;
  const int64_t words = (slice_.col_end + per_word - 1) / per_word - first;
  Buffer stored(static_cast<size_t>(words) * sizeof(uint32_t));
  for (int64_t r = 0; r < rows_; ++r) {
    SLUICE_RETURN_IF_ERROR(ReadBytes(
        tensor_.codes,
        ((slice_.row_begin + r) * all + first) * int64_t{sizeof(uint32_t)},
        words * int64_t{sizeof(uint32_t)}, stored.as<uint8_t>()));
    const uint32_t* word = stored.as<uint32_t>();
    const int64_t skipped = slice_.col_begin - first * per_word;
    for (int64_t c = 0; c < cols_; ++c) {
      MutableRow(r)[c] = CodeOf(word[(c + skipped) / per_word],
                                static_cast<int>((c + skipped) % per_word));
    }
  }
  return OkStatus();
}

Status CodeTile::ReadNibbles() {
  const int64_t all = tensor_.info.cols() / 2;
  const int64_t first = slice_.col_begin / 2;
  const int64_t bytes = (slice_.col_end + 1) / 2 - first;
  Buffer stored(static_cast<size_t>(bytes));
  for (int64_t r = 0; r < rows_; ++r) {
    SLUICE_RETURN_IF_ERROR(ReadBytes(tensor_.codes,
                                     (slice_.row_begin + r) * all + first,
                                     bytes, stored.as<uint8_t>()));
    for (int64_t c = 0; c < cols_; ++c) {
      const int64_t at = slice_.col_begin + c;
      const uint8_t byte = stored.as<uint8_t>()[at / 2 - first];
      MutableRow(r)[c] = at % 2 == 0 ? byte & 15 : byte >> 4;
    }
  }
  return OkStatus();
}

Status CodeTile::ReadColumns() {
  const int64_t per_word = kWordBits / tensor_.bits;
  const bool is_awq = tensor_.layout == CodeLayout::kAwq;
  const int64_t first = is_awq ? slice_.row_begin / per_word : slice_.row_begin;
  const int64_t end =
      is_awq ? (slice_.row_end + per_word - 1) / per_word : slice_.row_end;
  const int64_t all =
      is_awq ? tensor_.info.rows() / per_word : tensor_.info.rows();
  const int64_t cols_of_line = is_awq ? 1 : per_word;
  const int64_t lines = kStripCols / cols_of_line;
  Buffer strip(static_cast<size_t>(lines * (end - first)) * sizeof(uint32_t));
  const int64_t last_line = (slice_.col_end + cols_of_line - 1) / cols_of_line;
  for (int64_t line = slice_.col_begin / cols_of_line; line < last_line;
       line += lines) {
    const int64_t count = std::min(lines, last_line - line);
    for (int64_t i = 0; i < count; ++i) {
      SLUICE_RETURN_IF_ERROR(ReadBytes(
          tensor_.codes, ((line + i) * all + first) * int64_t{sizeof(uint32_t)},
          (end - first) * int64_t{sizeof(uint32_t)},
          strip.as<uint8_t>() + i * (end - first) * int64_t{sizeof(uint32_t)}));
    }
    is_awq ? TakeAwq(strip.as<uint32_t>(), line, count, first, end - first)
           : TakeGptq(strip.as<uint32_t>(), line, count);
  }
  return OkStatus();
}

void CodeTile::TakeAwq(const uint32_t* strip, int64_t col, int64_t count,
                       int64_t first_word, int64_t words) {
  for (int64_t r = 0; r < rows_; ++r) {
    const int64_t row = slice_.row_begin + r;
    const uint32_t* word = strip + row / 8 - first_word;
    const int at = PlaceInAwqWord(row);
    for (int64_t i = 0; i < count; ++i) {
      MutableRow(r)[col + i - slice_.col_begin] = CodeOf(word[i * words], at);
    }
  }
}

void CodeTile::TakeGptq(const uint32_t* strip, int64_t line, int64_t count) {
  const int64_t per_word = kWordBits / tensor_.bits;
  const int64_t begin = std::max(slice_.col_begin, line * per_word);
  const int64_t end = std::min(slice_.col_end, (line + count) * per_word);
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t at = c - line * per_word;
      MutableRow(r)[c - slice_.col_begin] = CodeOf(
          strip[at / per_word * rows_ + r], static_cast<int>(at % per_word));
    }
  }
}

Status CodeTile::ReadScales() {
  const int64_t rows = scale_rows();
  const int64_t begin = slice_.row_begin / tensor_.scale_rows;
  scales_.resize(static_cast<size_t>(rows * num_groups_));
  if (!in_columns()) return ReadScaleRows(begin, rows);
  std::vector<float> by_group(scales_.size());
  SLUICE_RETURN_IF_ERROR(model_.ReadF32(
      tensor_.scales, {0, num_groups_, begin, begin + rows}, by_group.data()));
  for (int64_t g = 0; g < num_groups_; ++g) {
    for (int64_t r = 0; r < rows; ++r) {
      scales_[At(r, g)] = by_group[static_cast<size_t>(g * rows + r)];
    }
  }
  return OkStatus();
}

Status CodeTile::ReadScaleRows(int64_t begin, int64_t rows) {
  const TensorInfo& info = *model_.FindStored(tensor_.scales);
  if (info.dtype == DType::kU8 || info.dtype == DType::kF8E4M3) {
    std::vector<uint8_t> bytes(scales_.size());
    SLUICE_RETURN_IF_ERROR(ReadBytes(tensor_.scales, begin * num_groups_,
                                     rows * num_groups_, bytes.data()));
    const bool is_power = info.dtype == DType::kU8;
    std::transform(bytes.begin(), bytes.end(), scales_.begin(),
                   [&](uint8_t code) {
                     return is_power ? E8m0ToF32(code) : E4m3ToF32(code);
                   });
  } else {
    const bool is_matrix = info.shape.size() == 2;
    Slice slice = {0, 1, begin, begin + rows};  // a vector
    if (is_matrix) slice = {begin, begin + rows, 0, num_groups_};
    if (info.shape.size() == 4) {  // [A, 1, B, 1]
      slice = {begin * num_groups_, (begin + rows) * num_groups_, 0, 1};
    }
    SLUICE_RETURN_IF_ERROR(
        model_.ReadF32(tensor_.scales, slice, scales_.data()));
  }
  if (tensor_.global.empty()) return OkStatus();
  float global = 0;
  SLUICE_RETURN_IF_ERROR(model_.ReadF32(tensor_.global, {0, 1, 0, 1}, &global));
  for (float& scale : scales_) {
    scale = tensor_.global_divides ? scale / global : scale * global;
  }
  return OkStatus();
}

Status CodeTile::ReadZeros() {
  const auto middle = static_cast<int16_t>(1 << (tensor_.bits - 1));
  zeros_.assign(scales_.size(), middle);
  if (tensor_.zeros.empty()) return OkStatus();
  const int64_t per_word = kWordBits / tensor_.bits;
  const TensorInfo& info = *model_.FindStored(tensor_.zeros);
  std::vector<uint32_t> words(static_cast<size_t>(info.elements()));
  SLUICE_RETURN_IF_ERROR(ReadBytes(tensor_.zeros, 0, info.stored_bytes(),
                                   reinterpret_cast<uint8_t*>(words.data())));
  for (int64_t r = 0; r < scale_rows(); ++r) {
    const int64_t row = slice_.row_begin / tensor_.scale_rows + r;
    const int place = tensor_.layout == CodeLayout::kAwq
                          ? PlaceInAwqWord(row)
                          : static_cast<int>(row % per_word);
    for (int64_t g = 0; g < num_groups_; ++g) {
      const int64_t at = in_columns() ? g * info.cols() + row / per_word
                                      : row / per_word * num_groups_ + g;
      int zero = CodeOf(words[static_cast<size_t>(at)], place);
      if (tensor_.zeros_less_one) {
        zero = (zero + 1) & ((1 << tensor_.bits) - 1);
      }
      zeros_[At(r, g)] = static_cast<int16_t>(zero);
    }
  }
  return OkStatus();
}

Status CodeTile::ReadGroups() {
  if (tensor_.groups.empty()) return OkStatus();
  groups_.resize(static_cast<size_t>(tensor_.info.cols()));
  SLUICE_RETURN_IF_ERROR(ReadBytes(
      tensor_.groups, 0, static_cast<int64_t>(groups_.size() * sizeof(int32_t)),
      reinterpret_cast<uint8_t*>(groups_.data())));
  const bool blocks = tensor_.info.dtype != DType::kF32;
  for (size_t c = 0; c < groups_.size(); ++c) {
    const int32_t group = groups_[c];
    if (group < 0 || group >= num_groups_) {
      return InvalidArgument("tensor ", Quoted(tensor_.groups), " has group ",
                             group, " for column ", c, ", limits 0 and ",
                             num_groups_ - 1);
    }
    const size_t first = c / kShortBlock * kShortBlock;
    if (blocks && group != groups_[first]) {
      return InvalidArgument("tensor ", Quoted(tensor_.groups), " has group ",
                             group, " for column ", c, " and ", groups_[first],
                             " for column ", first,
                             ", where config.json has no desc_act");
    }
  }
  return OkStatus();
}

Status CodeTile::ReadBytes(const std::string& name, int64_t offset,
                           int64_t size, uint8_t* out) const {
  return model_.ReadStoredBytes(name, static_cast<uint64_t>(offset),
                                static_cast<size_t>(size), out);
}

}  // namespace sluice::weights
