#include "common/text/output/parameter_types.h"

#include <optional>
#include <utility>

#include "common/base/json.h"
#include "common/text/output/event_writer.h"
#include "common/text/output/python_literal.h"

namespace sluice {
namespace {

constexpr int kMaxSchemaDepth = 8;
// The most schemas, type names and values read per function.
constexpr size_t kMaxSchemaSteps = 4096;
// The same of one place within a parameter's schema.
constexpr size_t kMaxPlaceSteps = 256;

unsigned TypeByName(const std::string& name) {
  if (name == "string") return kStringType;
  if (name == "number" || name == "integer") return kNumberType;
  if (name == "boolean") return kBooleanType;
  if (name == "null") return kNullType;
  if (name == "object") return kObjectType;
  if (name == "array") return kArrayType;
  return kAnyType;
}

unsigned TypeOfValue(const Json& value) {
  if (value.is_string()) return kStringType;
  if (value.is_number()) return kNumberType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_null()) return kNullType;
  return value.is_object() ? kObjectType : kArrayType;
}

const Json* Member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// Returns the target of "$ref" in `root`: "#/$defs/Name" or
// "#/definitions/Name".
const Json* Resolve(const Json& root, const std::string& ref) {
  for (const char* place : {"$defs", "definitions"}) {
    const std::string prefix = std::string("#/") + place + "/";
    const Json* named = Member(root, place);
    if (named != nullptr && ref.starts_with(prefix)) {
      return Member(*named, ref.substr(prefix.size()).c_str());
    }
  }
  return nullptr;
}

// Returns what a schema that is a reference alone leads to; else the schema.
const Json& RootOf(const Json& schema) {
  const Json* root = &schema;
  for (int depth = 0; depth < kMaxSchemaDepth; ++depth) {
    const Json* ref = Member(*root, "$ref");
    if (ref == nullptr || !ref->is_string()) break;
    const Json* target = Resolve(schema, ref->get_ref<const std::string&>());
    if (target == nullptr) break;
    root = target;
  }
  return *root;
}

// Reads the types of one function's parameters, up to a number of steps:
// recursive definitions can make a short schema a tree of millions.
class SchemaReader {
 public:
  explicit SchemaReader(const Json& root, size_t max_steps = kMaxSchemaSteps)
      : root_(root), steps_left_(max_steps) {}

  ParameterType ReadParameter(const Json& schema) {
    ParameterType out{Read(schema)};
    AddStrings(schema, out, 0);
    return out;
  }

 private:
  unsigned Read(const Json& schema, int depth = 0) {
    if (!schema.is_object() || depth > kMaxSchemaDepth || !Spend(1)) {
      return kAnyType;
    }
    if (const Json* ref = Member(schema, "$ref"); ref && ref->is_string()) {
      const Json* target = Resolve(root_, ref->get_ref<const std::string&>());
      return target == nullptr ? kAnyType : Read(*target, depth + 1);
    }
    if (const Json* type = Member(schema, "type"); type != nullptr) {
      if (type->is_string()) return TypeByName(type->get<std::string>());
      if (type->is_array()) return ReadNames(*type);
    }
    if (const Json* one = Member(schema, "const"); one != nullptr) {
      return TypeOfValue(*one);
    }
    if (const Json* values = Member(schema, "enum");
        values != nullptr && values->is_array()) {
      return ReadValues(*values);
    }
    return ReadChoices(schema, depth);
  }

  // Adds the strings of `schema`'s enum or const that read as another type.
  void AddStrings(const Json& schema, ParameterType& out, int depth) {
    if ((out.types & kStringType) == 0 || out.types == kStringType) return;
    if (depth > kMaxSchemaDepth) return;
    if (const Json* ref = Member(schema, "$ref"); ref && ref->is_string()) {
      const Json* target = Resolve(root_, ref->get_ref<const std::string&>());
      if (target != nullptr) AddStrings(*target, out, depth + 1);
      return;
    }
    if (const Json* one = Member(schema, "const"); one != nullptr) {
      AddStringsOf(Json::array({*one}), out);
    } else if (const Json* values = Member(schema, "enum");
               values != nullptr && values->is_array()) {
      AddStringsOf(*values, out);
    }
  }

  void AddStringsOf(const Json& values, ParameterType& out) {
    if (!Spend(values.size())) return;
    std::set<std::string> others;  // texts of values that are no strings
    for (const Json& value : values) {
      if (!value.is_string()) others.insert(DumpJson(value));
    }
    std::set<std::string, std::less<>> strings;
    for (const Json& value : values) {
      if (!value.is_string()) continue;
      const auto& text = value.get_ref<const std::string&>();
      const bool is_other = ValueAsJson(text, out).front() != '"';
      if (is_other && !others.contains(text)) strings.insert(text);
    }
    out.strings = std::move(strings);
  }

  // False if fewer steps are left.
  bool Spend(size_t steps) {
    const bool enough = steps <= steps_left_;
    steps_left_ -= enough ? steps : steps_left_;
    return enough;
  }

  unsigned ReadNames(const Json& names) {
    if (!Spend(names.size())) return kAnyType;
    unsigned types = kAnyType;
    for (const Json& name : names) {
      if (name.is_string()) types |= TypeByName(name.get<std::string>());
    }
    return types;
  }

  unsigned ReadValues(const Json& values) {
    if (!Spend(values.size())) return kAnyType;
    unsigned types = kAnyType;
    for (const Json& value : values) types |= TypeOfValue(value);
    return types;
  }

  unsigned ReadChoices(const Json& schema, int depth) {
    unsigned types = kAnyType;
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const Json* choices = Member(schema, key);
      if (choices == nullptr || !choices->is_array()) continue;
      for (const Json& choice : *choices) {
        const unsigned some = Read(choice, depth + 1);
        if (some == kAnyType) return kAnyType;
        types |= some;
      }
    }
    if (types != kAnyType) return types;
    if (Member(schema, "properties") != nullptr) return kObjectType;
    return Member(schema, "items") != nullptr ? kArrayType : kAnyType;
  }

  const Json& root_;
  size_t steps_left_;
};

// Finds the schema of a part of a value, in `node` or in what it leads to.
class PartFinder {
 public:
  explicit PartFinder(const Json& root) : root_(root) {}

  // `name`: of the member; null: the elements of a list.
  const Json* Find(const Json& node, const std::string* name, int depth = 0) {
    if (steps_left_ == 0) return nullptr;
    --steps_left_;
    if (!node.is_object() || depth > kMaxSchemaDepth) return nullptr;
    if (const Json* ref = Member(node, "$ref"); ref && ref->is_string()) {
      const Json* target = Resolve(root_, ref->get_ref<const std::string&>());
      return target == nullptr ? nullptr : Find(*target, name, depth + 1);
    }
    const Json* part =
        name == nullptr ? Member(node, "items") : FindMember(node, *name);
    if (part != nullptr && part->is_object()) return part;
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const Json* choices = Member(node, key);
      if (choices == nullptr || !choices->is_array()) continue;
      for (const Json& choice : *choices) {
        const Json* found = Find(choice, name, depth + 1);
        if (found != nullptr || steps_left_ == 0) return found;
      }
    }
    return nullptr;
  }

 private:
  static const Json* FindMember(const Json& node, const std::string& name) {
    const Json* properties = Member(node, "properties");
    const Json* member =
        properties == nullptr ? nullptr : Member(*properties, name.c_str());
    return member == nullptr ? Member(node, "additionalProperties") : member;
  }

  const Json& root_;
  size_t steps_left_ = kMaxPlaceSteps;
};

bool Allowed(const Json& value, unsigned types) {
  if (types == kAnyType) return true;
  // Without a string type any JSON is nearer than a string.
  if ((types & kStringType) == 0) return true;
  return !value.is_string() && (TypeOfValue(value) & types) != 0;
}

// Returns whether a bare text may be a literal of Python's. Where any type will
// do, 007, +49171 and 1_000 are texts and no numbers.
bool MayBeLiteral(std::string_view text, unsigned types) {
  constexpr std::string_view kStarts = "[{\"'";
  if (types != kAnyType || text.empty()) return true;
  return kStarts.find(text.front()) != kStarts.npos || text == "True" ||
         text == "False" || text == "None";
}

std::optional<std::string> AllowedJson(std::string_view text, unsigned types) {
  const auto value = ParseJson(text);
  if (!value.ok() || !Allowed(*value, types)) return std::nullopt;
  return std::string(text);
}

}  // namespace

ParameterType SchemaPlace::Type() const {
  if (node_ == nullptr) return {};
  return SchemaReader(*root_, kMaxPlaceSteps).ReadParameter(*node_);
}

SchemaPlace SchemaPlace::Member(std::string_view name) const {
  if (node_ == nullptr) return {};
  const std::string key(name);
  return {root_, PartFinder(*root_).Find(*node_, &key)};
}

SchemaPlace SchemaPlace::Item() const {
  if (node_ == nullptr) return {};
  return {root_, PartFinder(*root_).Find(*node_, nullptr)};
}

ToolTypes::ToolTypes(const std::vector<OutputTool>& tools, bool keeps_schemas) {
  for (const OutputTool& tool : tools) {
    Tool& known = tools_[tool.name];
    auto schema = ParseJson(tool.parameters);
    if (!schema.ok()) continue;
    const Json* properties = Member(RootOf(*schema), "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    SchemaReader reader(*schema);
    for (const auto& [name, property] : properties->items()) {
      known.parameters[name] = reader.ReadParameter(property);
      known.names.push_back(name);
    }
    if (keeps_schemas) {
      known.schema = std::make_shared<const Json>(*std::move(schema));
    }
  }
}

bool ToolTypes::Has(std::string_view name) const {
  return tools_.contains(std::string(name));
}

const ParameterType& ToolTypes::Of(std::string_view name,
                                   std::string_view parameter) const {
  static const ParameterType kAny;
  const auto tool = tools_.find(std::string(name));
  if (tool == tools_.end()) return kAny;
  const auto& parameters = tool->second.parameters;
  const auto found = parameters.find(std::string(parameter));
  return found == parameters.end() ? kAny : found->second;
}

std::string_view ToolTypes::NameAt(std::string_view name, size_t index) const {
  const auto tool = tools_.find(std::string(name));
  if (tool == tools_.end() || index >= tool->second.names.size()) return "";
  return tool->second.names[index];
}

SchemaPlace ToolTypes::PlaceOf(std::string_view name,
                               std::string_view parameter) const {
  const auto tool = tools_.find(std::string(name));
  if (tool == tools_.end() || tool->second.schema == nullptr) return {};
  const Json& root = *tool->second.schema;
  return SchemaPlace(&root, &root).Member(parameter);
}

std::string ValueAsJson(std::string_view text, const ParameterType& type,
                        bool is_python) {
  const unsigned types = type.types;
  const std::string_view trimmed = TrimBlanks(text);
  const bool may_be_null = is_python || (types & kNullType) != 0;
  if (!type.strings.contains(text)) {
    if (may_be_null && trimmed == "None") return "null";
    if (types != kStringType) {
      if (auto json = AllowedJson(trimmed, types)) return *std::move(json);
    }
    const bool has_strings = (types & kStringType) != 0;
    const bool is_bare = !has_strings && MayBeLiteral(trimmed, types);
    if (is_bare || (is_python && types != kStringType)) {
      const auto literal = PythonLiteralAsJson(trimmed);
      auto json = AllowedJson(literal.value_or(""), types);
      if (json) return *std::move(json);
    }
  }
  std::string json = "\"";
  AppendJsonEscaped(text, json);
  return json + "\"";
}

}  // namespace sluice
