#ifndef SLUICE_COMMON_BASE_JSON_DIFFERENCE_H_
#define SLUICE_COMMON_BASE_JSON_DIFFERENCE_H_

#include <string>
#include <string_view>

namespace sluice {

// Returns the first keys that differ in the texts of two JSON objects, for
// people: "size is 7 here and 8 there; name is ..". Empty if none differs, and
// for a text that is no object.
std::string DifferenceOfObjects(std::string_view here, std::string_view there);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_JSON_DIFFERENCE_H_
