#include "common/base/text_file.h"

#include <array>
#include <fstream>

namespace sluice {

StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read ", path);
  // A stream that copies another one leaves text out where memory is short.
  std::string text;
  std::array<char, 8192> piece;
  while (in.read(piece.data(), piece.size()), in.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) return Unavailable("cannot read ", path);
  return text;
}

Status WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? OkStatus() : Unavailable(path, " cannot be written");
}

}  // namespace sluice
