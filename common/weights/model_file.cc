#include "common/weights/model_file.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/weights/checked_reader.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/dequantize.h"
#include "common/weights/extent.h"
#include "common/weights/model_contents.h"
#include "common/weights/weight_sums.h"
#include "kernels/block_pack.h"
#include "kernels/block_store.h"

namespace sluice::weights {
namespace {

constexpr int64_t kReadBytes = 4 << 20;  // aim of one read

// The run of whole blocks in every row that holds a slice's columns.
struct BlockSpan {
  BlockSpan(const TensorInfo& info, const Slice& slice)
      : block(BlockSizeOf(info.dtype)),
        first(slice.col_begin / block.elements),
        count((slice.col_end + block.elements - 1) / block.elements - first),
        row_bytes(info.cols() / block.elements * block.bytes) {}

  int64_t bytes() const { return count * block.bytes; }
  int64_t elements() const { return count * block.elements; }
  bool whole_rows() const { return bytes() == row_bytes; }

  const BlockSize block;
  const int64_t first;      // block within the row
  const int64_t count;      // blocks
  const int64_t row_bytes;  // of the whole row
};

// The row of the file that holds row `row` of the model.
int64_t StoredRow(const LocatedTensor& tensor, int64_t row, int64_t rows) {
  const TiledHeads& tiled = tensor.tiled;
  if (tiled.groups > 0 && row >= tiled.first) {
    const int64_t at = row - tiled.first;
    const int64_t head = TiledHeads::StoredHead(
        at / tiled.rows, (rows - tiled.first) / tiled.rows, tiled.groups);
    return tiled.first + head * tiled.rows + at % tiled.rows;
  }
  if (tensor.halved.rows > 0) return tensor.halved.StoredRow(row);
  const int64_t head_rows = tensor.permuted_head_rows;
  if (head_rows == 0) return row;
  const int64_t in_head = row % head_rows;
  const int64_t half = head_rows / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

// A tensor and its sums, if any.
struct Source {
  const LocatedTensor& tensor;
  const PieceSums* sums;
  OutlineReads outlines;
};

// Calls take(raw, row, rows) for consecutive runs of the slice's rows: `raw`
// has the stored bytes of `rows` times the span, packed.
template <typename Take>
Status ForEachRun(const Source& from, const Slice& slice, const BlockSpan& span,
                  Take take) {
  const LocatedTensor& tensor = from.tensor;
  CheckedReader reader(tensor, from.sums, from.outlines);
  const bool single = tensor.is_reordered() || !span.whole_rows();
  const int64_t run = single || span.bytes() == 0
                          ? 1
                          : std::max<int64_t>(1, kReadBytes / span.bytes());
  const int64_t rows = slice.row_end - slice.row_begin;
  const auto buffer_bytes =
      static_cast<size_t>(std::min(run, rows) * span.bytes());
  // Not a vector: the bytes need no zeros.
  const std::unique_ptr<uint8_t[]> raw(new uint8_t[buffer_bytes]);
  for (int64_t row = slice.row_begin; row < slice.row_end; row += run) {
    const int64_t count = std::min(run, slice.row_end - row);
    const int64_t offset =
        StoredRow(tensor, row, tensor.info.rows()) * span.row_bytes +
        span.first * span.block.bytes;
    SLUICE_RETURN_IF_ERROR(
        reader.Read(static_cast<uint64_t>(offset),
                    static_cast<size_t>(count * span.bytes()), raw.get()));
    take(raw.get(), row - slice.row_begin, count);
  }
  return OkStatus();
}

void Store(const float* from, int64_t count, float* out) {
  std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
}

void Store(const float* from, int64_t count, uint16_t* out) {
  std::transform(from, from + count, out, F32ToBf16);
}

template <typename Out>
constexpr DType kSameType = DType::kF32;
template <>
constexpr DType kSameType<uint16_t> = DType::kBF16;

// Reads stored blocks unchanged; the slice's columns must be whole blocks.
Status ReadSlice(const Source& tensor, const Slice& slice, std::byte* out) {
  const BlockSpan span(tensor.tensor.info, slice);
  SLUICE_CHECK(slice.col_begin % span.block.elements == 0 &&
               slice.col_end % span.block.elements == 0);
  return ForEachRun(tensor, slice, span,
                    [&](const uint8_t* raw, int64_t row, int64_t rows) {
                      std::memcpy(out + row * span.bytes(), raw,
                                  static_cast<size_t>(rows * span.bytes()));
                    });
}

// ReadF32 and ReadBf16 of a located tensor with a checked slice.
template <typename Out>
Status ReadSlice(const Source& tensor, const Slice& slice, Out* out) {
  const TensorInfo& info = tensor.tensor.info;
  const BlockSpan span(info, slice);
  const int64_t cols = slice.col_end - slice.col_begin;
  const DType dtype = info.dtype;
  if (dtype == kSameType<Out>) {
    return ForEachRun(tensor, slice, span,
                      [&](const uint8_t* raw, int64_t row, int64_t rows) {
                        std::memcpy(out + row * cols, raw,
                                    static_cast<size_t>(rows * span.bytes()));
                      });
  }
  const int64_t skipped = slice.col_begin - span.first * span.block.elements;
  const std::unique_ptr<float[]> wide(
      new float[static_cast<size_t>(span.elements())]);
  return ForEachRun(
      tensor, slice, span, [&](const uint8_t* raw, int64_t row, int64_t rows) {
        for (int64_t i = 0; i < rows; ++i) {
          DequantizeToF32(dtype, raw + i * span.bytes(), span.count,
                          wide.get());
          Store(wide.get() + skipped, cols, out + (row + i) * cols);
        }
      });
}

Status CheckSlice(const TensorInfo& info, const Slice& slice) {
  const bool fits = slice.row_begin >= 0 && slice.row_begin <= slice.row_end &&
                    slice.row_end <= info.rows() && slice.col_begin >= 0 &&
                    slice.col_begin <= slice.col_end &&
                    slice.col_end <= info.cols();
  if (fits) return OkStatus();
  return InvalidArgument("rows [", slice.row_begin, ", ", slice.row_end,
                         "), columns [", slice.col_begin, ", ", slice.col_end,
                         ") are not within tensor ", Quoted(info.name),
                         " of shape ", ShapeToString(info.shape));
}

}  // namespace

const LocatedTensor* FindLocated(const ModelContents& contents,
                                 std::string_view name) {
  const auto& tensors = contents.tensors;
  const auto at = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const LocatedTensor& tensor, std::string_view wanted) {
        return tensor.info.name < wanted;
      });
  return at != tensors.end() && at->info.name == name ? &*at : nullptr;
}

int64_t TensorInfo::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

int64_t TensorInfo::stored_bytes() const {
  const BlockSize block = BlockSizeOf(dtype);
  return elements() / block.elements * block.bytes;
}

std::string TensorInfo::type_name() const {
  return dtype == DType::kUnknown ? Quoted(unknown_dtype)
                                  : std::string(ToString(dtype));
}

std::string ShapeToString(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += Cat(i > 0 ? ", " : "", shape[i]);
  }
  return text + "]";
}

ModelFile::ModelFile(ModelContents contents)
    : contents_(std::make_unique<ModelContents>(std::move(contents))) {
  infos_.reserve(contents_->tensors.size());
  for (const LocatedTensor& tensor : contents_->tensors) {
    infos_.push_back(tensor.info);
  }
}
ModelFile::~ModelFile() = default;

const std::string& ModelFile::path() const { return contents_->path; }
const Json& ModelFile::config() const { return contents_->config; }
const Json& ModelFile::generation_config() const {
  return contents_->generation_config;
}
const GgufMetadata* ModelFile::gguf() const {
  return contents_->gguf ? &*contents_->gguf : nullptr;
}
const std::vector<TensorInfo>& ModelFile::tensors() const { return infos_; }

const PieceSums* ModelFile::SumsOf(const LocatedTensor& tensor) const {
  if (sums_.empty()) return nullptr;
  return &sums_[static_cast<size_t>(&tensor - contents_->tensors.data())];
}

std::string ModelFile::sums_path() const {
  const ModelContents& contents = *contents_;
  return contents.is_folder
             ? Cat(path(), "/sluice.sums")
             : Cat(contents.files.front()->path(), ".sluice.sums");
}

void ModelFile::CheckAgainst(const WeightSums& sums) {
  SLUICE_CHECK(sums.tensors.size() == infos_.size());
  sums_.clear();
  sums_digest_ = DigestOf(sums);
  for (size_t i = 0; i < infos_.size(); ++i) {
    const TensorSums& tensor = sums.tensors[i];
    SLUICE_CHECK(tensor.name == infos_[i].name);
    PieceSums& own = sums_.emplace_back();
    own.path = sums_path();
    own.pieces = tensor.pieces;
    own.checked = std::make_unique<std::atomic<bool>[]>(tensor.pieces.size());
  }
}

StatusOr<std::string> ModelFile::FileOf(std::string_view name) const {
  const LocatedTensor* tensor = FindLocated(*contents_, name);
  if (tensor != nullptr) return tensor->file->path();
  return NotFound(path(), ": has no tensor ", Quoted(name));
}

Status ModelFile::ReadStoredBytes(std::string_view name, uint64_t offset,
                                  size_t size, uint8_t* out) const {
  const LocatedTensor* tensor = FindLocated(*contents_, name);
  if (tensor == nullptr) {
    return NotFound(path(), ": has no tensor ", Quoted(name));
  }
  const auto bytes = static_cast<uint64_t>(tensor->info.stored_bytes());
  if (offset > bytes || size > bytes - offset) {
    return InvalidArgument("tensor ", Quoted(name), ": ", size, " bytes at ",
                           offset, " are not within its ", bytes);
  }
  bytes_read_ += size;
  return Annotate(CheckedReader(*tensor, SumsOf(*tensor), outlines_)
                      .Read(offset, size, out),
                  "tensor ", Quoted(name));
}

const TensorInfo* ModelFile::FindStored(std::string_view name) const {
  const LocatedTensor* tensor = FindLocated(*contents_, name);
  return tensor != nullptr ? &tensor->info : nullptr;
}

std::string ModelFile::WhyAbsent(std::string_view name) const {
  const auto found = contents_->absent.find(name);
  if (found == contents_->absent.end()) return "";
  const AbsentTensor& absent = found->second;
  return Cat("the index has it in ", Quoted(absent.shard),
             absent.has_shard ? ", which lacks it" : ", which is not there");
}

const std::vector<ComposedTensor>& ModelFile::composed() const {
  return contents_->composed;
}

const ComposedTensor* ModelFile::FindComposed(std::string_view name) const {
  const auto& composed = contents_->composed;
  const auto at = std::lower_bound(
      composed.begin(), composed.end(), name,
      [](const ComposedTensor& tensor, std::string_view wanted) {
        return tensor.info.name < wanted;
      });
  return at != composed.end() && at->info.name == name ? &*at : nullptr;
}

const TensorInfo* ModelFile::Find(std::string_view name) const {
  const ComposedTensor* composed = FindComposed(name);
  return composed != nullptr ? &composed->info : FindStored(name);
}

uint64_t ModelFile::StoredBytes(std::string_view name) const {
  uint64_t bytes = 0;
  const auto add = [&](std::string_view stored) {
    const TensorInfo* info = FindStored(stored);
    if (info != nullptr) bytes += static_cast<uint64_t>(info->stored_bytes());
  };
  const ComposedTensor* composed = FindComposed(name);
  if (composed == nullptr) {
    add(name);
  } else {
    for (const std::string& part : composed->parts()) add(part);
  }
  return bytes;
}

Status ModelFile::ReadComposedAs(const ComposedTensor& composed,
                                 const Slice& slice, DType as,
                                 std::byte* out) const {
  SLUICE_RETURN_IF_ERROR(Annotate(CheckSlice(composed.info, slice), path()));
  return Annotate(ReadComposed(*this, composed, slice, as, out), "tensor ",
                  Quoted(composed.info.name));
}

template <typename Out>
Status ModelFile::Read(std::string_view name, const Slice& slice,
                       Out* out) const {
  if (const ComposedTensor* composed = FindComposed(name)) {
    const DType as =
        std::is_same_v<Out, std::byte> ? composed->info.dtype : kSameType<Out>;
    return ReadComposedAs(*composed, slice, as,
                          reinterpret_cast<std::byte*>(out));
  }
  const LocatedTensor* tensor = FindLocated(*contents_, name);
  if (tensor == nullptr) {
    return NotFound(path(), ": has no tensor ", Quoted(name));
  }
  SLUICE_RETURN_IF_ERROR(
      Annotate(CheckSlice(tensor->info, slice), tensor->file->path()));
  if (!IsReadable(tensor->info.dtype)) {
    return InvalidArgument(tensor->file->path(), ": tensor ", Quoted(name),
                           " is stored as ", tensor->info.type_name(),
                           ", which is not supported");
  }
  if (slice.elements() == 0) return OkStatus();
  if (tensor->is_reordered() && tensor->info.shape.size() == 1) {
    // The vector as a column.
    LocatedTensor column = *tensor;
    column.info.shape = {tensor->info.cols(), 1};
    Slice rows = {slice.col_begin, slice.col_end, 0, 1};
    bytes_read_ += static_cast<uint64_t>(slice.elements()) *
                   static_cast<uint64_t>(BlockSizeOf(column.info.dtype).bytes);
    return Annotate(ReadSlice({column, SumsOf(*tensor), outlines_}, rows, out),
                    "tensor ", Quoted(name));
  }
  SLUICE_RETURN_IF_ERROR(
      Annotate(ReadSlice({*tensor, SumsOf(*tensor), outlines_}, slice, out),
               "tensor ", Quoted(name)));
  const BlockSpan span(tensor->info, slice);
  bytes_read_ +=
      static_cast<uint64_t>((slice.row_end - slice.row_begin) * span.bytes());
  return OkStatus();
}

Status ModelFile::ReadF32(std::string_view name, const Slice& slice,
                          float* out) const {
  return Read(name, slice, out);
}

Status ModelFile::ReadBf16(std::string_view name, const Slice& slice,
                           uint16_t* out) const {
  return Read(name, slice, out);
}

Status ModelFile::ReadStoredRows(std::string_view name, const Slice& rows,
                                 std::byte* out) const {
  return Read(name, rows, out);
}

Status ModelFile::ReadMatrix(std::string_view name, const Slice& slice,
                             int64_t row, HostWeight& to) const {
  using kernels::WeightType;
  std::byte* const out =
      to.data.data() + FormatOf(to.type).bytes(row * to.cols);
  if (to.type == WeightType::kBf16) {
    return Read(name, slice, reinterpret_cast<uint16_t*>(out));
  }
  if (to.type == WeightType::kF32) {
    return Read(name, slice, reinterpret_cast<float*>(out));
  }
  const TensorInfo* stored = Find(name);
  if (IsFp8(to.type)) {
    const ComposedTensor* composed = FindComposed(name);
    SLUICE_CHECK(stored == nullptr || composed != nullptr);
    if (composed == nullptr) return Read(name, slice, out);
    return ReadComposedAs(
        *composed, slice,
        to.type == WeightType::kE4m3 ? DType::kScaledE4M3 : DType::kWideE4M3,
        out);
  }
  const kernels::BlockFormat format = BlockFormatOf(to.type);
  if (stored != nullptr && BlocksOf(stored->dtype) == format) {
    return Read(name, slice, out);
  }
  SLUICE_CHECK(kernels::CanStore(format));
  Buffer wide(sizeof(float) * static_cast<size_t>(slice.elements()));
  SLUICE_RETURN_IF_ERROR(Read(name, slice, wide.as<float>()));
  kernels::StoreBlocks(format, wide.as<float>(),
                       slice.elements() / kernels::kShortBlock,
                       reinterpret_cast<uint8_t*>(out));
  return OkStatus();
}

StatusOr<std::string> ModelFile::ReadStoredPrefix(std::string_view name,
                                                  int64_t limit) const {
  const LocatedTensor* tensor = FindLocated(*contents_, name);
  if (tensor == nullptr) {
    return NotFound(path(), ": has no tensor ", Quoted(name));
  }
  const int64_t size = std::min(limit, tensor->info.stored_bytes());
  std::string bytes(static_cast<size_t>(std::max<int64_t>(size, 0)), '\0');
  SLUICE_RETURN_IF_ERROR(
      tensor->file->ReadAt(tensor->offset, bytes.size(), bytes.data()));
  bytes_read_ += bytes.size();
  return bytes;
}

StatusOr<std::unique_ptr<ModelFile>> OpenModel(
    const std::string& path, const GgufTranslator& translate) {
  SLUICE_ASSIGN_OR_RETURN(ModelContents contents,
                          OpenContents(path, translate));
  contents.path = path;
  auto& tensors = contents.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const LocatedTensor& a, const LocatedTensor& b) {
              return a.info.name < b.info.name;
            });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].info.name == tensors[i].info.name) {
      return InvalidArgument(path, ": tensor ", Quoted(tensors[i].info.name),
                             " is in ", tensors[i - 1].file->path(), " and in ",
                             tensors[i].file->path());
    }
  }
  if (!contents.gguf.has_value()) {
    SLUICE_RETURN_IF_ERROR(Annotate(ComposeTensors(contents), path));
  }
  return std::make_unique<ModelFile>(std::move(contents));
}

}  // namespace sluice::weights
