#include "common/weights/gguf_writer.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/check.h"

namespace sluice::weights {
namespace {

constexpr uint32_t kVersion = 3;

template <typename T>
void Put(T value, std::string& to) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutText(std::string_view text, std::string& to) {
  Put<uint64_t>(text.size(), to);
  to += text;
}

size_t WidthOf(GgufType type) {
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
      return 4;
    default:
      return 8;
  }
}

// Appends a value's bytes, without its type.
struct PutValue {
  const GgufType type;
  const GgufType element_type;
  std::string& to;

  void operator()(int64_t value) const {
    to.append(reinterpret_cast<const char*>(&value), WidthOf(type));
  }
  void operator()(uint64_t value) const { Put(value, to); }
  void operator()(double value) const {
    if (type == GgufType::kFloat64) return Put(value, to);

    Put(static_cast<float>(value), to);
  }
  void operator()(bool value) const { Put<uint8_t>(value ? 1 : 0, to); }
  void operator()(const std::string& value) const { PutText(value, to); }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    Put(static_cast<uint32_t>(element_type), to);
    Put<uint64_t>(values.size(), to);
    const PutValue put{element_type, element_type, to};
    for (const T& value : values) put(value);
  }
};

}  // namespace

GgufWriter::GgufWriter(std::string path)
    : path_(std::move(path)), out_(path_, std::ios::binary | std::ios::trunc) {}

StatusOr<std::unique_ptr<GgufWriter>> GgufWriter::Create(
    const std::string& path, const GgufMetadata& metadata,
    const std::vector<TensorInfo>& tensors) {
  std::unique_ptr<GgufWriter> writer(new GgufWriter(path));
  if (metadata.Has("general.alignment")) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t alignment,
                            metadata.Int("general.alignment"));
    writer->alignment_ = static_cast<uint64_t>(alignment);
  }
  std::string header = "GGUF";
  Put(kVersion, header);
  Put<uint64_t>(tensors.size(), header);
  Put<uint64_t>(metadata.entries().size(), header);
  for (const auto& [key, value] : metadata.entries()) {
    PutText(key, header);
    Put(static_cast<uint32_t>(value.type), header);
    std::visit(PutValue{value.type, value.element_type, header}, value.value);
  }
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    SLUICE_ASSIGN_OR_RETURN(const uint32_t type, GgufTypeId(tensor.dtype));
    PutText(tensor.name, header);
    Put(static_cast<uint32_t>(tensor.shape.size()), header);
    for (size_t i = tensor.shape.size(); i > 0; --i) {
      Put<uint64_t>(static_cast<uint64_t>(tensor.shape[i - 1]), header);
    }
    Put(type, header);
    Put(offset, header);
    const auto bytes = static_cast<uint64_t>(tensor.stored_bytes());
    writer->missing_.push_back(bytes);
    offset += (bytes + writer->alignment_ - 1) / writer->alignment_ *
              writer->alignment_;
  }
  writer->out_.write(header.data(),
                     static_cast<std::streamsize>(header.size()));
  writer->position_ = header.size();
  SLUICE_RETURN_IF_ERROR(writer->Pad());
  return writer;
}

Status GgufWriter::Append(const void* bytes, size_t size) {
  SLUICE_CHECK(next_ < missing_.size() && size <= missing_[next_]);
  out_.write(static_cast<const char*>(bytes),
             static_cast<std::streamsize>(size));
  position_ += size;
  missing_[next_] -= size;
  if (missing_[next_] == 0) {
    ++next_;
    return Pad();
  }
  if (out_.good()) return OkStatus();
  return Unavailable(path_, ": cannot be written: ", std::strerror(errno));
}

Status GgufWriter::Close() {
  SLUICE_CHECK(next_ == missing_.size());
  out_.close();
  if (out_.good()) return OkStatus();
  return Unavailable(path_, ": cannot be written: ", std::strerror(errno));
}

Status GgufWriter::Pad() {
  const std::string zeros((alignment_ - position_ % alignment_) % alignment_,
                          '\0');
  out_.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  position_ += zeros.size();
  if (out_.good()) return OkStatus();
  return Unavailable(path_, ": cannot be written: ", std::strerror(errno));
}

}  // namespace sluice::weights
