#ifndef SLUICE_COMMON_WEIGHTS_GGUF_FILE_H_
#define SLUICE_COMMON_WEIGHTS_GGUF_FILE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/weights/dtype.h"
#include "common/weights/file.h"

namespace sluice::weights {

// Type ids of metadata values, as in the file.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "uint32", "array", ...
std::string_view ToString(GgufType type);

// One metadata value: integers of every width as int64_t, both float widths as
// double, arrays of bools as arrays of integers. An integer above int64_t's
// range is a uint64_t, and so are all of an array with one: no key that is read
// has such values, and getters give INVALID_ARGUMENT.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  // of an array
  std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
               std::vector<double>, std::vector<std::string>, uint64_t,
               std::vector<uint64_t>>
      value;
  // Of floats, one or an array: where they begin in their file.
  uint64_t offset = 0;
};

// The key-value part of a GGUF header. Getters give NOT_FOUND for an absent key
// and INVALID_ARGUMENT, naming both types, for another type. A copyable value.
class GgufMetadata {
 public:
  // Returns null if absent.
  const GgufValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  StatusOr<std::string> String(std::string_view key) const;
  StatusOr<int64_t> Int(std::string_view key) const;   // any integer width
  StatusOr<double> Float(std::string_view key) const;  // f32 or f64
  StatusOr<bool> Bool(std::string_view key) const;
  StatusOr<std::vector<std::string>> Strings(std::string_view key) const;
  StatusOr<std::vector<int64_t>> Ints(std::string_view key) const;
  StatusOr<std::vector<double>> Floats(std::string_view key) const;

  // Returns false if the key exists already.
  bool Insert(std::string key, GgufValue value);
  const std::map<std::string, GgufValue, std::less<>>& entries() const {
    return entries_;
  }

 private:
  std::map<std::string, GgufValue, std::less<>> entries_;
};

// A tensor of a GGUF header, checked against the file's size.
struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // slowest first: the file's order reversed
  uint64_t offset = 0;         // from the start of its file
  uint64_t bytes = 0;
};

// The header of one GGUF file (version 2 or 3, little-endian), also of one file
// of a split set.
struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the file's order
};

// Returns GGUF's number of a tensor's type; INVALID_ARGUMENT for one without.
StatusOr<uint32_t> GgufTypeId(DType dtype);

// Parses and checks the header of `file`: counts, lengths, types, dimension
// products, alignment, offsets, overlaps and duplicate names. INVALID_ARGUMENT
// refuses each before memory is taken for it.
StatusOr<GgufHeader> ReadGgufHeader(const RandomAccessFile& file);

// Returns the metadata of the GGUF at `path`: tokenizer and chat template.
StatusOr<GgufMetadata> ReadGgufMetadata(const std::string& path);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_GGUF_FILE_H_
