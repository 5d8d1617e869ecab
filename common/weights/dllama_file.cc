#include "common/weights/dllama_file.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "common/weights/model_contents.h"

namespace sluice::weights {
namespace {

constexpr uint32_t kDllamaMagic = 0x0A00ABCD;
// Of a header without keys.
constexpr uint32_t kOldMagics[] = {0xABCD00, 0xABCD01};

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int32_t kMaxSize = 1 << 24;  // of a dimension
constexpr int32_t kMaxCount = 1 << 16;
constexpr int32_t kMaxExperts = 4096;

// A key's limits. Its number is its place in the table.
struct Key {
  const char* name;
  int32_t DllamaHeader::*field;
  int32_t min;
  int32_t max;
  bool needed = false;
  // Written with the value that stands for an absent key, too.
  bool always = false;
};

using Header = DllamaHeader;
constexpr Key kKeys[] = {
    {"version", &Header::version, 0, kMaxInt, false, true},
    {"arch_type", &Header::architecture, 0xABCD00, 0xABCD02, true},
    {"dim", &Header::dim, 1, kMaxSize, true},
    {"hidden_dim", &Header::hidden_dim, 1, kMaxSize, true},
    {"n_layers", &Header::num_layers, 1, kMaxCount, true},
    {"n_heads", &Header::num_heads, 1, kMaxCount, true},
    {"n_kv_heads", &Header::num_kv_heads, 1, kMaxCount, true},
    {"n_experts", &Header::num_experts, 0, kMaxExperts, false, true},
    {"n_active_experts", &Header::num_active_experts, 0, kMaxExperts, false,
     true},
    {"vocab_size", &Header::vocab_size, 1, kMaxSize, true},
    {"max_seq_len", &Header::max_seq_len, 1, kMaxInt, true},
    {"hidden_act", &Header::hidden_act, 0, 1, false, true},
    {"rope_theta", &Header::rope_theta, 1, kMaxInt, false, true},
    {"weights_float_type", &Header::weights, 0, 3, true},
    {"rope_scaling_factor", &Header::rope_factor, 1, kMaxCount},
    {"rope_scaling_low_freq_factor", &Header::rope_low_freq_factor, 1,
     kMaxCount},
    {"rope_scaling_high_freq_factor", &Header::rope_high_freq_factor, 1,
     kMaxCount},
    {"rope_scaling_orig_max_seq_len", &Header::rope_original_seq_len, 1,
     kMaxInt},
    {"rope_type", &Header::rope_type, 0, 2},
    {"head_dim", &Header::head_dim, 1, kMaxCount},
    {"norm_epsilon", &Header::norm_epsilon, 5, 6, false, true},
    {"moe_hidden_dim", &Header::moe_hidden_dim, 0, kMaxSize},
};
constexpr auto kNumKeys = static_cast<int32_t>(std::size(kKeys));

// The types of dllama's numbers.
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kQ4_0,
                            DType::kQ8_0};

constexpr int32_t kRopeFalcon = 1;  // halves of a head, not neighbours

// Checks what one key alone cannot tell.
Status CheckTogether(const DllamaHeader& header) {
  using Architecture = DllamaHeader::Architecture;
  if (header.hidden_act != 1) {
    return InvalidArgument("hidden_act is ", header.hidden_act,
                           " (GELU), supported is 1 (SiLU)");
  }
  const bool is_moe = header.arch() == Architecture::kQwen3Moe;
  if (is_moe != (header.num_experts > 0)) {
    return InvalidArgument("n_experts is ", header.num_experts,
                           " in a model of ",
                           is_moe ? "qwen3_moe" : "a family without experts");
  }
  if (is_moe && (header.num_active_experts < 1 ||
                 header.num_active_experts > header.num_experts)) {
    return InvalidArgument("n_active_experts is ", header.num_active_experts,
                           ", limits 1 and n_experts ", header.num_experts);
  }
  if (is_moe && header.moe_hidden_dim < 1) {
    return InvalidArgument("moe_hidden_dim is ", header.moe_hidden_dim,
                           ", at least 1 is needed");
  }
  if (header.head_dim == 0 && header.dim % header.num_heads != 0) {
    return InvalidArgument("dim ", header.dim, " is no multiple of n_heads ",
                           header.num_heads, ", and there is no head_dim");
  }
  if (header.arch() == Architecture::kLlama &&
      header.rope_type == kRopeFalcon) {
    return InvalidArgument("rope_type is ", kRopeFalcon,
                           ", supported for llama are 0 and 2");
  }
  if (header.rope_factor == 1) return OkStatus();
  if (header.arch() != Architecture::kLlama) {
    return InvalidArgument("rope_scaling_factor is ", header.rope_factor,
                           ", supported for this arch_type is 1");
  }
  if (header.rope_low_freq_factor == 0 || header.rope_original_seq_len == 0 ||
      header.rope_high_freq_factor <= header.rope_low_freq_factor) {
    return InvalidArgument(
        "rope_scaling_factor is ", header.rope_factor,
        " with rope_scaling_low_freq_factor ", header.rope_low_freq_factor,
        ", rope_scaling_high_freq_factor ", header.rope_high_freq_factor,
        " and rope_scaling_orig_max_seq_len ", header.rope_original_seq_len,
        ": expected 1 and more, rising");
  }
  return OkStatus();
}

Status ReadPairs(const std::vector<int32_t>& pairs, DllamaHeader& header) {
  std::set<int32_t> found;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const int32_t number = pairs[i];
    const int32_t value = pairs[i + 1];
    if (number < 0 || number >= kNumKeys) {
      return InvalidArgument("header key ", number,
                             " is unknown, limits 0 and ", kNumKeys - 1);
    }
    const Key& key = kKeys[number];
    if (!found.insert(number).second) {
      return InvalidArgument("header key ", key.name, " is there twice");
    }
    if (value < key.min || value > key.max) {
      return InvalidArgument("header key ", key.name, " is ", value,
                             ", limits ", key.min, " and ", key.max);
    }
    header.*key.field = value;
  }
  for (int32_t number = 0; number < kNumKeys; ++number) {
    if (kKeys[number].needed && !found.contains(number)) {
      return InvalidArgument("header key ", kKeys[number].name, " is missing");
    }
  }
  return CheckTogether(header);
}

StatusOr<uint32_t> ReadMagic(const RandomAccessFile& file) {
  uint32_t magic = 0;
  if (file.size() < sizeof(magic)) {
    return InvalidArgument(file.path(), ": has ", file.size(),
                           " bytes, a header 8 at least");
  }
  SLUICE_RETURN_IF_ERROR(file.ReadAt(0, sizeof(magic), &magic));
  return magic;
}

}  // namespace

DType DllamaHeader::weights_type() const { return kTypes[weights]; }

std::optional<int32_t> DllamaTypeOf(DType dtype) {
  const auto* found = std::find(std::begin(kTypes), std::end(kTypes), dtype);
  if (found == std::end(kTypes)) return std::nullopt;
  return static_cast<int32_t>(found - std::begin(kTypes));
}

StatusOr<std::string> DllamaHeaderBytes(const DllamaHeader& header) {
  std::vector<int32_t> pairs;
  for (int32_t number = 0; number < kNumKeys; ++number) {
    const Key& key = kKeys[number];
    const int32_t value = header.*key.field;
    if (!key.needed && !key.always && value == DllamaHeader().*key.field) {
      continue;
    }
    pairs.insert(pairs.end(), {number, value});
  }
  DllamaHeader read;
  SLUICE_RETURN_IF_ERROR(ReadPairs(pairs, read));
  const auto size = static_cast<int32_t>(8 + pairs.size() * sizeof(int32_t));
  std::string bytes(reinterpret_cast<const char*>(&kDllamaMagic),
                    sizeof(kDllamaMagic));
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(reinterpret_cast<const char*>(pairs.data()),
               pairs.size() * sizeof(int32_t));
  return bytes;
}

bool IsDllamaFile(const RandomAccessFile& file) {
  const auto magic = ReadMagic(file);
  return magic.ok() && (*magic == kDllamaMagic || *magic == kOldMagics[0] ||
                        *magic == kOldMagics[1]);
}

StatusOr<DllamaHeader> ReadDllamaHeader(const RandomAccessFile& file) {
  SLUICE_ASSIGN_OR_RETURN(const uint32_t magic, ReadMagic(file));
  if (magic == kOldMagics[0] || magic == kOldMagics[1]) {
    return InvalidArgument(file.path(), ": magic ", magic,
                           " is of distributed-llama's old format, supported "
                           "is ",
                           kDllamaMagic);
  }
  if (magic != kDllamaMagic) {
    return InvalidArgument(file.path(), ": magic ", magic,
                           " is no model of distributed-llama, whose is ",
                           kDllamaMagic);
  }
  int32_t bytes = 0;
  constexpr int32_t kFixed = 8;  // the magic and the size
  constexpr int32_t kMost = kFixed + kNumKeys * 8;
  if (file.size() < kFixed) {
    return InvalidArgument(file.path(), ": has ", file.size(),
                           " bytes, a header ", kFixed, " at least");
  }
  SLUICE_RETURN_IF_ERROR(file.ReadAt(4, sizeof(bytes), &bytes));
  if (bytes < kFixed || bytes > kMost || bytes % 8 != 0 ||
      static_cast<uint64_t>(bytes) > file.size()) {
    return InvalidArgument(file.path(), ": header of ", bytes,
                           " bytes, limits ", kFixed, " and ", kMost,
                           " in steps of 8, the file has ", file.size());
  }
  std::vector<int32_t> pairs(static_cast<size_t>(bytes - kFixed) / 4);
  SLUICE_RETURN_IF_ERROR(
      file.ReadAt(kFixed, pairs.size() * sizeof(int32_t), pairs.data()));
  DllamaHeader header;
  header.bytes = static_cast<uint64_t>(bytes);
  SLUICE_RETURN_IF_ERROR(Annotate(ReadPairs(pairs, header), file.path()));
  return header;
}

StatusOr<ModelContents> OpenDllama(std::unique_ptr<RandomAccessFile> file,
                                   const GgufTranslator& translate) {
  ModelContents contents;
  contents.path = file->path();
  SLUICE_ASSIGN_OR_RETURN(contents.dllama, ReadDllamaHeader(*file));
  contents.files.push_back(std::move(file));
  if (!translate) return contents;
  SLUICE_RETURN_IF_ERROR(Annotate(translate(contents), contents.path));
  return contents;
}

}  // namespace sluice::weights
