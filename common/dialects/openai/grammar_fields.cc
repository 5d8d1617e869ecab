#include "common/dialects/openai/grammar_fields.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/json.h"

namespace sluice::openai {
namespace {

using Kind = GrammarSpec::Kind;

// OpenAI's limit for the name of a format.
constexpr size_t kMaxFormatNameBytes = 64;

bool IsFormatName(std::string_view name) {
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxFormatNameBytes &&
         std::all_of(name.begin(), name.end(), plain);
}

// Collects the one grammar of a request.
class GrammarReader {
 public:
  explicit GrammarReader(serving::FieldReader& in) : in_(in) {}

  std::optional<serving::GrammarField> Take() && { return std::move(found_); }

  void Add(std::string_view name, Kind kind, std::string text = "") {
    if (found_) {
      in_.Refuse(name, "cannot go with ", found_->name,
                 ": an answer keeps to one grammar");
      return;
    }
    found_ = {std::string(name), {kind, std::move(text)}};
  }

  // A schema is an object, true or false; with `as_text` also its text.
  void AddSchema(std::string_view name, const Json& schema, bool as_text) {
    if (schema.is_object() || schema.is_boolean()) {
      Add(name, Kind::kJsonSchema, DumpJson(schema));
    } else if (as_text && schema.is_string()) {
      AddText(name, schema, Kind::kJsonSchema);
    } else {
      in_.Refuse(name, "must be a JSON schema, an object",
                 as_text ? " or its text" : "", ", got ",
                 serving::Describe(schema));
    }
  }

  void AddText(std::string_view name, const Json& text, Kind kind) {
    if (!text.is_string()) {
      in_.Refuse(name, "must be a string, got ", serving::Describe(text));
    } else if (text.get_ref<const std::string&>().empty()) {
      in_.Refuse(name, "must not be empty");
    } else {
      Add(name, kind, text.get<std::string>());
    }
  }

  void AddChoice(std::string_view name, const Json& choice) {
    const bool fits =
        choice.is_array() && !choice.empty() &&
        std::all_of(choice.begin(), choice.end(),
                    [](const Json& one) { return one.is_string(); });
    if (!fits) {
      in_.Refuse(
          name, "must be an array of at least one string, got ",
          serving::Describe(choice),
          choice.is_array() && !choice.empty() ? ", not all strings" : "");
      return;
    }
    Add(name, Kind::kChoice, DumpJson(choice));
  }

  // A grammar that may be Lark or GBNF.
  void AddGrammar(std::string_view name, const Json& grammar) {
    if (!grammar.is_string()) {
      in_.Refuse(name, "must be a string, got ", serving::Describe(grammar));
      return;
    }
    const auto kind = KindOfGrammar(grammar.get_ref<const std::string&>());
    if (!kind) {
      in_.Refuse(name, "must be Lark, with a rule `start:`, or GBNF, with a ",
                 "rule `root ::=`");
      return;
    }
    AddText(name, grammar, *kind);
  }

  void AddObject(std::string_view name, const Json& flag) {
    if (!flag.is_boolean()) {
      in_.Refuse(name, "must be true or false, got ", serving::Describe(flag));
    } else if (flag.get<bool>()) {
      Add(name, Kind::kJsonObject);
    }
  }

  // A structural tag, or its text.
  void AddTag(std::string_view name, const Json& tag) {
    if (tag.is_object()) {
      Add(name, Kind::kStructuralTag, DumpJson(tag));
    } else {
      AddText(name, tag, Kind::kStructuralTag);
    }
  }

  void ReadResponseFormat(const Json& format);
  void ReadStructuredOutputs(const Json& outputs);

 private:
  void ReadNamedSchema(const Json& named);

  serving::FieldReader& in_;
  std::optional<serving::GrammarField> found_;
};

// {"name", "description", "strict", "schema"}: an answer keeps to the schema
// whatever `strict` is.
void GrammarReader::ReadNamedSchema(const Json& named) {
  constexpr std::string_view kName = "response_format.json_schema";
  if (!named.is_object()) {
    in_.Refuse(kName, "must be an object, got ", serving::Describe(named));
    return;
  }
  serving::FieldReader part(named, Cat(kName, "."));
  if (const auto name = part.String("name"); name && !IsFormatName(*name)) {
    part.Refuse("name", "must be 1 to ", kMaxFormatNameBytes,
                " of A-Z a-z 0-9 _ -");
  }
  part.String("description");
  part.Bool("strict");
  const Json* schema = part.Find("schema");
  if (schema == nullptr) part.Refuse("schema", "is missing");
  in_.Keep(part.status());
  if (schema == nullptr) return;
  AddSchema(Cat(kName, ".schema"), *schema, /*as_text=*/false);
}

void GrammarReader::ReadResponseFormat(const Json& format) {
  constexpr std::string_view kName = "response_format";
  if (!format.is_object()) {
    in_.Refuse(kName, "must be an object, got ", serving::Describe(format));
    return;
  }
  serving::FieldReader part(format, Cat(kName, "."));
  const auto type = part.String("type");
  if (!type) part.Refuse("type", "is missing");
  const Json* named = part.Find("json_schema");
  const Json* bare = part.Find("schema");
  in_.Keep(part.status());
  if (!type || *type == "text") return;
  if (*type == "structural_tag") {
    Add(kName, Kind::kStructuralTag, DumpJson(format));
  } else if (*type != "json_object" && *type != "json_schema") {
    in_.Refuse("response_format.type",
               "must be \"text\", \"json_object\", \"json_schema\" or "
               "\"structural_tag\"");
  } else if (named != nullptr && *type == "json_schema") {
    ReadNamedSchema(*named);
    if (bare != nullptr) AddSchema("response_format.schema", *bare, false);
  } else if (bare != nullptr) {
    AddSchema("response_format.schema", *bare, /*as_text=*/false);
  } else if (*type == "json_object") {
    Add(kName, Kind::kJsonObject);
  } else {
    in_.Refuse("response_format.json_schema", "is missing");
  }
}

void GrammarReader::ReadStructuredOutputs(const Json& outputs) {
  constexpr std::string_view kName = "structured_outputs";
  if (!outputs.is_object()) {
    in_.Refuse(kName, "must be an object, got ", serving::Describe(outputs));
    return;
  }
  // Options that change nothing here: no grammar falls back to another engine.
  constexpr std::string_view kNeutral = "disable_fallback";
  for (const auto& [member, value] : outputs.items()) {
    const std::string name = Cat(kName, ".", member.substr(0, 64));
    const bool is_off = value.is_null() || value == false;
    if (value.is_null() || member == kNeutral) continue;
    if (member == "json") {
      AddSchema(name, value, /*as_text=*/true);
    } else if (member == "regex") {
      AddText(name, value, Kind::kRegex);
    } else if (member == "choice") {
      AddChoice(name, value);
    } else if (member == "grammar") {
      AddGrammar(name, value);
    } else if (member == "json_object") {
      AddObject(name, value);
    } else if (member == "structural_tag") {
      AddTag(name, value);
    } else if (!is_off) {
      in_.Keep(serving::WithCode(
          serving::FieldError(
              name,
              "not supported; supported are json, regex, choice, "
              "grammar, json_object and structural_tag"),
          "unsupported_parameter"));
    }
  }
}

// An empty string counts as absent where llama.cpp and SGLang count it so.
bool IsGiven(const Json* value) {
  return value != nullptr && *value != Json("");
}

}  // namespace

std::optional<GrammarSpec::Kind> KindOfGrammar(std::string_view text) {
  constexpr std::string_view kStart = "start";
  for (size_t at = text.find(kStart); at != text.npos;
       at = text.find(kStart, at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const size_t next = text.find_first_not_of(" \t", at + kStart.size());
    if (next == text.npos || text[next] != ':') continue;
    if (text.substr(next, 3) != "::=") return GrammarSpec::Kind::kLark;
  }
  if (text.find("::=") != text.npos) return GrammarSpec::Kind::kGbnf;
  return std::nullopt;
}

std::optional<serving::GrammarField> ReadGrammarFields(
    serving::FieldReader& in) {
  GrammarReader reader(in);
  if (const Json* format = in.Find("response_format")) {
    reader.ReadResponseFormat(*format);
  }
  if (const Json* outputs = in.Find("structured_outputs")) {
    reader.ReadStructuredOutputs(*outputs);
  }
  if (const Json* schema = in.Find("guided_json")) {
    reader.AddSchema("guided_json", *schema, /*as_text=*/true);
  }
  if (const Json* regex = in.Find("guided_regex")) {
    reader.AddText("guided_regex", *regex, Kind::kRegex);
  }
  if (const Json* choice = in.Find("guided_choice")) {
    reader.AddChoice("guided_choice", *choice);
  }
  if (const Json* grammar = in.Find("guided_grammar")) {
    reader.AddGrammar("guided_grammar", *grammar);
  }
  if (const Json* flag = in.Find("guided_json_object")) {
    reader.AddObject("guided_json_object", *flag);
  }
  if (const Json* grammar = in.Find("grammar"); IsGiven(grammar)) {
    reader.AddText("grammar", *grammar, Kind::kGbnf);
  }
  if (const Json* schema = in.Find("json_schema"); IsGiven(schema)) {
    reader.AddSchema("json_schema", *schema, /*as_text=*/true);
  }
  if (const Json* tag = in.Find("structural_tag"); IsGiven(tag)) {
    reader.AddTag("structural_tag", *tag);
  }
  if (const Json* regex = in.Find("regex"); IsGiven(regex)) {
    reader.AddText("regex", *regex, Kind::kRegex);
  }
  if (const Json* grammar = in.Find("ebnf"); IsGiven(grammar)) {
    reader.AddText("ebnf", *grammar, Kind::kGbnf);
  }
  return std::move(reader).Take();
}

}  // namespace sluice::openai
