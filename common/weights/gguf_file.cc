#include "common/weights/gguf_file.h"

#include <bit>
#include <set>
#include <utility>

#include "common/weights/extent.h"
#include "common/weights/gguf_reader.h"

namespace sluice::weights {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxGgufTensors = 1 << 20;
constexpr uint32_t kMaxGgufDims = 4;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 16;

// The readable types that a GGUF may have.
std::string ReadableTypes() {
  std::string names;
  for (int i = 0; i <= static_cast<int>(kLastReadable); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!GgufIdOf(dtype).has_value()) continue;
    names += Cat(names.empty() ? "" : ", ", dtype);
  }
  return names;
}

StatusOr<DType> DTypeOf(uint32_t id) {
  if (const auto dtype = DTypeOfGguf(id)) return *dtype;
  return InvalidArgument("tensor type id ", id,
                         " is not supported; supported are ", ReadableTypes());
}

// Reads one entry of the tensor list; its offset is still relative to the
// start of the data.
StatusOr<GgufTensor> ReadTensor(GgufReader& reader) {
  GgufTensor tensor;
  SLUICE_ASSIGN_OR_RETURN(
      tensor.name, reader.String("tensor name", GgufReader::kMaxNameBytes));
  const std::string context =
      Cat(reader.path(), ": tensor ", Quoted(tensor.name));
  SLUICE_ASSIGN_OR_RETURN(const auto dims, reader.Scalar<uint32_t>(context));
  if (dims < 1 || dims > kMaxGgufDims) {
    return InvalidArgument(context, ": ", dims, " dimensions, limits 1 and ",
                           kMaxGgufDims);
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

// Makes the tensors' offsets absolute and checks that each tensor lies in the
// file and overlaps no other.
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

StatusOr<uint32_t> GgufTypeId(DType dtype) {
  if (const auto id = GgufIdOf(dtype)) return *id;
  return InvalidArgument("a GGUF has no tensors of ", dtype);
}

StatusOr<GgufHeader> ReadGgufHeader(const RandomAccessFile& file) {
  GgufReader reader(file);
  SLUICE_ASSIGN_OR_RETURN(const auto magic, reader.Scalar<uint32_t>("magic"));
  if (magic != kMagic) {
    return InvalidArgument(file.path(), ": not a GGUF file");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto version,
                          reader.Scalar<uint32_t>("version"));
  constexpr uint32_t kBigEndian3 = 3u << 24, kBigEndian2 = 2u << 24;
  if (version == kBigEndian2 || version == kBigEndian3) {
    return InvalidArgument(file.path(),
                           ": is a big-endian GGUF; little-endian ones are "
                           "supported");
  }
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
      reader.CheckCount(num_tensors, 32, kMaxGgufTensors, "tensors"));
  GgufHeader header;
  SLUICE_ASSIGN_OR_RETURN(header.metadata, ReadGgufKeys(reader, num_keys));
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
