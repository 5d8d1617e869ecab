#include "common/model_config/gguf_tensors.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"

namespace sluice {
namespace {

using weights::LocatedTensor;
using weights::ModelContents;
using weights::Quoted;

// Marks rows of q and k, or a vector's elements, which the converter
// interleaves within a head.
Status MarkPermuted(LocatedTensor& tensor, int64_t heads) {
  const weights::TensorInfo& info = tensor.info;
  const bool is_vector =
      info.shape.size() == 1 && weights::BlockSizeOf(info.dtype).elements == 1;
  const int64_t rows = is_vector ? info.cols() : info.rows();
  if ((info.shape.size() != 2 && !is_vector) || heads < 1 ||
      rows % heads != 0 || rows / heads % 2 != 0) {
    return InvalidArgument("tensor ", Quoted(info.name), " of shape ",
                           weights::ShapeToString(info.shape),
                           " does not divide into ", heads,
                           " heads of even size");
  }
  tensor.permuted_head_rows = rows / heads;
  return OkStatus();
}

int64_t HeadsOf(const ModelContents& contents, const char* key) {
  return contents.config[key].get<int64_t>();
}

// Cuts attn_qkv into q, k and v where the table has these apart: each is a run
// of its rows.
Status CutQkv(const TensorTable& table, ModelContents& contents) {
  constexpr std::string_view kFused = ".attn_qkv.";
  if (PlaceOfGguf(table, "blk.0.attn_q.weight").row == nullptr) {
    return OkStatus();
  }
  const int64_t head_dim = HeadsOf(contents, "head_dim");
  const int64_t kv = HeadsOf(contents, "num_key_value_heads") * head_dim;
  const std::pair<const char*, int64_t> parts[] = {
      {".attn_q.", HeadsOf(contents, "num_attention_heads") * head_dim},
      {".attn_k.", kv},
      {".attn_v.", kv}};
  std::vector<LocatedTensor> tensors;
  for (LocatedTensor& tensor : contents.tensors) {
    const size_t at = tensor.info.name.find(kFused);
    if (at == std::string::npos) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    const weights::TensorInfo& info = tensor.info;
    const weights::BlockSize block = weights::BlockSizeOf(info.dtype);
    const int64_t cols = info.shape.size() == 1 ? 1 : info.cols();
    if (info.shape.empty() || info.shape.size() > 2 ||
        info.shape[0] != parts[0].second + 2 * kv ||
        cols % block.elements != 0) {
      return InvalidArgument("tensor ", Quoted(info.name), " of shape ",
                             weights::ShapeToString(info.shape),
                             " has not the rows of q, k and v, ",
                             parts[0].second, " and twice ", kv);
    }
    const int64_t row_bytes = cols / block.elements * block.bytes;
    uint64_t offset = tensor.offset;
    for (const auto& [name, rows] : parts) {
      LocatedTensor part = tensor;
      part.info.name.replace(at, kFused.size(), name);
      part.info.shape[0] = rows;
      part.offset = offset;
      offset += static_cast<uint64_t>(rows * row_bytes);
      tensors.push_back(std::move(part));
    }
  }
  contents.tensors = std::move(tensors);
  return OkStatus();
}

}  // namespace

Status RenameGgufTensors(const GgufFamily& family, const TensorTable& table,
                         ModelContents& contents) {
  SLUICE_RETURN_IF_ERROR(CutQkv(table, contents));
  for (LocatedTensor& tensor : contents.tensors) {
    const GgufTensorPlace place = PlaceOfGguf(table, tensor.info.name);
    if (place.row == nullptr) continue;
    const std::string_view gguf = place.row->gguf;
    tensor.info.name = NameOf(*place.row, place.layer);
    // A GGUF has no first dimension of 1.
    std::vector<int64_t>& shape = tensor.info.shape;
    if (shape.size() == 1 && (place.row->shape.starts_with("1 ") ||
                              place.row->shape.starts_with("U "))) {
      shape.insert(shape.begin(), 1);
    }
    if (!family.permuted) continue;
    const char* heads = gguf.starts_with("attn_q.")   ? "num_attention_heads"
                        : gguf.starts_with("attn_k.") ? "num_key_value_heads"
                                                      : nullptr;
    if (heads == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(MarkPermuted(tensor, HeadsOf(contents, heads)));
  }
  return OkStatus();
}

}  // namespace sluice
