#ifndef SLUICE_COMMON_BASE_JSON_VALUES_H_
#define SLUICE_COMMON_BASE_JSON_VALUES_H_

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// The library's JSON values, which end without memory: its own destructor of a
// list or an object takes memory for all values in it, to spare the stack, and
// ends the process where there is none. These take stack alone: every text that
// is parsed has a bounded depth (JsonLimits).
namespace sluice {

// Keys are sorted: an object of a whole vocabulary is searched. A type of its
// own, since the library's header uses nlohmann::json, and with it its
// destructor.
using SortedJson =
    nlohmann::basic_json<std::map, std::vector, std::string, bool,
                         long long,            // NOLINT(google-runtime-int)
                         unsigned long long>;  // NOLINT(google-runtime-int)

// Ends and frees what a value has beyond itself; null where it had no memory to
// begin.
template <typename T>
void EndJsonPart(T* part) {
  if (part == nullptr) return;
  std::destroy_at(part);
  std::allocator<T>().deallocate(part, 1);
}

}  // namespace sluice

template <>
inline void nlohmann::ordered_json::json_value::destroy(value_t type) {
  if (type == value_t::array) sluice::EndJsonPart(array);
  if (type == value_t::object) sluice::EndJsonPart(object);
  if (type == value_t::string) sluice::EndJsonPart(string);
  if (type == value_t::binary) sluice::EndJsonPart(binary);
}
template <>
inline void sluice::SortedJson::json_value::destroy(value_t type) {
  if (type == value_t::array) sluice::EndJsonPart(array);
  if (type == value_t::object) sluice::EndJsonPart(object);
  if (type == value_t::string) sluice::EndJsonPart(string);
  if (type == value_t::binary) sluice::EndJsonPart(binary);
}

#endif  // SLUICE_COMMON_BASE_JSON_VALUES_H_
