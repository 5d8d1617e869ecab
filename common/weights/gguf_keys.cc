#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/weights/gguf_reader.h"

namespace sluice::weights {
namespace {

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

// An integer of T, whose bits a uint64_t above int64_t's range keeps.
template <typename T>
StatusOr<int64_t> ReadInt(GgufReader& reader, std::string_view key) {
  SLUICE_ASSIGN_OR_RETURN(const T value, reader.Scalar<T>(key));
  return static_cast<int64_t>(value);
}

StatusOr<int64_t> ReadInteger(GgufReader& reader, GgufType type,
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

StatusOr<double> ReadFloat(GgufReader& reader, GgufType type,
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

Status ReadArray(GgufReader& reader, std::string_view key, GgufValue& value) {
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
      reader.CheckCount(count, MinBytes(element), GgufReader::kMaxHeaderBytes,
                        Cat("elements of key ", Quoted(key))));
  value.element_type = element;
  if (element == GgufType::kString) {
    SLUICE_ASSIGN_OR_RETURN(value.value, ReadElements<std::string>(count, [&] {
                              return reader.String(key,
                                                   GgufReader::kMaxHeaderBytes);
                            }));
  } else if (IsFloat(element)) {
    value.offset = reader.position();
    SLUICE_ASSIGN_OR_RETURN(value.value, ReadElements<double>(count, [&] {
                              return ReadFloat(reader, element, key);
                            }));
  } else {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> integers,
                            ReadElements<int64_t>(count, [&] {
                              return ReadInteger(reader, element, key);
                            }));
    const bool wraps = element == GgufType::kUint64 &&
                       std::any_of(integers.begin(), integers.end(),
                                   [](int64_t i) { return i < 0; });
    if (wraps) {
      value.value = std::vector<uint64_t>(integers.begin(), integers.end());
    } else {
      value.value = integers;
    }
  }
  return OkStatus();
}

StatusOr<GgufValue> ReadValue(GgufReader& reader, std::string_view key) {
  SLUICE_ASSIGN_OR_RETURN(const auto type, reader.Scalar<uint32_t>(key));
  if (type > static_cast<uint32_t>(GgufType::kFloat64)) {
    return InvalidArgument(reader.path(), ": key ", Quoted(key),
                           ": unknown value type ", type, ", limit 12");
  }
  GgufValue value;
  value.type = static_cast<GgufType>(type);
  switch (value.type) {
    case GgufType::kString: {
      SLUICE_ASSIGN_OR_RETURN(value.value,
                              reader.String(key, GgufReader::kMaxHeaderBytes));
      break;
    }
    case GgufType::kFloat32:
    case GgufType::kFloat64: {
      value.offset = reader.position();
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
      SLUICE_ASSIGN_OR_RETURN(const int64_t integer,
                              ReadInteger(reader, value.type, key));
      value.value = integer;
      if (value.type == GgufType::kUint64 && integer < 0) {
        value.value = static_cast<uint64_t>(integer);
      }
    }
  }
  return value;
}

}  // namespace

StatusOr<GgufMetadata> ReadGgufKeys(GgufReader& reader, uint64_t count) {
  GgufMetadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        std::string key,
        reader.String("metadata key", GgufReader::kMaxNameBytes));
    SLUICE_ASSIGN_OR_RETURN(GgufValue value, ReadValue(reader, key));
    if (!metadata.Insert(key, std::move(value))) {
      return InvalidArgument(reader.path(), ": duplicate metadata key ",
                             Quoted(key));
    }
  }
  return metadata;
}

}  // namespace sluice::weights
