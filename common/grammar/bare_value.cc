#include "common/grammar/bare_value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "common/base/cat.h"
#include "common/grammar/compile_text.h"
#include "common/grammar/lark_text.h"

namespace sluice {
namespace {

constexpr std::array kNotes = {
    "title",   "description", "default",    "examples",  "$comment",
    "$schema", "deprecated",  "readOnly",   "writeOnly", "$defs",
    "$id",     "id",          "definitions"};

// References and branches lead at most as deep as the reader of types goes.
constexpr int kMaxDepth = 8;

constexpr std::string_view kInteger = "/-?(0|[1-9][0-9]*)/";
constexpr std::string_view kNumber =
    "/-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?/";
// What the reader of values takes for a number.
constexpr std::string_view kReadsAsNumber =
    "/\\s*-?[0-9]+(\\.[0-9]+)?([eE][-+]?[0-9]+)?\\s*/";

constexpr std::array kOfStrings = {"minLength", "maxLength", "pattern",
                                   "format"};

size_t NumCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string BareText(const Json& value) {
  return value.is_string() ? value.get<std::string>() : DumpJson(value);
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (value.is_number_integer()) return true;
  return value.is_number() && std::trunc(value.get<double>()) == value;
}

// The names of the types that `schema` itself allows; empty: any.
std::vector<std::string> TypeNames(const Json& schema) {
  const auto found = schema.find("type");
  if (found == schema.end()) return {};
  if (found->is_string()) return {found->get<std::string>()};
  return found->get<std::vector<std::string>>();
}

uint64_t LengthOf(const Json& schema, const char* name, uint64_t otherwise) {
  const auto found = schema.find(name);
  if (found == schema.end()) return otherwise;
  // As the schema's check: beyond 32 bits no limit binds an answer.
  const auto count = found->get<double>();
  return count > UINT32_MAX ? otherwise : static_cast<uint64_t>(count);
}

// Gathers the branches of one property's schema.
class Branches {
 public:
  Branches(const Json& root, const ParameterType& type,
           const GrammarTexts& compiler)
      : root_(root), type_(type), compiler_(compiler) {}

  Status Add(const Json& schema, const std::string& path, int depth = 0) {
    if (depth > kMaxDepth) return CannotSay(path, "leads too deep");
    if (schema.is_boolean()) {
      if (schema.get<bool>()) return AddAnything();
      return OkStatus();  // no value at all
    }
    if (schema.contains("$ref")) return AddReference(schema, path, depth);
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      if (schema.contains(key)) return AddChoices(schema, key, path, depth);
    }
    if (schema.contains("const")) {
      return AddValues(schema, Json::array({schema["const"]}), "const", path);
    }
    if (schema.contains("enum")) {
      return AddValues(schema, schema["enum"], "enum", path);
    }
    return AddTypes(schema, path);
  }

  StatusOr<BareValue> Join(const std::string& path) {
    BareValue out;
    if (texts_.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckLiterals(path));
      for (const auto& [text, value] : literals_) out.literals.push_back(text);
      out.schemas = std::move(schemas_);
      if (out.literals.empty() && out.schemas.empty()) {
        return CannotSay(path, "allows no value");
      }
      return out;
    }
    if (is_anything_) {
      out.text = kAnyBareText;
      return out;
    }
    SLUICE_ASSIGN_OR_RETURN(const std::string others, OtherTexts(path));
    for (const std::string& text : texts_) {
      out.text += Cat(out.text.empty() ? "" : " | ", "(", text, ")");
    }
    if (!others.empty()) {
      const bool counts_whole = others.find(kInteger) != others.npos;
      // 1.5 would be read as a number, and be no integer.
      out.text = counts_whole ? Cat("((", out.text, ") & ~", kReadsAsNumber,
                                    ") | ", others)
                              : Cat(out.text, " | ", others);
    }
    out.text = Cat("(", out.text, ")");
    out.counted = counted_;
    return out;
  }

 private:
  Status AddAnything() {
    is_anything_ = true;
    texts_.push_back(kAnyBareText);
    return OkStatus();
  }

  // Refuses keywords beside `key` that are not for people.
  static Status CheckAlone(const Json& schema, const std::string& key,
                           const std::string& path) {
    for (const auto& [name, value] : schema.items()) {
      if (name != key && !IsNote(name)) {
        return CannotSay(Cat(path, "/", name),
                         Cat("stands beside `", key, "`"));
      }
    }
    return OkStatus();
  }

  Status AddReference(const Json& schema, const std::string& path, int depth) {
    SLUICE_RETURN_IF_ERROR(CheckAlone(schema, "$ref", path));
    const Json* target = DefinitionOf(root_, schema["$ref"].get<std::string>());
    if (target == nullptr) {
      return CannotSay(path + "/$ref", "leads to what may be a string");
    }
    return Add(*target, path + "/$ref", depth + 1);
  }

  Status AddChoices(const Json& schema, const std::string& key,
                    const std::string& path, int depth) {
    SLUICE_RETURN_IF_ERROR(CheckAlone(schema, key, path));
    const Json& choices = schema[key];
    if (key == "allOf" && choices.size() != 1) {
      return CannotSay(Cat(path, "/allOf"), "joins schemas of a string");
    }
    const size_t before = texts_.size();
    for (size_t i = 0; i < choices.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(
          Add(choices[i], Cat(path, "/", key, "/", i), depth + 1));
    }
    // Two strings of which both may fit are none of `oneOf`.
    if (key == "oneOf" && texts_.size() - before > 1) {
      return CannotSay(Cat(path, "/oneOf"), "has two branches of strings");
    }
    return OkStatus();
  }

  Status AddValues(const Json& schema, const Json& values,
                   const std::string& key, const std::string& path) {
    for (const auto& [name, value] : schema.items()) {
      if (name == key || name == "type" || name == "minLength" ||
          name == "maxLength" || IsNote(name)) {
        continue;
      }
      return CannotSay(Cat(path, "/", name), Cat("stands beside `", key, "`"));
    }
    const std::vector<std::string> types = TypeNames(schema);
    const uint64_t least = LengthOf(schema, "minLength", 0);
    const uint64_t most = LengthOf(schema, "maxLength", UINT64_MAX);
    for (const Json& value : values) {
      const bool is_typed =
          types.empty() ||
          std::any_of(types.begin(), types.end(),
                      [&](const auto& type) { return IsOfType(value, type); });
      if (!is_typed) continue;
      if (value.is_string()) {
        const size_t length =
            NumCharacters(value.get_ref<const std::string&>());
        if (length < least || length > most) continue;
      }
      const auto [found, is_new] = literals_.emplace(BareText(value), value);
      if (!is_new && found->second != value) {
        return CannotSay(Cat(path, "/", key),
                         Cat("has two values with the text ", found->first));
      }
    }
    return OkStatus();
  }

  // Each type of `schema` is a branch.
  Status AddTypes(const Json& schema, const std::string& path) {
    std::vector<std::string> types = TypeNames(schema);
    if (types.empty()) {
      for (const auto& [name, value] : schema.items()) {
        if (!IsNote(name)) {
          return CannotSay(Cat(path, "/", name), "has no type beside it");
        }
      }
      return AddAnything();
    }
    const auto string = std::find(types.begin(), types.end(), "string");
    if (string == types.end()) {
      schemas_.push_back(schema);
      return OkStatus();
    }
    types.erase(string);
    Json rest = schema;
    for (const char* key : kOfStrings) rest.erase(key);
    if (types.empty()) {
      for (const auto& [name, value] : rest.items()) {
        if (name != "type" && !IsNote(name)) {
          return CannotSay(Cat(path, "/", name), "is about no bare string");
        }
      }
    } else {
      rest["type"] = types;
      schemas_.push_back(std::move(rest));
    }
    return AddString(schema, path);
  }

  // A string's keywords as a terminal of its bare text.
  Status AddString(const Json& schema, const std::string& path) {
    std::string text;
    const auto add = [&text](const std::string& more) {
      text += Cat(text.empty() ? "" : " & ", more);
    };
    if (schema.contains("minLength") || schema.contains("maxLength")) {
      const uint64_t least = LengthOf(schema, "minLength", 0);
      uint64_t most = LengthOf(schema, "maxLength", UINT64_MAX);
      const bool has_most = most != UINT64_MAX;
      if (!has_most) most = 0;
      if (has_most && most < least) {
        return CannotSay(Cat(path, "/maxLength"), "is below minLength");
      }
      counted_ = std::max({counted_, least, most});
      add(Cat("/(?s:.){", std::to_string(least), ",",
              has_most ? std::to_string(most) : "", "}/"));
    }
    if (schema.contains("pattern") || schema.contains("format")) {
      SLUICE_ASSIGN_OR_RETURN(
          const std::string held,
          StringTerminalText(DumpJson(schema), compiler_.limits()));
      if (!held.empty()) add(held);
    }
    texts_.push_back(text.empty() ? kAnyBareText : std::move(text));
    return OkStatus();
  }

  // A text that reads as a value of another type is not the string it spells.
  Status CheckLiterals(const std::string& path) const {
    for (const auto& [text, value] : literals_) {
      const auto read = ParseJson(ValueAsJson(text, type_));
      if (!read.ok() || *read != value) {
        return CannotSay(path, Cat("has a string that reads as another type: ",
                                   DumpJson(value)));
      }
    }
    return OkStatus();
  }

  // Terminals, joined by |, of what stands beside a text of any characters:
  // plain scalars and listed values. Other values could be spelled by the text
  // and not fit.
  StatusOr<std::string> OtherTexts(const std::string& path) const {
    std::string out;
    const auto add = [&out](std::string_view more) {
      out += Cat(out.empty() ? "" : " | ", more);
    };
    for (const auto& [text, value] : literals_) {
      if (!value.is_string() && !value.is_null()) {
        return CannotSay(path, "is a string or one value of another type");
      }
      if (!text.empty()) add(Cat("/", EscapedRegex(text), "/"));
    }
    SLUICE_RETURN_IF_ERROR(CheckLiterals(path));
    for (const Json& schema : schemas_) {
      for (const auto& [name, value] : schema.items()) {
        if (name != "type" && !IsNote(name)) {
          return CannotSay(Cat(path, "/", name),
                           "is about a value that may be a string");
        }
      }
      for (const std::string& type : TypeNames(schema)) {
        if (type == "integer" && IsAllowed("number")) continue;
        if (type == "integer") add(kInteger);
        if (type == "number") add(kNumber);
        if (type == "boolean") add("/true|false/");
        if (type == "null") add("/null/");
        const bool is_open = type == "object" || type == "array";
        if (is_open && !HasFreeText()) {
          return CannotSay(path, Cat("is an ", type, " or a held string"));
        }
      }
    }
    return out;
  }

  bool IsAllowed(const std::string& wanted) const {
    return std::any_of(
        schemas_.begin(), schemas_.end(), [&](const Json& schema) {
          const auto types = TypeNames(schema);
          return std::find(types.begin(), types.end(), wanted) != types.end();
        });
  }

  bool HasFreeText() const {
    return std::find(texts_.begin(), texts_.end(), kAnyBareText) !=
           texts_.end();
  }

  const Json& root_;
  const ParameterType& type_;
  const GrammarTexts& compiler_;
  bool is_anything_ = false;
  std::map<std::string, Json> literals_;  // by text
  std::vector<Json> schemas_;             // none of a string
  std::vector<std::string> texts_;        // terminals
  uint64_t counted_ = 0;
};

}  // namespace

bool IsNote(const std::string& keyword) {
  return std::find(kNotes.begin(), kNotes.end(), keyword) != kNotes.end();
}

Status CannotSay(const std::string& path, const std::string& what) {
  return InvalidArgument("schema: `", path, "` ", what,
                         ", which this model's format of calls cannot say");
}

const Json* DefinitionOf(const Json& root, const std::string& reference) {
  for (const char* place : {"$defs", "definitions"}) {
    const std::string before = Cat("#/", place, "/");
    if (!reference.starts_with(before) || !root.contains(place)) continue;
    const auto found = root[place].find(reference.substr(before.size()));
    if (found != root[place].end()) return &*found;
  }
  return nullptr;
}

StatusOr<BareValue> BareValueOf(const Json& root, const Json& property,
                                const std::string& path,
                                const ParameterType& type,
                                const GrammarTexts& compiler) {
  Branches branches(root, type, compiler);
  SLUICE_RETURN_IF_ERROR(branches.Add(property, path));
  return branches.Join(path);
}

}  // namespace sluice
