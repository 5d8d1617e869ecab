#include "services/cli/text_file.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "common/base/json.h"

namespace sluice::cli {

StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read ", path);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? OkStatus() : Unavailable(path, " cannot be written");
}

Status ReadJsonLines(const std::string& path,
                     const std::function<Status(const Json&)>& add) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  std::istringstream in(text);
  size_t number = 0;
  bool empty = true;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const StatusOr<Json> json = ParseJson(line);
    Status added = json.status();
    if (json.ok()) {
      added =
          json->is_object() ? add(*json) : InvalidArgument("not a JSON object");
    }
    if (!added.ok()) return Annotate(added, path, ":", number);
    empty = false;
  }
  return empty ? InvalidArgument(path, " is empty") : OkStatus();
}

}  // namespace sluice::cli
