#include "services/cli/logits_file.h"

#include <cstdio>
#include <fstream>

#include "common/base/json.h"

namespace sluice::cli {

Status WriteLogitsFile(const std::string& path, const LogitsDump& dump) {
  const auto rows = static_cast<int64_t>(dump.ids.size());
  if (rows * dump.vocab_size != static_cast<int64_t>(dump.logits.size())) {
    return Internal(dump.logits.size(), " logits for ", rows, " tokens of ",
                    dump.vocab_size);
  }
  const uint64_t ids_bytes = dump.ids.size() * sizeof(int64_t);
  const uint64_t logits_bytes = dump.logits.size() * sizeof(float);
  std::string header =
      DumpJson({{"ids",
                 {{"dtype", "I64"},
                  {"shape", {rows}},
                  {"data_offsets", {uint64_t{0}, ids_bytes}}}},
                {"logits",
                 {{"dtype", "F32"},
                  {"shape", {rows, dump.vocab_size}},
                  {"data_offsets", {ids_bytes, ids_bytes + logits_bytes}}}}});
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = header.size();
  const std::string draft = path + ".part";
  {
    std::ofstream out(draft, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&header_bytes),
              sizeof(header_bytes));
    out << header;
    out.write(reinterpret_cast<const char*>(dump.ids.data()),
              static_cast<std::streamsize>(ids_bytes));
    out.write(reinterpret_cast<const char*>(dump.logits.data()),
              static_cast<std::streamsize>(logits_bytes));
    out.close();
    if (!out) return Unavailable(path, " cannot be written");
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return Unavailable(path, " cannot be written");
  }
  return OkStatus();
}

}  // namespace sluice::cli
