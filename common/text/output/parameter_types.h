#ifndef SLUICE_COMMON_TEXT_OUTPUT_PARAMETER_TYPES_H_
#define SLUICE_COMMON_TEXT_OUTPUT_PARAMETER_TYPES_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/text/output/output_parser.h"

namespace sluice {

// JSON types that a schema allows, as bits; 0: nothing is known.
enum JsonTypes : unsigned {
  kAnyType = 0,
  kStringType = 1,
  kNumberType = 2,
  kBooleanType = 4,
  kNullType = 8,
  kObjectType = 16,
  kArrayType = 32,
};

// What the functions of a request are called, and the types of their
// parameters by their schemas. Immutable. A schema that cannot be read
// tells nothing, and one that takes too many steps only what its first ones
// tell.
class ToolTypes {
 public:
  explicit ToolTypes(const std::vector<OutputTool>& tools);

  bool empty() const { return tools_.empty(); }
  bool Has(std::string_view name) const;
  // kAnyType for a parameter or function that is not known.
  unsigned Of(std::string_view name, std::string_view parameter) const;

 private:
  using Parameters = std::unordered_map<std::string, unsigned>;
  std::unordered_map<std::string, Parameters> tools_;
};

// A value that a model wrote without quotes, as JSON text. JSON and Python's
// True, False, None, dicts and lists are taken as such where `types` allow
// them, and all else is a string: `text` as it is.
std::string ValueAsJson(std::string_view text, unsigned types);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_PARAMETER_TYPES_H_
