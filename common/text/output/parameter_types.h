#ifndef SLUICE_COMMON_TEXT_OUTPUT_PARAMETER_TYPES_H_
#define SLUICE_COMMON_TEXT_OUTPUT_PARAMETER_TYPES_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/text/output/output_parser.h"

namespace sluice {

// JSON types that a schema allows, as bits; 0: unknown.
enum JsonTypes : unsigned {
  kAnyType = 0,
  kStringType = 1,
  kNumberType = 2,
  kBooleanType = 4,
  kNullType = 8,
  kObjectType = 16,
  kArrayType = 32,
};

// What a parameter's schema says of its unquoted values.
struct ParameterType {
  unsigned types = kAnyType;
  // Texts that are strings, though each reads as another type that `types`
  // allows: strings of the schema's enum or const, as "1" beside numbers.
  std::set<std::string, std::less<>> strings = {};
};

// A value's place in a schema. Value type; the schema outlives it.
class SchemaPlace {
 public:
  SchemaPlace() = default;  // unknown: any type, and so are places within it
  // `root`: the schema in which references count.
  SchemaPlace(const Json* root, const Json* node) : root_(root), node_(node) {}

  ParameterType Type() const;
  // Returns the place of a member of an object, or of a list's elements.
  SchemaPlace Member(std::string_view name) const;
  SchemaPlace Item() const;

 private:
  const Json* root_ = nullptr;
  const Json* node_ = nullptr;  // null: unknown
};

// The names of a request's functions and the types of their parameters, by
// their schemas. Immutable. An unreadable schema gives no types; one of too
// many steps gives those of its first steps.
class ToolTypes {
 public:
  // `keeps_schemas`: for PlaceOf.
  explicit ToolTypes(const std::vector<OutputTool>& tools,
                     bool keeps_schemas = false);

  bool empty() const { return tools_.empty(); }
  bool Has(std::string_view name) const;
  // Returns the type; of any type for an unknown parameter or function.
  const ParameterType& Of(std::string_view name,
                          std::string_view parameter) const;
  // Returns the name of the parameter at place `index` of its schema; empty
  // beyond the last.
  std::string_view NameAt(std::string_view name, size_t index) const;
  // Returns the parameter's place in its schema.
  SchemaPlace PlaceOf(std::string_view name, std::string_view parameter) const;

 private:
  struct Tool {
    std::unordered_map<std::string, ParameterType> parameters;
    std::vector<std::string> names;      // of the parameters, in order
    std::shared_ptr<const Json> schema;  // null: not kept, or none
  };
  std::unordered_map<std::string, Tool> tools_;
};

// Returns an unquoted value of a model as JSON text. JSON and Python's True,
// False, None, dicts and lists keep their type if `type` allows it; other
// values, and the texts that `type` names, are strings. Beside strings None is
// the only word of Python's that counts, unless the value `is_python`; numbers
// as Python alone spells them count where `type` is known, or `is_python`.
std::string ValueAsJson(std::string_view text, const ParameterType& type,
                        bool is_python = false);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_PARAMETER_TYPES_H_
