#include "common/weights/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "common/weights/extent.h"

namespace sluice::weights {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxNameBytes = 1 << 10;      // of a key or tensor
constexpr uint64_t kMaxHeaderBytes = 128 << 20;  // metadata and tensor list
constexpr uint32_t kMaxDims = 4;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 16;
constexpr size_t kBufferBytes = 1 << 20;

// Reads a header front to back. Every length is checked against what is left
// of the file before memory is taken for it.
class HeaderReader {
 public:
  explicit HeaderReader(const RandomAccessFile& file)
      : file_(file), limit_(std::min(file.size(), kMaxHeaderBytes)) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return limit_ - position_; }

  Status Bytes(size_t size, void* out, std::string_view what) {
    if (size > left()) {
      return InvalidArgument(file_.path(), ": ", what, " needs ", size,
                             " bytes at ", position_, ", ", left(),
                             " are left of ", limit_);
    }
    char* to = static_cast<char*>(out);
    while (size > 0) {
      if (next_ == buffer_.size()) SLUICE_RETURN_IF_ERROR(Fill());
      const size_t take = std::min(size, buffer_.size() - next_);
      std::memcpy(to, buffer_.data() + next_, take);
      next_ += take;
      position_ += take;
      to += take;
      size -= take;
    }
    return OkStatus();
  }

  template <typename T>
  StatusOr<T> Scalar(std::string_view what) {
    T value;
    SLUICE_RETURN_IF_ERROR(Bytes(sizeof(value), &value, what));
    return value;
  }

  StatusOr<std::string> String(std::string_view what, uint64_t max_bytes) {
    SLUICE_ASSIGN_OR_RETURN(const auto size, Scalar<uint64_t>(what));
    if (size > left() || size > max_bytes) {
      return InvalidArgument(file_.path(), ": ", what, " of ", size,
                             " bytes at ", position_, ", limit ",
                             std::min(left(), max_bytes));
    }
    std::string text(size, '\0');
    SLUICE_RETURN_IF_ERROR(Bytes(size, text.data(), what));
    return text;
  }

  // `count` as a number of things of at least `min_bytes` each.
  Status CheckCount(uint64_t count, uint64_t min_bytes, uint64_t max_count,
                    std::string_view what) const {
    const uint64_t limit = std::min(max_count, left() / min_bytes);
    if (count <= limit) return OkStatus();
    return InvalidArgument(file_.path(), ": ", count, " ", what, " at ",
                           position_, ", limit ", limit);
  }

  const std::string& path() const { return file_.path(); }

 private:
  Status Fill() {
    buffer_.resize(std::min<uint64_t>(kBufferBytes, left()));
    next_ = 0;
    return file_.ReadAt(position_, buffer_.size(), buffer_.data());
  }

  const RandomAccessFile& file_;
  const uint64_t limit_;
  uint64_t position_ = 0;  // of the next byte given out
  std::vector<char> buffer_;
  size_t next_ = 0;
};

// Bytes of one element in an array; a string takes at least its length.
uint64_t MinBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename T>
StatusOr<int64_t> ReadInt(HeaderReader& reader, std::string_view key) {
  SLUICE_ASSIGN_OR_RETURN(const T value, reader.Scalar<T>(key));
  if (!std::in_range<int64_t>(value)) {
    return InvalidArgument(reader.path(), ": key ", Quoted(key), ": value ",
                           value, " is above ",
                           std::numeric_limits<int64_t>::max());
  }
  return static_cast<int64_t>(value);
}

StatusOr<int64_t> ReadInteger(HeaderReader& reader, GgufType type,
                              std::string_view key) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return ReadInt<uint8_t>(reader, key);
    case GgufType::kInt8:
      return ReadInt<int8_t>(reader, key);
    case GgufType::kUint16:
      return ReadInt<uint16_t>(reader, key);
    case GgufType::kInt16:
      return ReadInt<int16_t>(reader, key);
    case GgufType::kUint32:
      return ReadInt<uint32_t>(reader, key);
    case GgufType::kInt32:
      return ReadInt<int32_t>(reader, key);
    case GgufType::kUint64:
      return ReadInt<uint64_t>(reader, key);
    default:
      return ReadInt<int64_t>(reader, key);
  }
}

StatusOr<double> ReadFloat(HeaderReader& reader, GgufType type,
                           std::string_view key) {
  if (type == GgufType::kFloat64) return reader.Scalar<double>(key);
  SLUICE_ASSIGN_OR_RETURN(const float value, reader.Scalar<float>(key));
  return static_cast<double>(value);
}

bool IsFloat(GgufType type) {
  return type == GgufType::kFloat32 || type == GgufType::kFloat64;
}

// Reads `count` elements with `read`.
template <typename T, typename Read>
StatusOr<std::vector<T>> ReadElements(uint64_t count, Read read) {
  std::vector<T> elements;
  elements.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(T element, read());
    elements.push_back(std::move(element));
  }
  return elements;
}

Status ReadArray(HeaderReader& reader, std::string_view key, GgufValue& value) {
  SLUICE_ASSIGN_OR_RETURN(const auto type, reader.Scalar<uint32_t>(key));
  SLUICE_ASSIGN_OR_RETURN(const auto count, reader.Scalar<uint64_t>(key));
  const auto element = static_cast<GgufType>(type);
  if (type > static_cast<uint32_t>(GgufType::kFloat64) ||
      element == GgufType::kArray) {
    return InvalidArgument(reader.path(), ": key ", Quoted(key),
                           ": array of type ", type,
                           " (nested or unknown) is not supported");
  }
  SLUICE_RETURN_IF_ERROR(
      reader.CheckCount(count, MinBytes(element), kMaxHeaderBytes,
                        Cat("elements of key ", Quoted(key))));
  value.element_type = element;
  if (element == GgufType::kString) {
    SLUICE_ASSIGN_OR_RETURN(value.value, ReadElements<std::string>(count, [&] {
                              return reader.String(key, kMaxHeaderBytes);
                            }));
  } else if (IsFloat(element)) {
    SLUICE_ASSIGN_OR_RETURN(value.value, ReadElements<double>(count, [&] {
                              return ReadFloat(reader, element, key);
                            }));
  } else {
    SLUICE_ASSIGN_OR_RETURN(value.value, ReadElements<int64_t>(count, [&] {
                              return ReadInteger(reader, element, key);
                            }));
  }
  return OkStatus();
}

StatusOr<GgufValue> ReadValue(HeaderReader& reader, std::string_view key) {
  SLUICE_ASSIGN_OR_RETURN(const auto type, reader.Scalar<uint32_t>(key));
  if (type > static_cast<uint32_t>(GgufType::kFloat64)) {
    return InvalidArgument(reader.path(), ": key ", Quoted(key),
                           ": unknown value type ", type, ", limit 12");
  }
  GgufValue value;
  value.type = static_cast<GgufType>(type);
  switch (value.type) {
    case GgufType::kString: {
      SLUICE_ASSIGN_OR_RETURN(value.value, reader.String(key, kMaxHeaderBytes));
      break;
    }
    case GgufType::kFloat32:
    case GgufType::kFloat64: {
      SLUICE_ASSIGN_OR_RETURN(value.value, ReadFloat(reader, value.type, key));
      break;
    }
    case GgufType::kBool: {
      SLUICE_ASSIGN_OR_RETURN(const auto byte, reader.Scalar<uint8_t>(key));
      value.value = byte != 0;
      break;
    }
    case GgufType::kArray: {
      SLUICE_RETURN_IF_ERROR(ReadArray(reader, key, value));
      break;
    }
    default: {
      SLUICE_ASSIGN_OR_RETURN(value.value,
                              ReadInteger(reader, value.type, key));
    }
  }
  return value;
}

StatusOr<GgufMetadata> ReadMetadata(HeaderReader& reader, uint64_t count) {
  GgufMetadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(std::string key,
                            reader.String("metadata key", kMaxNameBytes));
    SLUICE_ASSIGN_OR_RETURN(GgufValue value, ReadValue(reader, key));
    if (!metadata.Insert(key, std::move(value))) {
      return InvalidArgument(reader.path(), ": duplicate metadata key ",
                             Quoted(key));
    }
  }
  return metadata;
}

// The types we know of GGUF's; the others have ids but no reader here.
StatusOr<DType> DTypeOf(uint32_t id) {
  switch (id) {
    case 0:
      return DType::kF32;
    case 1:
      return DType::kF16;
    case 2:
      return DType::kQ4_0;
    case 3:
      return DType::kQ4_1;
    case 6:
      return DType::kQ5_0;
    case 7:
      return DType::kQ5_1;
    case 8:
      return DType::kQ8_0;
    case 12:
      return DType::kQ4K;
    case 13:
      return DType::kQ5K;
    case 14:
      return DType::kQ6K;
    case 30:
      return DType::kBF16;
    default:
      return InvalidArgument(
          "tensor type id ", id,
          " is not supported; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
          "Q5_0, Q5_1, Q4_K, Q5_K, Q6_K");
  }
}

// Reads one entry of the tensor list; its offset is still relative to the
// start of the data.
StatusOr<GgufTensor> ReadTensor(HeaderReader& reader) {
  GgufTensor tensor;
  SLUICE_ASSIGN_OR_RETURN(tensor.name,
                          reader.String("tensor name", kMaxNameBytes));
  const std::string context =
      Cat(reader.path(), ": tensor ", Quoted(tensor.name));
  SLUICE_ASSIGN_OR_RETURN(const auto dims, reader.Scalar<uint32_t>(context));
  if (dims < 1 || dims > kMaxDims) {
    return InvalidArgument(context, ": ", dims, " dimensions, limits 1 and ",
                           kMaxDims);
  }
  for (uint32_t i = 0; i < dims; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const auto dim, reader.Scalar<uint64_t>(context));
    if (dim < 1 || !std::in_range<int64_t>(dim)) {
      return InvalidArgument(context, ": dimension ", i, " is ", dim,
                             ", limits 1 and 2^63-1");
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto type, reader.Scalar<uint32_t>(context));
  SLUICE_ASSIGN_OR_RETURN(tensor.offset, reader.Scalar<uint64_t>(context));
  auto dtype = DTypeOf(type);
  if (!dtype.ok()) return Annotate(dtype.status(), context);
  tensor.dtype = *dtype;
  auto bytes = StoredBytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return Annotate(bytes.status(), context);
  tensor.bytes = *bytes;
  return tensor;
}

StatusOr<uint64_t> ReadAlignment(const RandomAccessFile& file,
                                 const GgufMetadata& metadata) {
  if (!metadata.Has("general.alignment")) return kDefaultAlignment;
  auto alignment = metadata.Int("general.alignment");
  if (!alignment.ok()) return Annotate(alignment.status(), file.path());
  if (*alignment < 8 || *alignment > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return InvalidArgument(file.path(), ": general.alignment ", *alignment,
                           " is not a power of two from 8 to ", kMaxAlignment);
  }
  return static_cast<uint64_t>(*alignment);
}

// Turns the tensors' offsets absolute and checks that each lies in the file
// and on no other.
Status PlaceTensors(const RandomAccessFile& file, uint64_t header_end,
                    uint64_t alignment, std::vector<GgufTensor>& tensors) {
  const uint64_t data = (header_end + alignment - 1) / alignment * alignment;
  std::set<std::string_view> names;
  std::vector<Extent> extents;
  for (GgufTensor& tensor : tensors) {
    const std::string context =
        Cat(file.path(), ": tensor ", Quoted(tensor.name));
    if (!names.insert(tensor.name).second) {
      return InvalidArgument(context, " is listed twice");
    }
    if (tensor.offset % alignment != 0) {
      return InvalidArgument(context, ": offset ", tensor.offset,
                             " is not a multiple of the alignment ", alignment);
    }
    if (data > file.size() || tensor.offset > file.size() - data ||
        tensor.bytes > file.size() - data - tensor.offset) {
      return InvalidArgument(context, ": ", tensor.bytes, " bytes at ",
                             tensor.offset, " of the data at ", data,
                             " are beyond the file's end at ", file.size());
    }
    tensor.offset += data;
    extents.push_back({tensor.offset, tensor.bytes, tensor.name});
  }
  return CheckNoOverlap(file.path(), extents);
}

}  // namespace

StatusOr<GgufHeader> ReadGgufHeader(const RandomAccessFile& file) {
  HeaderReader reader(file);
  SLUICE_ASSIGN_OR_RETURN(const auto magic, reader.Scalar<uint32_t>("magic"));
  if (magic != kMagic) {
    return InvalidArgument(file.path(), ": not a GGUF file");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto version,
                          reader.Scalar<uint32_t>("version"));
  if (version != 2 && version != 3) {
    return InvalidArgument(file.path(), ": GGUF version ", version,
                           ", supported are 2 and 3 (little-endian)");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto num_tensors,
                          reader.Scalar<uint64_t>("tensor count"));
  SLUICE_ASSIGN_OR_RETURN(const auto num_keys,
                          reader.Scalar<uint64_t>("metadata count"));
  // The shortest entry: empty name, one type id, one byte; for a tensor one
  // dimension and an offset.
  SLUICE_RETURN_IF_ERROR(
      reader.CheckCount(num_keys, 13, kMaxKeys, "metadata keys"));
  SLUICE_RETURN_IF_ERROR(
      reader.CheckCount(num_tensors, 32, kMaxTensors, "tensors"));
  GgufHeader header;
  SLUICE_ASSIGN_OR_RETURN(header.metadata, ReadMetadata(reader, num_keys));
  SLUICE_ASSIGN_OR_RETURN(const uint64_t alignment,
                          ReadAlignment(file, header.metadata));
  header.tensors.reserve(num_tensors);
  for (uint64_t i = 0; i < num_tensors; ++i) {
    SLUICE_ASSIGN_OR_RETURN(GgufTensor tensor, ReadTensor(reader));
    header.tensors.push_back(std::move(tensor));
  }
  SLUICE_RETURN_IF_ERROR(
      PlaceTensors(file, reader.position(), alignment, header.tensors));
  return header;
}

StatusOr<GgufMetadata> ReadGgufMetadata(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(auto file, RandomAccessFile::Open(path));
  SLUICE_ASSIGN_OR_RETURN(GgufHeader header, ReadGgufHeader(*file));
  return std::move(header.metadata);
}

}  // namespace sluice::weights
