#include "common/base/byte_size.h"

#include <algorithm>
#include <charconv>

namespace sluice {

StatusOr<uint64_t> ParseBytes(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  const std::string_view rest(parsed.ptr,
                              static_cast<size_t>(end - parsed.ptr));
  const size_t power =
      rest.empty() ? 0 : std::string_view("KMGT").find(rest) + 1;
  const bool fits = parsed.ec == std::errc() && rest.size() <= 1 &&
                    power <= 4 && (power > 0 || rest.empty()) &&
                    value < (uint64_t{1} << (62 - 10 * power));
  if (fits && value > 0) return value << (10 * power);
  return InvalidArgument(
      "bytes must be a positive number, K, M, G or T behind "
      "it or not, got '",
      text, "'");
}

StatusOr<std::vector<uint64_t>> ParseBytesList(std::string_view text) {
  std::vector<uint64_t> sizes;
  if (text.empty()) return sizes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    SLUICE_ASSIGN_OR_RETURN(const uint64_t size,
                            ParseBytes(text.substr(begin, end - begin)));
    sizes.push_back(size);
    begin = end + 1;
  }
  return sizes;
}

}  // namespace sluice
