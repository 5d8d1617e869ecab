#include "common/tools/eval/logits_file.h"

#include <cstdio>
#include <cstring>
#include <fstream>

#include "common/base/json.h"
#include "common/weights/model_contents.h"

namespace sluice::eval {

StatusOr<LogitRows> FetchLogits(const http::BaseUrl& base,
                                const std::vector<int64_t>& ids) {
  SLUICE_ASSIGN_OR_RETURN(
      const http::HttpResponse response,
      http::HttpPostForBytes(base, "/debug/logits",
                             DumpJson(Json{{"prompt", ids}})));
  if (response.status == 404) {
    return NotFound(
        "/debug/logits is not on (--debug-endpoints; deploy/local/up --debug)");
  }
  if (response.status != 200) {
    return FailedPrecondition(http::ErrorText(response.status, response.body));
  }
  const size_t row_bytes = response.body.size() / ids.size();
  if (response.content_type != "application/octet-stream" || row_bytes == 0 ||
      response.body.size() % (ids.size() * sizeof(float)) != 0) {
    return FailedPrecondition(
        "/debug/logits answered something else: ", response.body.size(),
        " bytes of ", response.content_type);
  }
  LogitRows rows;
  rows.columns = row_bytes / sizeof(float);
  rows.values.resize(response.body.size() / sizeof(float));
  std::memcpy(rows.values.data(), response.body.data(), response.body.size());
  return rows;
}

Status WriteLogitsFile(const std::string& path, const std::vector<int64_t>& ids,
                       const LogitRows& logits) {
  if (ids.size() * logits.columns != logits.values.size()) {
    return Internal(logits.values.size(), " logits for ", ids.size(),
                    " tokens of ", logits.columns);
  }
  const uint64_t ids_bytes = ids.size() * sizeof(int64_t);
  const uint64_t logits_bytes = logits.values.size() * sizeof(float);
  std::string header =
      DumpJson({{"ids",
                 {{"dtype", "I64"},
                  {"shape", {ids.size()}},
                  {"data_offsets", {uint64_t{0}, ids_bytes}}}},
                {"logits",
                 {{"dtype", "F32"},
                  {"shape", {ids.size(), logits.columns}},
                  {"data_offsets", {ids_bytes, ids_bytes + logits_bytes}}}}});
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = header.size();
  const std::string draft = path + ".part";
  {
    std::ofstream out(draft, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&header_bytes),
              sizeof(header_bytes));
    out << header;
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(ids_bytes));
    out.write(reinterpret_cast<const char*>(logits.values.data()),
              static_cast<std::streamsize>(logits_bytes));
    out.close();
    if (!out) return Unavailable(path, " cannot be written");
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return Unavailable(path, " cannot be written");
  }
  return OkStatus();
}

StatusOr<std::map<std::string, ReferenceTensor>> ReadTensors(
    const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          weights::RandomAccessFile::Open(path));
  SLUICE_ASSIGN_OR_RETURN(const auto located,
                          weights::ReadSafetensorsHeader(*file));
  std::map<std::string, ReferenceTensor> tensors;
  for (const weights::LocatedTensor& tensor : located) {
    const bool floats = tensor.info.dtype == weights::DType::kF32;
    if (!floats && tensor.info.dtype != weights::DType::kI64) continue;
    ReferenceTensor& out = tensors[tensor.info.name];
    out.shape = tensor.info.shape;
    const auto elements = static_cast<size_t>(tensor.info.elements());
    (floats ? out.floats.resize(elements) : out.ints.resize(elements));
    void* bytes = floats ? static_cast<void*>(out.floats.data())
                         : static_cast<void*>(out.ints.data());
    SLUICE_RETURN_IF_ERROR(file->ReadAt(
        tensor.offset, static_cast<size_t>(tensor.info.stored_bytes()), bytes));
  }
  return tensors;
}

}  // namespace sluice::eval
