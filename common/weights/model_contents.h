#ifndef SLUICE_COMMON_WEIGHTS_MODEL_CONTENTS_H_
#define SLUICE_COMMON_WEIGHTS_MODEL_CONTENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/dllama_file.h"
#include "common/weights/file.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_file.h"

namespace sluice::weights {

// Heads that stand tiled in a file: the first of every group of the model, then
// the second of every group. A run of `rows` rows is a head, from row `first`
// on; the rows before stand in the model's order.
struct TiledHeads {
  int64_t groups = 0;  // 0: the model's order
  int64_t rows = 1;
  int64_t first = 0;
  // Returns the head of the file that is the model's head `head` of `heads`.
  static int64_t StoredHead(int64_t head, int64_t heads, int64_t groups) {
    const int64_t of_group = heads / groups;
    return head % of_group * groups + head / of_group;
  }
};

// Heads of `rows` rows, whose first `turned` rows stand by halves in a file:
// the model's even ones, and then its odd ones.
struct HalvedHeads {
  int64_t rows = 0;  // 0: the model's order
  int64_t turned = 0;
  // Returns the row of the file that is the model's row.
  int64_t StoredRow(int64_t row) const {
    const int64_t at = row % rows;
    if (at >= turned) return row;
    return row - at + at % 2 * (turned / 2) + at / 2;
  }
};

// The place of a tensor's bytes, checked against the file's size.
struct LocatedTensor {
  TensorInfo info;
  const RandomAccessFile* file = nullptr;  // owned by ModelContents
  uint64_t offset = 0;
  // Above 0: within each run of this many rows (a head) the file has row
  // 2*j+h where the model has row h*(head_rows/2)+j, h in {0, 1}.
  int64_t permuted_head_rows = 0;
  HalvedHeads halved;
  TiledHeads tiled;
  // Whether rows stand in another order than the model's.
  bool is_reordered() const {
    return permuted_head_rows > 0 || halved.rows > 0 || tiled.groups > 0;
  }
  // Only the tensor's beginning is there (safetensors_outline.h): so many
  // bytes.
  bool is_outline = false;
  uint64_t outlined_bytes = 0;
};

// A tensor that an index names and no shard has.
struct AbsentTensor {
  std::string shard;  // by the index
  bool has_shard = false;
};

// A model's headers, from the readers of both formats.
struct ModelContents {
  std::string path;
  Json config = Json::object();
  Json generation_config = Json::object();
  bool is_folder = false;  // of safetensors
  std::optional<GgufMetadata> gguf;
  std::optional<DllamaHeader> dllama;
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  std::vector<LocatedTensor> tensors;
  std::vector<ComposedTensor> composed;
  std::map<std::string, AbsentTensor, std::less<>> absent;  // by name
};

// Returns the tensor of this name, null if there is none; the tensors are
// sorted.
const LocatedTensor* FindLocated(const ModelContents& contents,
                                 std::string_view name);

// Returns the tensors of one safetensors file, from its header, in order of
// names. Refuses all that the format's reference implementation refuses but
// unknown dtypes: long or malformed headers, sizes that differ from shape times
// dtype, overlaps, holes, bytes after the last tensor.
StatusOr<std::vector<LocatedTensor>> ReadSafetensorsHeader(
    const RandomAccessFile& file);

// Returns the tensors of a shard from its outline (safetensors_outline.h).
StatusOr<std::vector<LocatedTensor>> ReadSafetensorsOutline(
    const RandomAccessFile& file);

// Opens the model at `path` (OpenModel), by its kind.
StatusOr<ModelContents> OpenContents(const std::string& path,
                                     const GgufTranslator& translate);

// Opens a Hugging Face folder: config.json, generation_config.json and
// model.safetensors, or the shards that model.safetensors.index.json names.
StatusOr<ModelContents> OpenHfFolder(const std::string& folder);

// Opens a GGUF file, or the first of a split set, and translates it if there is
// a translator.
StatusOr<ModelContents> OpenGguf(const std::string& path,
                                 const GgufTranslator& translate);

// Opens a model of distributed-llama. Its translator locates the tensors.
StatusOr<ModelContents> OpenDllama(std::unique_ptr<RandomAccessFile> file,
                                   const GgufTranslator& translate);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_MODEL_CONTENTS_H_
