#include "common/weights/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"

namespace sluice::weights {

SafetensorsWriter::SafetensorsWriter(std::string path)
    : path_(std::move(path)), out_(path_, std::ios::binary | std::ios::trunc) {}

StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorInfo>& tensors) {
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(path));
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t& end = writer->missing_;
  for (const TensorInfo& tensor : tensors) {
    const uint64_t begin = end;
    end += static_cast<uint64_t>(tensor.stored_bytes());
    header[tensor.name] = {{"dtype", std::string(ToString(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, end}}};
  }
  std::string text = DumpJson(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors begin aligned
  const uint64_t size = text.size();
  writer->out_.write(reinterpret_cast<const char*>(&size), sizeof(size));
  writer->out_.write(text.data(), static_cast<std::streamsize>(text.size()));
  SLUICE_RETURN_IF_ERROR(writer->Check());
  return writer;
}

Status SafetensorsWriter::Append(const void* bytes, size_t size) {
  SLUICE_CHECK(size <= missing_);
  missing_ -= size;
  out_.write(static_cast<const char*>(bytes),
             static_cast<std::streamsize>(size));
  return Check();
}

Status SafetensorsWriter::Close() {
  SLUICE_CHECK(missing_ == 0);
  out_.close();
  return Check();
}

Status SafetensorsWriter::Check() {
  if (out_.good()) return OkStatus();
  return Unavailable(path_, ": cannot be written: ", std::strerror(errno));
}

}  // namespace sluice::weights
