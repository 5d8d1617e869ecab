#include "common/model/cut_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/tensor/weight_format.h"
#include "kernels/block_pack.h"

namespace sluice {
namespace {

using kernels::kGroupRows;

// Rows that lie together: those of a group (kernels/block_pack.h), or one.
int64_t RowsTogether(const WeightFormat& format) {
  return format.is_plain() ? 1 : kGroupRows;
}

// The cuts of one part of the weight that is made.
class PartCopy {
 public:
  PartCopy(const Weight& from, std::span<const WeightCut> cuts)
      : from_(from),
        cuts_(cuts),
        format_(FormatOf(from.parts[cuts[0].part].type)),
        together_(RowsTogether(format_)) {
    for (const WeightCut& cut : cuts) {
      ends_.push_back(rows() + cut.rows);
    }
  }

  kernels::WeightType type() const { return format_.type; }
  int64_t rows() const { return ends_.empty() ? 0 : ends_.back(); }
  size_t bytes() const { return static_cast<size_t>(groups()) * group_bytes(); }

  void Run(std::byte* to, const kernels::Context& context) const {
    if (bytes() == 0) return;
    kernels::ParallelFor(context, static_cast<int>(groups()), [&](int i) {
      CopyGroup(i, to + static_cast<size_t>(i) * group_bytes());
    });
  }

 private:
  int64_t groups() const { return (rows() + together_ - 1) / together_; }
  size_t group_bytes() const {
    return static_cast<size_t>(together_) * format_.bytes(cuts_[0].cols);
  }
  size_t CutOf(int64_t row) const {
    return static_cast<size_t>(
        std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
  }
  const std::byte* DataOf(const WeightCut& cut) const {
    return static_cast<const std::byte*>(from_.parts[cut.part].data.data());
  }

  // Rows [i * together_, ..) of the part.
  void CopyGroup(int64_t i, std::byte* to) const {
    const int64_t begin = i * together_;
    const int64_t end = std::min(begin + together_, rows());
    const size_t first = CutOf(begin);
    const WeightCut& cut = cuts_[first];
    const int64_t row = cut.row + begin - (ends_[first] - cut.rows);
    if (row % together_ == 0 && end <= ends_[first]) {
      const size_t stored =
          static_cast<size_t>(together_) * format_.bytes(from_.cols);
      std::memcpy(to,
                  DataOf(cut) + static_cast<size_t>(row / together_) * stored +
                      static_cast<size_t>(together_) * format_.bytes(cut.col),
                  group_bytes());
      return;
    }
    PackAgain(begin, end, to);
  }

  // The same for rows of blocks that stand in several groups.
  void PackAgain(int64_t begin, int64_t end, std::byte* to) const {
    const kernels::BlockFormat blocks = BlockFormatOf(type());
    const int64_t cols = cuts_[0].cols;
    const size_t row_bytes = format_.bytes(cols);
    std::vector<uint8_t> whole(format_.bytes(from_.cols));
    std::vector<uint8_t> rows(static_cast<size_t>(end - begin) * row_bytes);
    for (int64_t r = begin; r < end; ++r) {
      const size_t at = CutOf(r);
      const WeightCut& cut = cuts_[at];
      const kernels::BlockWeight packed = {
          blocks, reinterpret_cast<const uint8_t*>(DataOf(cut)),
          from_.parts[cut.part].rows, from_.cols};
      kernels::UnpackRow(packed, cut.row + r - (ends_[at] - cut.rows),
                         whole.data());
      std::memcpy(rows.data() + static_cast<size_t>(r - begin) * row_bytes,
                  whole.data() + format_.bytes(cut.col), row_bytes);
    }
    kernels::PackRows({blocks, rows.data(), end - begin, cols,
                       static_cast<int64_t>(row_bytes)},
                      reinterpret_cast<uint8_t*>(to));
  }

  const Weight& from_;
  const std::span<const WeightCut> cuts_;
  const WeightFormat& format_;
  const int64_t together_;
  std::vector<int64_t> ends_;  // behind each cut: a row of the part
};

}  // namespace

std::unique_ptr<Weight> CutWeight(const Weight& from,
                                  std::span<const WeightCut> cuts,
                                  Backend& backend,
                                  const kernels::Context& context) {
  auto weight = std::make_unique<Weight>();
  weight->cols = cuts[0].cols;
  for (size_t begin = 0, end = 0; begin < cuts.size(); begin = end) {
    for (end = begin + 1; end < cuts.size() && !cuts[end].begins_part;) ++end;
    const PartCopy copy(from, cuts.subspan(begin, end - begin));
    weight->rows += copy.rows();
    DeviceMemory memory = backend.Allocate(copy.bytes());
    copy.Run(static_cast<std::byte*>(memory.data()), context);
    weight->parts.push_back({copy.type(), copy.rows(), std::move(memory)});
  }
  return weight;
}

}  // namespace sluice
