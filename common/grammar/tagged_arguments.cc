#include "common/grammar/tagged_arguments.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/grammar/bare_value.h"
#include "common/grammar/lark_text.h"
#include "common/text/output/markup_tags.h"
#include "common/text/output/parameter_types.h"

namespace sluice {
namespace {

// A lexer that counts characters beside the tags that a text may not spell has
// a state for each pair: more than these are too many for llguidance's bound on
// a step. A longer text spells less than a tag, or no `<` at all.
constexpr uint64_t kMaxCountedBesideTags = 30;
constexpr uint64_t kMaxCountedBesideStarts = 200;

constexpr int kMaxRootDepth = 8;
// The most properties that a call of any arguments names: optional parts of a
// rule make it dear to compile.
constexpr size_t kMaxNamed = 64;

// Keywords about all properties that a call keeps to, or that say nothing.
constexpr std::array kOfProperties = {"type", "properties", "required",
                                      "additionalProperties", "strict"};
constexpr std::pair<unsigned, const char*> kTypeNames[] = {
    {kStringType, "string"}, {kNumberType, "number"}, {kBooleanType, "boolean"},
    {kNullType, "null"},     {kObjectType, "object"}, {kArrayType, "array"}};
// A parameter that the schema does not name.
constexpr char kOtherName[] = "/[^<>\\s][^<>\\r\\n]{0,63}/";
constexpr char kOtherQuotedName[] = "/[^<>\"\\s][^<>\"\\r\\n]{0,63}/";
constexpr char kOtherElement[] = "/[A-Za-z_][A-Za-z0-9_.\\-]{0,63}/";
constexpr char kNoElement[] = "/invoke|tool_call/";

// What a parameter's tag says of its value, where it tells strings.
enum class ValueKind { kText, kJson, kAny };

// The texts that no bare text may spell, since it could not be read back:
// `tags` as far as their names, and, shorter, as far as their first characters.
struct Never {
  std::vector<std::string> tags;
  std::vector<std::string> starts;
};

Never NeverOf(ToolFormat format) {
  std::vector<std::string_view> all = {
      kToolCall,    kToolCallEnd, kArgKey,      kArgKeyEnd, kArgValue,
      kArgValueEnd, kFunction,    kFunctionEnd, kParameter, kParameterEnd};
  if (MarkupOf(format).shape == CallShape::kParameters) {
    const CallMarkup& markup = MarkupOf(format);
    all = {markup.open,         markup.close,     markup.function,
           markup.function_end, markup.parameter, markup.parameter_end};
  }
  Never never;
  if (MarkupOf(format).shape == CallShape::kElements) {
    return {{std::string(kMiniMaxMark)},
            {std::string(kMiniMaxMark.substr(0, 2))}};
  }
  for (const std::string_view tag : all) {
    const size_t end = tag.find_first_of(" >");
    never.tags.emplace_back(tag.substr(0, end));
    const size_t name = tag.starts_with("</") ? 2 : 1;
    const bool is_ascii = static_cast<unsigned char>(tag[name]) < 0x80;
    // The other one begins with a sign of three bytes.
    never.starts.emplace_back(tag.substr(0, name + (is_ascii ? 1 : 3)));
  }
  const auto unique = [](std::vector<std::string>& texts) {
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  };
  unique(never.starts);
  return never;
}

class TaggedCall {
 public:
  TaggedCall(ToolFormat format, const GrammarTool& tool, std::string rule,
             const Vocabulary& vocabulary, const GrammarTexts& compiler)
      : is_glm_(format == ToolFormat::kGlm),
        has_elements_(MarkupOf(format).shape == CallShape::kElements),
        markup_(MarkupOf(format)),
        never_(NeverOf(format)),
        tool_(tool),
        rule_(std::move(rule)),
        vocabulary_(vocabulary),
        compiler_(compiler),
        types_({{tool.name, tool.parameters}}) {}

  StatusOr<std::string> Rules() {
    std::string body;
    if (!tool_.parameters.empty() && tool_.is_strict) {
      SLUICE_RETURN_IF_ERROR(compiler_.CheckSchema(tool_.parameters).status());
      SLUICE_ASSIGN_OR_RETURN(schema_, ParseJson(tool_.parameters));
      SLUICE_ASSIGN_OR_RETURN(body, Parameters());
    } else if (!tool_.parameters.empty()) {
      SLUICE_ASSIGN_OR_RETURN(schema_, ParseJson(tool_.parameters));
      body = FreeParameters();
    }
    // Calls of a group stand between the tags of all.
    const bool is_grouped = markup_.quotes_names;
    std::string begin = Cat(tool_.name, "\n");
    std::string end = is_grouped ? "" : Tag(markup_.close);
    if (!is_glm_) {
      begin = is_grouped ? Cat(markup_.function, "\"", tool_.name, "\">")
                         : Cat("\n", markup_.function, tool_.name, ">");
      if (!has_elements_) begin += "\n";
      end = Cat(Tag(Cat(markup_.function_end, "\n")), " ", end);
    }
    begin = Tag(begin);
    return Cat(rule_, ": ", begin, body, " ", end, "\n", rules_);
  }

 private:
  StatusOr<std::string> Parameters() {
    SLUICE_RETURN_IF_ERROR(FollowRoot());
    for (const auto& [key, value] : schema_.items()) {
      const bool known =
          IsNote(key) || std::find(kOfProperties.begin(), kOfProperties.end(),
                                   key) != kOfProperties.end();
      if (!known) return CannotSay(Cat("/", key), "is not about one property");
    }
    const Json none = Json::object();
    const Json& properties =
        schema_.contains("properties") ? schema_["properties"] : none;
    const Json required =
        schema_.contains("required") ? schema_["required"] : Json::array();
    for (const Json& name : required) {
      if (!properties.contains(name.get<std::string>())) {
        return CannotSay("/required", Cat("names ", DumpJson(name),
                                          ", which is no property"));
      }
    }
    std::string body;
    int index = 0;
    for (const auto& [name, property] : properties.items()) {
      const std::string part = Cat(rule_, "_", index++);
      const bool is_required =
          std::find(required.begin(), required.end(), name) != required.end();
      if (property == false && !is_required) continue;
      SLUICE_RETURN_IF_ERROR(AddParameter(name, property, part));
      body += Cat(" ", part, is_required ? "" : "?");
    }
    return body;
  }

  // A root that is a reference alone stands for what the reference leads to.
  Status FollowRoot() {
    for (int depth = 0; schema_.is_object() && schema_.contains("$ref");) {
      const Json* target =
          DefinitionOf(schema_, schema_["$ref"].get<std::string>());
      const bool is_alone = std::all_of(
          schema_.items().begin(), schema_.items().end(), [](const auto& item) {
            return item.key() == "$ref" || IsNote(item.key());
          });
      if (target == nullptr || !target->is_object() || !is_alone ||
          ++depth > kMaxRootDepth) {
        return CannotSay("/$ref", "is not about one property");
      }
      Json followed = *target;
      for (const char* place : {"$defs", "definitions"}) {
        if (schema_.contains(place)) followed[place] = schema_[place];
      }
      schema_ = std::move(followed);
    }
    if (schema_.is_object()) return OkStatus();
    return CannotSay("/", "is no object of properties");
  }

  // Any arguments: the schema's properties in their order, of their types, and
  // parameters of other names. Never fails: what no call can say is left out.
  std::string FreeParameters() {
    std::string body;
    const bool has_properties = schema_.is_object() &&
                                schema_.contains("properties") &&
                                schema_["properties"].is_object() &&
                                schema_["properties"].size() <= kMaxNamed;
    if (has_properties) {
      int index = 0;
      for (const auto& [name, property] : schema_["properties"].items()) {
        if (!is_sayable(name) || property == false) continue;
        if (rules_.size() > compiler_.limits().max_bytes / 2) break;
        const std::string part = Cat(rule_, "_", index++);
        const unsigned types = types_.Of(tool_.name, name).types;
        const auto kind = types == kStringType ? ValueKind::kText
                          : types == kAnyType || (types & kStringType) != 0
                              ? ValueKind::kAny
                              : ValueKind::kJson;
        AddRule(part, LarkLiteral(name), kind, FreeValue(name, part));
        body += Cat(" ", part, IsRequired(name) ? "" : "?");
      }
    }
    const bool is_closed = schema_.is_object() &&
                           schema_.contains("additionalProperties") &&
                           schema_["additionalProperties"] == false;
    if (has_properties && is_closed) return body;
    const std::string part = Cat(rule_, "_other");
    std::string name = markup_.quotes_names ? kOtherQuotedName : kOtherName;
    if (has_elements_) {
      name = Cat(absl::AsciiStrToUpper(part), "_NAME");
      rules_ += Cat(name, ": ", kOtherElement, " & ~", kNoElement, "\n");
    }
    AddRule(part, name, ValueKind::kAny, Text(part, kAnyBareText, never_.tags));
    return Cat(body, " ", part, "*");
  }

  bool IsRequired(const std::string& name) const {
    const auto required = schema_.find("required");
    return required != schema_.end() && required->is_array() &&
           std::find(required->begin(), required->end(), name) !=
               required->end();
  }

  // Any value of the property's types.
  std::string FreeValue(const std::string& name, const std::string& part) {
    const unsigned types = types_.Of(tool_.name, name).types;
    if (types == kAnyType || (types & kStringType) != 0) {
      return Text(part, kAnyBareText, never_.tags);
    }
    Json names = Json::array();
    for (const auto& [bit, type] : kTypeNames) {
      if ((types & bit) != 0) names.push_back(type);
    }
    const auto checked =
        compiler_.CheckSchema(DumpJson(Json{{"type", std::move(names)}}));
    if (!checked.ok()) return Text(part, kAnyBareText, never_.tags);
    return Cat("%json ", *checked, " ", Tag(ValueEnd()));
  }

  Status AddParameter(const std::string& name, const Json& property,
                      const std::string& part) {
    const std::string path = Cat("/properties/", name);
    if (!is_sayable(name))
      return CannotSay(path, "has a name with a tag in it");
    SLUICE_ASSIGN_OR_RETURN(const std::string value,
                            Value(name, property, part, path));
    const bool is_text = types_.Of(tool_.name, name).types == kStringType;
    AddRule(part, LarkLiteral(name),
            is_text ? ValueKind::kText : ValueKind::kJson, value);
    // Definitions stand in each property that leads to them.
    if (rules_.size() > compiler_.limits().max_bytes) {
      return InvalidArgument("schema: at `", path,
                             "` the grammar has more than ",
                             compiler_.limits().max_bytes, " bytes");
    }
    return OkStatus();
  }

  // `name`: of the parameter, a literal or a terminal. An element that is any
  // parameter may close with another name: its reader counts tags.
  void AddRule(const std::string& part, const std::string& name, ValueKind kind,
               const std::string& value) {
    const std::string behind =
        has_elements_ ? Cat(name, " \">\"") : std::string("\"\\n\"");
    rules_ +=
        Cat(part, ": ", Before(name, kind), " ", value, " ", behind, "\n");
  }

  // Returns whether the format can spell `name`.
  bool is_sayable(const std::string& name) const {
    const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
    return !name.empty() && name.find_first_of("<>\r\n") == name.npos &&
           !(markup_.quotes_names && name.find('"') != name.npos) &&
           !(has_elements_ && (name.front() == '/' || IsTagOfCalls(name))) &&
           !is_blank(name.front()) && !is_blank(name.back());
  }

  // Returns whether a tag of the element `name` is one that stands around
  // calls: `invoke` and `tool_call`, which kNoElement has, too.
  bool IsTagOfCalls(const std::string& name) const {
    const std::string open = Cat(markup_.parameter, name, ">");
    const std::string close = Cat(markup_.parameter_end, name, ">");
    return open.starts_with(markup_.open) ||
           open.starts_with(markup_.function) || close == markup_.close ||
           close == markup_.function_end;
  }

  // Returns what stands before the value of the parameter `name`, a literal or
  // a terminal.
  std::string Before(const std::string& name, ValueKind kind) const {
    if (is_glm_) {
      return Cat(Tag(kArgKey), " ", name, " ", Tag(kArgKeyEnd), " \"\\n\" ",
                 Tag(kArgValue));
    }
    if (has_elements_) {
      return Cat(Tag(markup_.parameter), " ", name, " \">\"");
    }
    const std::string_view quote = markup_.quotes_names ? "\"" : "";
    const std::string_view end = markup_.has_line_feeds ? ">\n" : ">";
    const std::string begin =
        Cat(LarkLiteral(Cat(markup_.parameter, quote)), " ", name, " ");
    if (!markup_.tells_strings) {
      return Cat(begin, LarkLiteral(Cat(quote, end)));
    }
    const std::string_view told = kind == ValueKind::kText ? "\"true\" "
                                  : kind == ValueKind::kJson
                                      ? "\"false\" "
                                      : "(\"true\" | \"false\") ";
    return Cat(begin, LarkLiteral(Cat(quote, " string=\"")), " ", told,
               LarkLiteral(Cat("\"", end)));
  }

  // Of an element without its name, which AddRule writes.
  std::string ValueEnd() const {
    if (is_glm_) return std::string(kArgValueEnd);
    return Cat(markup_.has_line_feeds ? "\n" : "", markup_.parameter_end);
  }

  // Returns what stands for a value and its closing tag.
  StatusOr<std::string> Value(const std::string& name, const Json& property,
                              const std::string& part,
                              const std::string& path) {
    const ParameterType& type = types_.Of(tool_.name, name);
    if (type.types != kAnyType && (type.types & kStringType) == 0) {
      SLUICE_ASSIGN_OR_RETURN(const std::string schema, SubSchema(property));
      return Cat("%json ", schema, " ", Tag(ValueEnd()));
    }
    SLUICE_ASSIGN_OR_RETURN(
        const BareValue value,
        BareValueOf(schema_, property, path, type, compiler_));
    if (!value.text.empty()) return TextOf(value, part);
    std::string out;
    const auto add = [&out](const std::string& more) {
      out += Cat(out.empty() ? "(" : " | ", more);
    };
    for (const std::string& text : value.literals) add(LarkLiteral(text));
    for (const Json& schema : value.schemas) {
      SLUICE_ASSIGN_OR_RETURN(const std::string checked, SubSchema(schema));
      add("%json " + checked);
    }
    return Cat(out, ") ", Tag(ValueEnd()));
  }

  std::string TextOf(const BareValue& value, const std::string& part) {
    if (value.counted <= kMaxCountedBesideTags) {
      return Text(part, value.text, never_.tags);
    }
    if (value.counted <= kMaxCountedBesideStarts) {
      return Text(part, value.text, never_.starts);
    }
    return Text(part, Cat("(", value.text, ") & /[^\\x3c]*/"), {});
  }

  std::string Text(const std::string& part, const std::string& terminal,
                   const std::vector<std::string>& never) {
    const std::string name = Cat("text", part);
    const std::vector<std::string_view> spelled(never.begin(), never.end());
    rules_ += LarkTextUntil(name, ValueEnd(), spelled, vocabulary_, terminal);
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
  const bool has_elements_;  // a parameter's name is its tag's
  const CallMarkup& markup_;
  const Never never_;
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
