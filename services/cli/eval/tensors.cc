#include "services/cli/eval/tensors.h"

#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "common/base/json.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = size_t{100} << 20;

// Elements of `shape`; -1 if a dimension is odd or they are too many.
int64_t Elements(const Json& shape, std::vector<int64_t>& out) {
  if (!shape.is_array()) return -1;
  int64_t elements = 1;
  for (const Json& size : shape) {
    if (!size.is_number_integer()) return -1;
    out.push_back(size.get<int64_t>());
    if (out.back() < 0 ||
        __builtin_mul_overflow(elements, out.back(), &elements)) {
      return -1;
    }
  }
  return elements;
}

// The bytes of an entry within `data`; empty with an error.
StatusOr<std::string_view> BytesOf(const Json& entry, std::string_view data) {
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return InvalidArgument("no data_offsets");
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return InvalidArgument("data_offsets ", begin, " to ", end, " of ",
                           data.size(), " bytes");
  }
  return data.substr(begin, end - begin);
}

template <typename T>
Status Copy(std::string_view bytes, int64_t elements, std::vector<T>& out) {
  if (elements < 0 ||
      bytes.size() / sizeof(T) != static_cast<uint64_t>(elements) ||
      bytes.size() % sizeof(T) != 0) {
    return InvalidArgument("its shape does not give its ", bytes.size(),
                           " bytes");
  }
  out.resize(static_cast<size_t>(elements));
  if (elements > 0) std::memcpy(out.data(), bytes.data(), bytes.size());
  return OkStatus();
}

Status ReadEntry(const Json& entry, std::string_view data,
                 ReferenceTensor& out) {
  const auto shape = entry.find("shape");
  if (shape == entry.end()) return InvalidArgument("no shape");
  const int64_t elements = Elements(*shape, out.shape);
  SLUICE_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(entry, data));
  if (entry["dtype"] == "F32") return Copy(bytes, elements, out.floats);
  return Copy(bytes, elements, out.ints);
}

}  // namespace

StatusOr<std::map<std::string, ReferenceTensor>> ReadTensors(
    const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read ", path);
  std::ostringstream text;
  text << in.rdbuf();
  const std::string file = std::move(text).str();
  uint64_t header_bytes = 0;
  if (file.size() >= kLengthBytes) {
    std::memcpy(&header_bytes, file.data(), kLengthBytes);
  }
  if (file.size() < kLengthBytes || header_bytes > file.size() - kLengthBytes) {
    return InvalidArgument(path, ": not a safetensors file");
  }
  const std::string_view all = file;
  const StatusOr<Json> header =
      ParseJson(all.substr(kLengthBytes, header_bytes), {kMaxHeaderBytes, 64});
  if (!header.ok()) return Annotate(header.status(), path);
  if (!header->is_object()) return InvalidArgument(path, ": no header");
  const std::string_view data = all.substr(kLengthBytes + header_bytes);
  std::map<std::string, ReferenceTensor> tensors;
  for (const auto& [name, entry] : header->items()) {
    if (!entry.is_object() || !entry.contains("dtype")) continue;
    if (entry["dtype"] != "F32" && entry["dtype"] != "I64") continue;
    const Status read = ReadEntry(entry, data, tensors[name]);
    if (!read.ok()) return Annotate(read, path, ": ", name);
  }
  return tensors;
}

}  // namespace sluice::cli
