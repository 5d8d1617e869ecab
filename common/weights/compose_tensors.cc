#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "common/weights/composed_tensor.h"
#include "common/weights/extent.h"
#include "common/weights/model_contents.h"
#include "common/weights/quantisation.h"
#include "kernels/block_format.h"
#include "kernels/weight_type.h"

namespace sluice::weights {
namespace {

using kernels::kShortBlock;

constexpr int64_t kNvfp4Group = 16;  // columns with one scale

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool EndsAt(std::string_view name, std::string_view suffix,
            std::string_view& stem) {
  if (!name.ends_with(suffix) || name.size() == suffix.size()) return false;
  stem = name.substr(0, name.size() - suffix.size());
  return true;
}

// Makes the matrix of one group of tensors. Its methods return what is wrong.
class Composer {
 public:
  explicit Composer(const ModelContents& contents)
      : contents_(contents), said_(QuantisationOf(contents.config)) {}

  // Adds the matrix whose codes are `codes`, if it has any.
  Status Add(const TensorInfo& codes, std::vector<ComposedTensor>& to) const {
    for (const int64_t size : codes.shape) {
      if (size > kMaxDimension) return OkStatus();
    }
    ComposedTensor made;
    made.codes = codes.name;
    std::string_view stem;
    const std::string_view name = codes.name;
    Status status;
    if (codes.dtype == DType::kU8 && EndsAt(name, "_blocks", stem)) {
      status = Mxfp4(codes, std::string(stem), Cat(stem, "_scales"), made);
    } else if (EndsAt(name, ".qweight", stem)) {
      status = Words(codes, std::string(stem), made);
    } else if (EndsAt(name, ".weight_packed", stem)) {
      status = codes.dtype == DType::kU8
                   ? FourBits(codes, std::string(stem), made)
                   : Packed(codes, std::string(stem), made);
    } else if (codes.dtype == DType::kU8 && EndsAt(name, ".weight", stem) &&
               Find(Cat(stem, ".weight_scale")) != nullptr) {
      status = FourBits(codes, std::string(stem), made);
    } else if ((codes.dtype == DType::kI8 || codes.dtype == DType::kF8E4M3) &&
               EndsAt(name, ".weight", stem)) {
      status = Bytes(codes, std::string(stem), made);
    } else {
      return OkStatus();
    }
    if (status.ok()) status = CountElements(made.info.shape).status();
    if (!status.ok()) return Annotate(status, "tensor ", Quoted(codes.name));
    if (made.scales.empty()) return OkStatus();
    to.push_back(std::move(made));
    return OkStatus();
  }

 private:
  const TensorInfo* Find(const std::string& name) const {
    const LocatedTensor* found = FindLocated(contents_, name);
    return found != nullptr ? &found->info : nullptr;
  }
  // The name of a tensor that is there, else none.
  std::string IfThere(const std::string& name) const {
    return Find(name) != nullptr ? name : "";
  }

  // Floating-point codes of four bits, two in a byte: MXFP4 or NVFP4, as the
  // scales tell.
  Status FourBits(const TensorInfo& codes, const std::string& stem,
                  ComposedTensor& made) const {
    const std::string scales = Cat(stem, ".weight_scale");
    const TensorInfo* found = Find(scales);
    if (found == nullptr || found->dtype != DType::kF8E4M3) {
      return Mxfp4(codes, Cat(stem, ".weight"), scales, made);
    }
    // compressed-tensors divides the scales, ModelOpt multiplies them.
    made.global = IfThere(Cat(stem, ".weight_global_scale"));
    made.global_divides = !made.global.empty();
    if (made.global.empty())
      made.global = IfThere(Cat(stem, ".weight_scale_2"));
    if (made.global.empty()) {
      return InvalidArgument("is of NVFP4 and has neither ",
                             Quoted(Cat(stem, ".weight_global_scale")), " nor ",
                             Quoted(Cat(stem, ".weight_scale_2")),
                             " beside it");
    }
    const TensorInfo& global = *Find(made.global);
    const std::vector<int64_t>& shape = codes.shape;
    const bool fits =
        shape.size() == 2 && shape[1] % (kNvfp4Group / 2) == 0 &&
        found->shape ==
            std::vector<int64_t>{shape[0], shape[1] * 2 / kNvfp4Group} &&
        global.dtype == DType::kF32 && global.elements() == 1;
    if (!fits) {
      return InvalidArgument("of NVFP4 and shape ", ShapeToString(shape),
                             " has scales of ", found->dtype, " ",
                             ShapeToString(found->shape), " and ",
                             Quoted(made.global), " of ", global.type_name(),
                             " ", ShapeToString(global.shape),
                             ", expected a scale of F8_E4M3 for each ",
                             kNvfp4Group, " columns and one F32");
    }
    made.layout = CodeLayout::kNvfp4;
    made.bits = 4;
    made.scales = scales;
    made.scale_cols = kNvfp4Group;
    made.info = {Cat(stem, ".weight"), DType::kF32, {shape[0], shape[1] * 2}};
    return OkStatus();
  }

  Status Mxfp4(const TensorInfo& codes, std::string name, std::string scales,
               ComposedTensor& made) const {
    const TensorInfo* found = Find(scales);
    if (found == nullptr) {
      return InvalidArgument("has no tensor ", Quoted(scales), " beside it");
    }
    made.layout = CodeLayout::kMxfp4;
    made.scales = std::move(scales);
    made.scale_cols = kShortBlock;
    made.bits = 4;
    std::vector<int64_t> shape = found->shape;
    for (int64_t& size : shape) size = std::min(size, kMaxDimension);
    std::vector<int64_t> of_codes = shape;
    // compressed-tensors joins the two last dimensions.
    if (codes.shape.size() > shape.size()) {
      of_codes.push_back(kShortBlock / 2);
    } else if (!shape.empty()) {
      of_codes.back() *= kShortBlock / 2;
    }
    if (found->dtype != DType::kU8 || shape.empty() ||
        codes.shape != of_codes) {
      return InvalidArgument("of shape ", ShapeToString(codes.shape),
                             " has scales of ", found->dtype, " ",
                             ShapeToString(shape), ", expected U8 and shape ",
                             ShapeToString(of_codes));
    }
    shape.back() *= kShortBlock;
    made.info = {std::move(name), DType::kMxfp4, std::move(shape)};
    return OkStatus();
  }

  // The bits of one of GPTQ's matrices, whose zero points tell them: a word of
  // them for each 32 / bits of the scales. Others have the config's.
  int64_t BitsOf(const std::string& stem) const {
    const TensorInfo* scales = Find(Cat(stem, ".scales"));
    const TensorInfo* zeros = Find(Cat(stem, ".qzeros"));
    if (scales == nullptr || zeros == nullptr || scales->shape.size() != 2 ||
        zeros->shape.size() != 2 || scales->shape[1] > kMaxDimension) {
      return said_.bits;
    }
    const auto fits = [&](int64_t bits) {
      return bits > 0 && bits <= kWordBits &&
             zeros->shape[1] == CeilDiv(scales->shape[1] * bits, kWordBits);
    };
    if (fits(said_.bits)) return said_.bits;
    for (const int64_t bits : {2, 3, 4, 8}) {
      if (fits(bits)) return bits;
    }
    return said_.bits;
  }

  // GPTQ's and AWQ's words.
  Status Words(const TensorInfo& codes, const std::string& stem,
               ComposedTensor& made) const {
    const bool is_awq = said_.method == "awq";
    if (!is_awq && said_.method != "gptq") {
      return InvalidArgument(
          "is of a quantization_config with quant_method awq or gptq, "
          "config.json has ",
          Quoted(said_.method));
    }
    const bool known =
        is_awq ? said_.version == "gemm" || said_.version == "GEMM"
               : said_.version == "gptq" || said_.version == "gptq_v2";
    if (!known) {
      return InvalidArgument("is of version ", Quoted(said_.version), " of ",
                             said_.method, ", known are ",
                             is_awq ? "gemm" : "gptq and gptq_v2");
    }
    const int64_t bits = is_awq ? said_.bits : BitsOf(stem);
    if (bits != 4 && (is_awq || bits != 8)) {
      return InvalidArgument("has ", bits, " bits, ", said_.method,
                             is_awq ? " has 4" : " has 4 or 8 here");
    }
    made.bits = static_cast<int32_t>(bits);
    made.layout = is_awq ? CodeLayout::kAwq : CodeLayout::kGptq;
    made.zeros_less_one = said_.version == "gptq";
    made.scales = Cat(stem, ".scales");
    made.zeros = IfThere(Cat(stem, ".qzeros"));
    made.groups = is_awq ? "" : IfThere(Cat(stem, ".g_idx"));
    const TensorInfo* scales = Find(made.scales);
    const int64_t per_word = kWordBits / made.bits;
    if (codes.dtype != DType::kI32 || codes.shape.size() != 2 ||
        scales == nullptr || scales->shape.size() != 2) {
      return InvalidArgument(
          "is ", codes.dtype, " ", ShapeToString(codes.shape), " with ",
          scales == nullptr ? "no scales"
                            : "scales of shape " + ShapeToString(scales->shape),
          ", expected I32 and scales of two dimensions");
    }
    const int64_t cols = is_awq ? codes.shape[0] : codes.shape[0] * per_word;
    const int64_t rows = is_awq ? codes.shape[1] * per_word : codes.shape[1];
    const int64_t groups = scales->shape[0];
    SLUICE_RETURN_IF_ERROR(
        CheckGroups(cols, groups, scales->shape[1] == rows, *scales, made));
    if (!made.zeros.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckPart(made.zeros, DType::kI32,
                                       {groups, CeilDiv(rows, per_word)}));
    }
    if (!made.groups.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckPart(made.groups, DType::kI32, {cols}));
    }
    const bool symmetric = said_.symmetric || made.zeros.empty();
    bool regular = true;
    if (said_.orders_columns && !made.groups.empty()) {
      SLUICE_ASSIGN_OR_RETURN(regular, GroupsAreRuns(made.groups, cols));
    }
    made.info = {Cat(stem, ".weight"),
                 TypeOf(made, *scales, symmetric, regular, cols),
                 {rows, cols}};
    return OkStatus();
  }

  // compressed-tensors' words.
  Status Packed(const TensorInfo& codes, const std::string& stem,
                ComposedTensor& made) const {
    made.layout = CodeLayout::kPacked;
    made.scales = Cat(stem, ".weight_scale");
    made.zeros = IfThere(Cat(stem, ".weight_zero_point"));
    made.groups = IfThere(Cat(stem, ".weight_g_idx"));
    const std::string shape_name = Cat(stem, ".weight_shape");
    made.unread = {shape_name};
    const TensorInfo* scales = Find(made.scales);
    const TensorInfo* shape = Find(shape_name);
    if (codes.dtype != DType::kI32 || codes.shape.size() != 2 ||
        scales == nullptr || shape == nullptr || shape->dtype != DType::kI64 ||
        shape->shape != std::vector<int64_t>{2}) {
      return InvalidArgument(
          "is ", codes.dtype, " ", ShapeToString(codes.shape),
          ", expected I32 of two dimensions with ", Quoted(made.scales),
          " and ", Quoted(shape_name), ", I64 [2]");
    }
    int64_t real[2];
    const LocatedTensor& at = *FindLocated(contents_, shape_name);
    SLUICE_RETURN_IF_ERROR(at.file->ReadAt(at.offset, sizeof(real), real));
    const int64_t rows = real[0], cols = real[1];
    for (const int32_t bits : {4, 8}) {
      if (rows == codes.shape[0] && cols > 0 && cols <= kMaxDimension &&
          CeilDiv(cols, kWordBits / bits) == codes.shape[1]) {
        made.bits = bits;
        return Grouped(*scales, stem, rows, cols, made);
      }
    }
    return InvalidArgument("of shape ", ShapeToString(codes.shape),
                           " is no matrix [", rows, ", ", cols,
                           "] of 4 or 8 bits");
  }

  // One code per byte.
  Status Bytes(const TensorInfo& codes, const std::string& stem,
               ComposedTensor& made) const {
    made.layout =
        codes.dtype == DType::kI8 ? CodeLayout::kInt8 : CodeLayout::kE4m3;
    made.scales = IfThere(Cat(stem, ".weight_scale"));
    if (made.scales.empty()) {
      made.scales = IfThere(Cat(stem, ".weight_scale_inv"));
    }
    if (made.scales.empty()) return OkStatus();
    made.zeros = IfThere(Cat(stem, ".weight_zero_point"));
    if (codes.shape.size() != 2) {
      return InvalidArgument("has shape ", ShapeToString(codes.shape),
                             ", expected two dimensions");
    }
    return Grouped(*Find(made.scales), stem, codes.shape[0], codes.shape[1],
                   made);
  }

  // The rest of a matrix whose scales are rows like its own: one per matrix,
  // per row, per group of a row or per block of rows and columns.
  Status Grouped(const TensorInfo& scales, const std::string& stem,
                 int64_t rows, int64_t cols, ComposedTensor& made) const {
    // [R] is [R, 1]; [] and [1] are of the whole matrix; [A, 1, B, 1] is [A,
    // B].
    std::vector<int64_t> shape = scales.shape;
    if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) {
      shape = {shape[0], shape[2]};
    }
    const bool is_matrix = shape.size() == 2;
    const int64_t down = is_matrix ? shape[0] : scales.elements();
    const int64_t across = is_matrix ? shape[1] : 1;
    if (down == rows || (down == 1 && across == 1)) {
      made.scale_rows = down == 1 ? std::max<int64_t>(rows, 1) : 1;
      SLUICE_RETURN_IF_ERROR(
          CheckGroups(cols, across, shape.size() <= 2, scales, made));
    } else {
      const auto fits = [&](const std::pair<int64_t, int64_t>& block) {
        return down == CeilDiv(rows, block.first) &&
               across == CeilDiv(cols, block.second);
      };
      const auto block =
          std::find_if(said_.blocks.begin(), said_.blocks.end(), fits);
      if (!is_matrix || block == said_.blocks.end()) {
        return InvalidArgument(
            "of ", rows, " rows and ", cols, " columns has scales of shape ",
            ShapeToString(scales.shape), ", which are not one per ",
            said_.blocks.front().first, " rows and ",
            said_.blocks.front().second, " columns");
      }
      made.scale_rows = block->first;
      made.scale_cols = block->second;
    }
    if (!made.zeros.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckZeros(rows, across, made));
    }
    if (!made.groups.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckPart(made.groups, DType::kI32, {cols}));
    }
    const bool regular = made.groups.empty();
    made.info = {Cat(stem, ".weight"),
                 TypeOf(made, scales, made.zeros.empty(), regular, cols),
                 {rows, cols}};
    return OkStatus();
  }

  // Whether each run of a block's columns is of one group.
  StatusOr<bool> GroupsAreRuns(const std::string& name, int64_t cols) const {
    std::vector<int32_t> groups(static_cast<size_t>(cols));
    const LocatedTensor& at = *FindLocated(contents_, name);
    SLUICE_RETURN_IF_ERROR(at.file->ReadAt(
        at.offset, groups.size() * sizeof(int32_t), groups.data()));
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i] != groups[i / kShortBlock * kShortBlock]) return false;
    }
    return true;
  }

  Status CheckZeros(int64_t rows, int64_t groups, ComposedTensor& made) const {
    const int64_t per_word = kWordBits / made.bits;
    const bool in_words = Find(made.zeros)->dtype == DType::kI32;
    if (made.layout == CodeLayout::kPacked && in_words) {
      return CheckPart(made.zeros, DType::kI32,
                       {CeilDiv(rows, per_word), groups});
    }
    return InvalidArgument("has zero points ", Quoted(made.zeros), " of ",
                           Find(made.zeros)->dtype,
                           "; known are I32 words of packed codes");
  }

  Status CheckPart(const std::string& name, DType dtype,
                   const std::vector<int64_t>& shape) const {
    const TensorInfo* found = Find(name);
    if (found != nullptr && found->dtype == dtype && found->shape == shape) {
      return OkStatus();
    }
    return InvalidArgument("has ", Quoted(name), " of ", found->dtype, " ",
                           ShapeToString(found->shape), ", expected ", dtype,
                           " ", ShapeToString(shape));
  }

  // `cols` columns have `groups` scales each for as many columns.
  Status CheckGroups(int64_t cols, int64_t groups, bool fits,
                     const TensorInfo& scales, ComposedTensor& made) const {
    // MXFP8 has powers of two, also as plain bytes.
    const bool plain =
        scales.dtype == DType::kF16 || scales.dtype == DType::kBF16 ||
        scales.dtype == DType::kF32 || scales.dtype == DType::kF8E8M0 ||
        (scales.dtype == DType::kU8 && made.layout == CodeLayout::kE4m3);
    if (fits && plain && groups > 0 && cols > 0 && cols % groups == 0) {
      made.scale_cols = cols / groups;
      return OkStatus();
    }
    return InvalidArgument("of ", cols, " columns has scales of ", scales.dtype,
                           " ", ShapeToString(scales.shape),
                           ", which are not F16, BF16 or F32 for equal groups "
                           "of its columns");
  }

  // The blocks that hold the elements exactly, F32 without such.
  DType TypeOf(const ComposedTensor& made, const TensorInfo& scales,
               bool symmetric, bool regular, int64_t cols) const {
    const bool runs = regular && made.scale_rows >= 1 &&
                      made.scale_cols % kShortBlock == 0 &&
                      cols % kShortBlock == 0;
    if (runs && made.layout == CodeLayout::kE4m3) {
      const bool wide = made.scale_cols % kernels::kE4m3WideRun == 0 &&
                        cols % kernels::kE4m3WideRun == 0;
      return wide ? DType::kWideE4M3 : DType::kScaledE4M3;
    }
    const bool is_half =
        scales.dtype == DType::kF16 || scales.dtype == DType::kBF16;
    if (!runs || !is_half) return DType::kF32;
    if (made.bits == 8) return symmetric ? DType::kQ8_0 : DType::kF32;
    return symmetric ? DType::kQ4_0 : DType::kQ5_0;
  }

  const ModelContents& contents_;
  const Quantisation said_;
};

}  // namespace

std::vector<std::string> ComposedTensor::parts() const {
  std::vector<std::string> all = unread;
  for (const std::string& name : {codes, scales, zeros, groups, global}) {
    if (!name.empty()) all.push_back(name);
  }
  return all;
}

Status ComposeTensors(ModelContents& contents) {
  const Composer composer(contents);
  for (const LocatedTensor& tensor : contents.tensors) {
    SLUICE_RETURN_IF_ERROR(composer.Add(tensor.info, contents.composed));
  }
  auto& composed = contents.composed;
  std::sort(composed.begin(), composed.end(),
            [](const ComposedTensor& a, const ComposedTensor& b) {
              return a.info.name < b.info.name;
            });
  for (size_t i = 0; i < composed.size(); ++i) {
    const std::string& name = composed[i].info.name;
    const bool twice = i > 0 && composed[i - 1].info.name == name;
    const LocatedTensor* stored = FindLocated(contents, name);
    if (!twice && (stored == nullptr || name == composed[i].codes)) continue;
    return InvalidArgument("tensor ", Quoted(composed[i].codes),
                           " is a second ", Quoted(name));
  }
  return OkStatus();
}

}  // namespace sluice::weights
