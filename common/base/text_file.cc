#include "common/base/text_file.h"

#include <fstream>
#include <sstream>
#include <utility>

namespace sluice {

StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read ", path);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

Status WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? OkStatus() : Unavailable(path, " cannot be written");
}

}  // namespace sluice
