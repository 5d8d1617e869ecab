#ifndef SLUICE_COMMON_BASE_CAT_H_
#define SLUICE_COMMON_BASE_CAT_H_

#include <concepts>
#include <sstream>
#include <string>
#include <string_view>

namespace sluice {

// Joins its arguments into one string, or throws std::bad_alloc. Takes
// std::string_view, which the packaged absl::StrCat (whose string_view is a
// type of its own) does not.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // else too little memory cuts the text
  out.precision(9);
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_CAT_H_
