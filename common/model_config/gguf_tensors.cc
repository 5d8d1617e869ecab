#include "common/model_config/gguf_tensors.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/gguf_file.h"

namespace sluice {
namespace {

using weights::LocatedTensor;
using weights::ModelContents;
using weights::Quoted;

// Returns the rows of a matrix, or a vector's elements; 0 of another tensor.
int64_t RowsOf(const weights::TensorInfo& info) {
  if (info.shape.size() == 2) return info.rows();
  const bool is_vector =
      info.shape.size() == 1 && weights::BlockSizeOf(info.dtype).elements == 1;
  return is_vector ? info.cols() : 0;
}

// Marks rows of q and k, or a vector's elements, which the converter
// interleaves within a head.
Status MarkPermuted(LocatedTensor& tensor, int64_t heads) {
  const weights::TensorInfo& info = tensor.info;
  const int64_t rows = RowsOf(info);
  if (rows < 1 || heads < 1 || rows % heads != 0 || rows / heads % 2 != 0) {
    return InvalidArgument("tensor ", Quoted(info.name), " of shape ",
                           weights::ShapeToString(info.shape),
                           " does not divide into ", heads,
                           " heads of even size");
  }
  tensor.permuted_head_rows = rows / heads;
  return OkStatus();
}

// Marks rows of q and k, or a vector's elements, of which those that turn stand
// by halves within a head.
Status MarkHalved(const Json& config, LocatedTensor& tensor) {
  const weights::TensorInfo& info = tensor.info;
  const auto head_dim = config["head_dim"].get<int64_t>();
  const double share = config.value("partial_rotary_factor", 1.0);
  const int64_t rows = RowsOf(info);
  if (head_dim < 2 || rows < 1 || rows % head_dim != 0 || share < 0.0 ||
      share > 1.0) {
    return InvalidArgument("tensor ", Quoted(info.name), " of shape ",
                           weights::ShapeToString(info.shape),
                           " has no heads of ", head_dim,
                           " rows, of which a share of ", share, " turns");
  }
  const auto turned =
      static_cast<int64_t>(static_cast<double>(head_dim) * share) / 2 * 2;
  tensor.halved = {head_dim, turned};
  return OkStatus();
}

int64_t HeadsOf(const ModelContents& contents, const char* key) {
  return contents.config[key].get<int64_t>();
}

// Whether products of two of these overflow nowhere. ParseModelConfig refuses
// what is below or above.
bool AreSizes(std::initializer_list<int64_t> numbers) {
  constexpr int64_t kMost = 1 << 20;
  return std::ranges::all_of(numbers,
                             [](int64_t n) { return n >= 0 && n <= kMost; });
}

// Cuts attn_qkv into q, k and v where the table has these apart: each is a run
// of its rows.
Status CutQkv(const TensorTable& table, ModelContents& contents) {
  constexpr std::string_view kFused = ".attn_qkv.";
  if (PlaceOfGguf(table, "blk.0.attn_q.weight").row == nullptr ||
      PlaceOfGguf(table, "blk.0.attn_qkv.weight").row != nullptr) {
    return OkStatus();
  }
  const int64_t head_dim = HeadsOf(contents, "head_dim");
  const int64_t heads = HeadsOf(contents, "num_attention_heads");
  const int64_t kv_heads = HeadsOf(contents, "num_key_value_heads");
  if (!AreSizes({head_dim, heads, kv_heads})) return OkStatus();
  const int64_t kv = kv_heads * head_dim;
  const std::pair<const char*, int64_t> parts[] = {
      {".attn_q.", heads * head_dim}, {".attn_k.", kv}, {".attn_v.", kv}};
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

// Gives a tensor the number of dimensions of its row, where the elements are
// the same: a GGUF leaves a first or middle dimension of 1 out, and a mixer's
// vectors have two.
void Reshape(const TensorRow& row, std::vector<int64_t>& shape) {
  using enum WeightPlace;
  if (shape.size() == 1 &&
      (row.shape.starts_with("1 ") || row.shape.starts_with("U "))) {
    shape.insert(shape.begin(), 1);
  }
  if (row.stored == StoredAs::kTaps && shape.size() == 2) {
    shape.insert(shape.begin() + 1, 1);
  }
  if (row.place >= kStateLogRate && row.place <= kStateNorm &&
      shape.size() == 2) {
    shape = {shape[0] * shape[1]};
  }
}

// The heads of values of a gated delta rule, by config.json's keys.
struct ValueHeads {
  int64_t groups;  // heads of keys
  int64_t heads;
  int64_t keys;  // rows of q and k
  int64_t rows;  // of a head
};

// Marks the runs of rows or columns that a tensor has head by head; `columns`
// gets the tensors of columns.
Status MarkTiled(const TensorRow& row, const ValueHeads& values,
                 LocatedTensor& tensor,
                 std::vector<weights::ComposedTensor>& columns) {
  using enum WeightPlace;
  weights::TensorInfo& info = tensor.info;
  const std::string_view shape = row.shape;
  const bool is_columns = row.place == kStateOut;
  weights::TiledHeads tiled = {values.groups, values.rows, 0};
  if (shape.starts_with("2J+Z")) {
    tiled.first = values.keys;
  } else if (shape.starts_with("T")) {
    tiled.rows = 1;
  } else if (!shape.starts_with("Z ") && !is_columns) {
    return OkStatus();
  }
  const bool is_row = is_columns || info.shape.size() == 1;
  const int64_t count = is_row ? info.cols() : info.rows();
  if (count - tiled.first != values.heads * tiled.rows) {
    return InvalidArgument("tensor ", Quoted(info.name), " of shape ",
                           weights::ShapeToString(info.shape), " has not ",
                           values.heads, " value heads of ", tiled.rows,
                           " behind ", tiled.first);
  }
  if (!is_columns) {
    tensor.tiled = tiled;
    return OkStatus();
  }
  weights::ComposedTensor& whole = columns.emplace_back();
  whole.info = info;
  whole.layout = weights::CodeLayout::kTiled;
  whole.head_groups = values.groups;
  whole.head_cols = values.rows;
  whole.codes = info.name + ".tiled";
  // Blocks that two heads share become elements.
  if (values.rows % weights::BlockSizeOf(info.dtype).elements != 0) {
    whole.info.dtype = weights::DType::kF32;
  }
  info.name = whole.codes;
  return OkStatus();
}

// Adds a tensor [1] for each layer's number of the key.
Status AddLayerNumbers(const TensorRow& row, ModelContents& contents) {
  const weights::GgufValue* found = contents.gguf->Find(row.gguf);
  if (found == nullptr) {
    return InvalidArgument("GGUF key ", Quoted(row.gguf), " is missing");
  }
  const auto layers = contents.config["num_hidden_layers"].get<int64_t>();
  const bool is_list = found->type == weights::GgufType::kArray;
  const auto type = is_list ? found->element_type : found->type;
  if (type != weights::GgufType::kFloat32) {
    return InvalidArgument("GGUF key ", Quoted(row.gguf), " is of type ",
                           ToString(type), ", expected float32");
  }
  const auto* list = std::get_if<std::vector<double>>(&found->value);
  if (list != nullptr && std::ssize(*list) < layers) {
    return InvalidArgument("GGUF key ", Quoted(row.gguf), " has ", list->size(),
                           " layers of ", layers);
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    LocatedTensor& tensor = contents.tensors.emplace_back();
    tensor.info = {
        NameOf(row, static_cast<int32_t>(layer)), weights::DType::kF32, {1}};
    tensor.file = contents.files.front().get();  // the file of the keys
    tensor.offset = found->offset;
    if (list != nullptr) {
      tensor.offset += static_cast<uint64_t>(layer) * sizeof(float);
    }
  }
  return OkStatus();
}

ValueHeads ValueHeadsOf(const ModelContents& contents) {
  const int64_t groups = HeadsOf(contents, "linear_num_key_heads");
  const int64_t heads = HeadsOf(contents, "linear_num_value_heads");
  const int64_t key_dim = HeadsOf(contents, "linear_key_head_dim");
  const int64_t value_dim = HeadsOf(contents, "linear_value_head_dim");
  if (!AreSizes({groups, heads, key_dim, value_dim})) return {};
  return {groups, heads, 2 * groups * key_dim, value_dim};
}

}  // namespace

Status RenameGgufTensors(const GgufFamily& family, const TensorTable& table,
                         ModelContents& contents) {
  SLUICE_RETURN_IF_ERROR(CutQkv(table, contents));
  ValueHeads values = {};
  if (family.tiled_heads) values = ValueHeadsOf(contents);
  if (values.groups < 1 || values.heads % values.groups != 0) values = {};
  for (LocatedTensor& tensor : contents.tensors) {
    const GgufTensorPlace place = PlaceOfGguf(table, tensor.info.name);
    if (place.row == nullptr) continue;
    const std::string_view gguf = place.row->gguf;
    tensor.info.name = NameOf(*place.row, place.layer);
    Reshape(*place.row, tensor.info.shape);
    if (values.heads > values.groups) {
      SLUICE_RETURN_IF_ERROR(
          MarkTiled(*place.row, values, tensor, contents.composed));
    }
    if (!family.permuted && !family.halved) continue;
    const char* heads = gguf.starts_with("attn_q.")   ? "num_attention_heads"
                        : gguf.starts_with("attn_k.") ? "num_key_value_heads"
                                                      : nullptr;
    if (heads == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(
        family.halved ? MarkHalved(contents.config, tensor)
                      : MarkPermuted(tensor, HeadsOf(contents, heads)));
  }
  for (const auto& groups : {table.layers, table.dense}) {
    for (const auto& rows : groups) {
      for (const TensorRow& row : rows) {
        if (row.stored != StoredAs::kLayerNumber) continue;
        SLUICE_RETURN_IF_ERROR(AddLayerNumbers(row, contents));
      }
    }
  }
  std::ranges::sort(contents.composed, {}, [](const auto& composed) {
    return std::string_view(composed.info.name);
  });
  return OkStatus();
}

}  // namespace sluice
