#include "common/grammar/tagged_arguments.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/grammar/lark_text.h"
#include "common/text/output/markup_tags.h"
#include "common/text/output/parameter_types.h"

namespace sluice {
namespace {

// Keywords that say nothing of a value.
constexpr std::array kNotes = {"title",    "description", "default",
                               "examples", "$comment",    "deprecated",
                               "$schema",  "readOnly",    "writeOnly"};

// A bare text that spells markup could not be read back.
constexpr std::string_view kMarkup[] = {
    "<tool_call",  "</tool_call", "<arg_key",   "</arg_key",   "<arg_value",
    "</arg_value", "<function=",  "</function", "<parameter=", "</parameter"};

// A lexer that counts characters beside the tags that a text may not spell has
// a state for each pair: more than these are too many for llguidance's bound on
// a step. A longer text spells less than a tag, or no `<` at all.
constexpr uint64_t kMaxCountedBesideTags = 30;
constexpr uint64_t kMaxCountedBesideStarts = 200;
constexpr std::string_view kMarkupStarts[] = {"<t", "</t", "<a", "</a",
                                              "<f", "</f", "<p", "</p"};

bool IsNote(const std::string& keyword) {
  return std::find(kNotes.begin(), kNotes.end(), keyword) != kNotes.end();
}

class TaggedCall {
 public:
  TaggedCall(ToolFormat format, const GrammarTool& tool, std::string rule,
             const Vocabulary& vocabulary, const GrammarTexts& compiler)
      : is_glm_(format == ToolFormat::kGlm),
        tool_(tool),
        rule_(std::move(rule)),
        vocabulary_(vocabulary),
        compiler_(compiler),
        types_({{tool.name, tool.parameters}}) {}

  StatusOr<std::string> Rules() {
    std::string body;
    if (!tool_.parameters.empty()) {
      SLUICE_RETURN_IF_ERROR(compiler_.CheckSchema(tool_.parameters).status());
      SLUICE_ASSIGN_OR_RETURN(schema_, ParseJson(tool_.parameters));
      SLUICE_ASSIGN_OR_RETURN(body, Parameters());
    }
    const std::string begin =
        LarkLiteral(is_glm_ ? Cat(tool_.name, "\n")
                            : Cat("\n", kFunction, tool_.name, ">\n"));
    std::string end = Tag(kToolCallEnd);
    if (!is_glm_) {
      end = Cat(LarkLiteral(Cat(kFunctionEnd, "\n")), " ", end);
    }
    return Cat(rule_, ": ", begin, body, " ", end, "\n", rules_);
  }

 private:
  Status Fail(const std::string& path, const std::string& what) const {
    return InvalidArgument("schema: `", path, "` ", what,
                           ", which this model's format of calls cannot say");
  }

  StatusOr<std::string> Parameters() {
    if (!schema_.is_object()) return Fail("/", "is no object of properties");
    for (const auto& [key, value] : schema_.items()) {
      const bool known = IsNote(key) || key == "type" || key == "properties" ||
                         key == "required" || key == "additionalProperties" ||
                         key == "$defs" || key == "definitions" ||
                         key == "strict" || key == "$id" || key == "id";
      if (!known) {
        return Fail(Cat("/", key), "is not about one property");
      }
    }
    const Json none = Json::object();
    const Json& properties =
        schema_.contains("properties") ? schema_["properties"] : none;
    const Json required =
        schema_.contains("required") ? schema_["required"] : Json::array();
    for (const Json& name : required) {
      if (!properties.contains(name.get<std::string>())) {
        return Fail("/required",
                    "names " + name.dump() + ", which is no property");
      }
    }
    std::string body;
    int index = 0;
    for (const auto& [name, property] : properties.items()) {
      const std::string part = Cat(rule_, "_", index++);
      SLUICE_RETURN_IF_ERROR(AddParameter(name, property, part));
      const bool is_required =
          std::find(required.begin(), required.end(), name) != required.end();
      body += Cat(" ", part, is_required ? "" : "?");
    }
    return body;
  }

  Status AddParameter(const std::string& name, const Json& property,
                      const std::string& part) {
    const std::string path = Cat("/properties/", name);
    if (name.empty() || name.find_first_of("<>\n") != name.npos) {
      return Fail(path, "has a name with a tag in it");
    }
    const std::string before =
        is_glm_ ? Cat(Tag(kArgKey), " ", LarkLiteral(name), " ",
                      Tag(kArgKeyEnd), " \"\\n\" ", Tag(kArgValue))
                : LarkLiteral(Cat(kParameter, name, ">\n"));
    const std::string end =
        is_glm_ ? std::string(kArgValueEnd) : Cat("\n", kParameterEnd);
    SLUICE_ASSIGN_OR_RETURN(const std::string value,
                            Value(name, property, part, end, path));
    rules_ += Cat(part, ": ", before, " ", value, " \"\\n\"\n");
    // Definitions stand in each property that leads to them.
    if (rules_.size() > compiler_.limits().max_bytes) {
      return InvalidArgument("schema: at `", path,
                             "` the grammar has more than ",
                             compiler_.limits().max_bytes, " bytes");
    }
    return OkStatus();
  }

  // Returns what stands for a value and its closing tag.
  StatusOr<std::string> Value(const std::string& name, const Json& property,
                              const std::string& part, const std::string& end,
                              const std::string& path) {
    const unsigned types = types_.Of(tool_.name, name);
    if (types != kAnyType && (types & kStringType) == 0) {
      SLUICE_ASSIGN_OR_RETURN(const std::string schema, SubSchema(property));
      return Cat("%json ", schema, " ", Tag(end));
    }
    if (!tool_.is_strict) return Text(part, end, "(?s:.*)");
    if (!property.is_object()) return Text(part, end, "(?s:.*)");  // true
    if (property.contains("$ref")) {
      return Fail(path + "/$ref", "leads to what may be a string");
    }
    for (const char* key : {"const", "enum"}) {
      if (property.contains(key)) {
        return Values(property[key], key == std::string("enum"), end);
      }
    }
    if (types == kStringType) return TextOf(property, part, end, path);
    // Of several types: any text is one of them, if nothing else is said.
    if (!IsPlain(property)) {
      return Fail(path, "is a string or another type, with further keywords");
    }
    return Text(part, end, "(?s:.*)");
  }

  // True if nothing but types are named.
  static bool IsPlain(const Json& schema) {
    if (!schema.is_object()) return schema.is_boolean() && schema.get<bool>();
    return std::all_of(
        schema.items().begin(), schema.items().end(), [](const auto& item) {
          if (IsNote(item.key()) || item.key() == "type") return true;
          return (item.key() == "anyOf" || item.key() == "oneOf") &&
                 std::all_of(item.value().begin(), item.value().end(), IsPlain);
        });
  }

  // A string's keywords as a regular expression of its bare text.
  StatusOr<std::string> TextOf(const Json& property, const std::string& part,
                               const std::string& end,
                               const std::string& path) {
    const auto length = [&](const char* name) -> uint64_t {
      return property.contains(name) ? property[name].get<uint64_t>() : 0;
    };
    for (const auto& [key, value] : property.items()) {
      if (IsNote(key) || key == "type") continue;
      if (key != "minLength" && key != "maxLength") {
        return Fail(path + "/" + key, "is about a string's characters");
      }
    }
    const bool has_most = property.contains("maxLength");
    const uint64_t counted = std::max(length("minLength"), length("maxLength"));
    if (counted == 0 && !has_most) return Text(part, end, "(?s:.*)");
    const std::string count =
        Cat("{", std::to_string(length("minLength")), ",",
            has_most ? std::to_string(length("maxLength")) : "", "}");
    if (counted <= kMaxCountedBesideTags) {
      return Text(part, end, "(?s:.)" + count);
    }
    if (counted <= kMaxCountedBesideStarts) {
      return Text(part, end, "(?s:.)" + count, kMarkupStarts);
    }
    return Text(part, end, "[^\\x3c]" + count, {});
  }

  StatusOr<std::string> Values(const Json& values, bool is_list,
                               const std::string& end) {
    const Json all = is_list ? values : Json::array({values});
    std::string out;
    for (const Json& value : all) {
      out += Cat(out.empty() ? "(" : " | ",
                 LarkLiteral(value.is_string() ? value.get<std::string>()
                                               : value.dump()));
    }
    return Cat(out, ") ", Tag(end));
  }

  std::string Text(const std::string& part, const std::string& end,
                   const std::string& regex,
                   std::span<const std::string_view> never = kMarkup) {
    const std::string name = Cat("text", part);
    rules_ += LarkTextUntil(name, end, never, vocabulary_, regex);
    return name;
  }

  // A property by itself, with the definitions that its references lead to.
  StatusOr<std::string> SubSchema(const Json& property) {
    if (!property.is_object()) return compiler_.CheckSchema(property.dump());
    Json whole = property;
    // References count from the root of all properties.
    whole.erase("$defs");
    whole.erase("definitions");
    std::vector<const Json*> open = {&property};
    while (!open.empty()) {
      const Json* const part = open.back();
      open.pop_back();
      if (!part->is_structured()) continue;
      for (const auto& [key, value] : part->items()) {
        if (key == "$ref" && value.is_string() && part->is_object()) {
          const Json* found = AddDefinition(value, whole);
          if (found != nullptr) open.push_back(found);
        } else {
          open.push_back(&value);
        }
      }
    }
    return compiler_.CheckSchema(whole.dump());
  }

  // Copies the definition that `reference` names into `whole`. Returns null
  // where it is there, or is none of the schema's.
  const Json* AddDefinition(const std::string& reference, Json& whole) const {
    for (const char* place : {"$defs", "definitions"}) {
      const std::string before = Cat("#/", place, "/");
      if (!reference.starts_with(before) || !schema_.contains(place)) continue;
      std::string name = reference.substr(before.size());
      name.resize(std::min(name.find('/'), name.size()));
      const auto found = schema_[place].find(name);
      if (found == schema_[place].end()) {
        whole[place] = schema_[place];  // a name with escapes
        return nullptr;
      }
      Json& into = whole[place];
      if (into.contains(name)) return nullptr;
      into[name] = *found;
      return &*found;
    }
    return nullptr;
  }

  std::string Tag(std::string_view tag) const {
    return LarkTag(tag, vocabulary_);
  }

  const bool is_glm_;
  const GrammarTool& tool_;
  const std::string rule_;
  const Vocabulary& vocabulary_;
  const GrammarTexts& compiler_;
  const ToolTypes types_;
  Json schema_;
  std::string rules_;
};

}  // namespace

StatusOr<std::string> TaggedCallRules(ToolFormat format,
                                      const GrammarTool& tool,
                                      const std::string& rule,
                                      const Vocabulary& vocabulary,
                                      const GrammarTexts& compiler) {
  return TaggedCall(format, tool, rule, vocabulary, compiler).Rules();
}

}  // namespace sluice
