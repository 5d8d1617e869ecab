#include "common/grammar/structural_tag.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/grammar/lark_text.h"

namespace sluice {
namespace {

constexpr int kMaxLevels = 16;
constexpr size_t kMaxSpecialBytes = 64;
constexpr size_t kMaxTriggers = 64;

using Strings = std::vector<std::string>;

class TagWriter {
 public:
  TagWriter(const Vocabulary& vocabulary, const GrammarTexts& compiler)
      : vocabulary_(vocabulary), compiler_(compiler) {}

  StatusOr<GrammarSpec> Write(const Json& tag) {
    if (!tag.is_object()) return Fail("", "is no object");
    SLUICE_ASSIGN_OR_RETURN(const std::string start, Start(tag));
    return GrammarSpec{GrammarSpec::Kind::kLark,
                       Cat("start: ", start, "\n", rules_)};
  }

 private:
  // A text, or special tokens between texts.
  struct Piece {
    std::string text;
    bool is_special = false;
  };

  static Status Fail(const std::string& path, const std::string& what) {
    return InvalidArgument("structural tag: `", path.empty() ? "/" : path, "` ",
                           what);
  }

  StatusOr<std::string> Start(const Json& tag) {
    if (tag.contains("format")) {
      return Format(tag["format"], "/format", "", kMaxLevels);
    }
    if (!tag.contains("structures")) {
      return Fail("", "has neither `format` nor `structures`");
    }
    SLUICE_ASSIGN_OR_RETURN(const Strings triggers, Texts(tag, "triggers", ""));
    SLUICE_ASSIGN_OR_RETURN(const Json* tags, List(tag, "structures", ""));
    return Triggered(triggers, *tags, "/structures", {}, "", kMaxLevels);
  }

  StatusOr<std::string> Text(const Json& from, const char* name,
                             const std::string& path) const {
    const auto found = from.find(name);
    if (found == from.end() || !found->is_string()) {
      return Fail(path, Cat("has no text `", name, "`"));
    }
    return found->get<std::string>();
  }

  StatusOr<Strings> Texts(const Json& from, const char* name,
                          const std::string& path) const {
    const auto found = from.find(name);
    if (found == from.end() || !found->is_array() || found->empty()) {
      return Fail(path, Cat("has no list `", name, "` of at least one text"));
    }
    Strings texts;
    for (const Json& text : *found) {
      if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
        return Fail(Cat(path, "/", name), "has what is no text");
      }
      texts.push_back(text.get<std::string>());
    }
    if (texts.size() > kMaxTriggers) {
      return Fail(
          Cat(path, "/", name),
          Cat("has ", texts.size(), " texts; the limit is ", kMaxTriggers));
    }
    return texts;
  }

  StatusOr<const Json*> Member(const Json& from, const char* name,
                               const std::string& path) const {
    const auto found = from.find(name);
    if (found == from.end()) return Fail(path, Cat("has no `", name, "`"));
    return &*found;
  }

  StatusOr<const Json*> List(const Json& from, const char* name,
                             const std::string& path) const {
    SLUICE_ASSIGN_OR_RETURN(const Json* list, Member(from, name, path));
    if (!list->is_array() || list->empty()) {
      return Fail(Cat(path, "/", name), "is no list of at least one element");
    }
    return list;
  }

  static bool Flag(const Json& from, const char* name) {
    const auto found = from.find(name);
    return found != from.end() && *found == true;
  }

  // Returns what stands for `format` and the text `end` behind it in a rule.
  StatusOr<std::string> Format(const Json& format, const std::string& path,
                               const std::string& end, int levels) {
    if (levels == 0) {
      return Fail(path, Cat("is deeper than ", kMaxLevels, " levels"));
    }
    if (!format.is_object()) return Fail(path, "is no object");
    SLUICE_ASSIGN_OR_RETURN(const std::string type, Text(format, "type", path));
    if (type == "const_string") {
      SLUICE_ASSIGN_OR_RETURN(const std::string value,
                              Text(format, "value", path));
      return Cat(Literal(value), " ", Literal(end));
    }
    if (type == "json_schema") {
      SLUICE_ASSIGN_OR_RETURN(const Json* schema,
                              Member(format, "json_schema", path));
      SLUICE_ASSIGN_OR_RETURN(const std::string rule, Schema(*schema, path));
      return Cat(rule, " ", Literal(end));
    }
    if (type == "regex") {
      SLUICE_ASSIGN_OR_RETURN(const std::string pattern,
                              Text(format, "pattern", path));
      return Cat(Rule(Cat("/", WithEscapedSlashes(pattern), "/")), " ",
                 Literal(end));
    }
    if (type == "any_text") return Free({}, end);
    if (type == "sequence") return Sequence(format, path, end, levels);
    if (type == "or") return Or(format, path, end, levels);
    if (type == "tag") {
      SLUICE_ASSIGN_OR_RETURN(const std::string tag,
                              Tag(format, path, 0, levels));
      return Cat(tag, " ", Literal(end));
    }
    if (type == "triggered_tags") {
      SLUICE_ASSIGN_OR_RETURN(const Strings triggers,
                              Texts(format, "triggers", path));
      SLUICE_ASSIGN_OR_RETURN(const Json* tags, List(format, "tags", path));
      return Triggered(
          triggers, *tags, path + "/tags",
          {Flag(format, "at_least_one"), Flag(format, "stop_after_first")}, end,
          levels);
    }
    if (type == "tags_with_separator") {
      SLUICE_ASSIGN_OR_RETURN(const std::string tags,
                              Separated(format, path, levels));
      return Cat(tags, " ", Literal(end));
    }
    return Unimplemented("structural tag: `", path, "` is a ", type);
  }

  StatusOr<std::string> Schema(const Json& schema, const std::string& path) {
    const auto checked = compiler_.CheckSchema(DumpJson(schema));
    if (!checked.ok()) {
      return Annotate(checked.status(), Cat("structural tag: `", path, "`"));
    }
    return Rule("%json " + *checked);
  }

  StatusOr<std::string> Sequence(const Json& format, const std::string& path,
                                 const std::string& end, int levels) {
    SLUICE_ASSIGN_OR_RETURN(const Json* elements,
                            List(format, "elements", path));
    std::string out;
    for (size_t i = 0; i < elements->size(); ++i) {
      const std::string at = Cat(path, "/elements/", i);
      const bool is_last = i + 1 == elements->size();
      const Json& one = (*elements)[i];
      if (!is_last && MayEndFree(one)) {
        return Unimplemented(
            "structural tag: `", at,
            "` ends in free text before another element; a tag ends it");
      }
      SLUICE_ASSIGN_OR_RETURN(
          const std::string part,
          Format(one, at, is_last ? end : std::string(), levels - 1));
      out += Cat(out.empty() ? "" : " ", part);
    }
    return Rule(out);
  }

  static bool MayEndFree(const Json& format) {
    if (!format.is_object()) return false;
    const Json type = format.value("type", Json());
    if (type == "any_text") return true;
    if (type == "triggered_tags") {
      return !Flag(format, "at_least_one") || !Flag(format, "stop_after_first");
    }
    const Json elements = format.value("elements", Json());
    if (!elements.is_array() || elements.empty()) return false;
    if (type == "sequence") return MayEndFree(elements.back());
    return std::any_of(elements.begin(), elements.end(), MayEndFree);
  }

  StatusOr<std::string> Or(const Json& format, const std::string& path,
                           const std::string& end, int levels) {
    SLUICE_ASSIGN_OR_RETURN(const Json* elements,
                            List(format, "elements", path));
    std::string out;
    for (size_t i = 0; i < elements->size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(
          const std::string one,
          Format((*elements)[i], Cat(path, "/elements/", i), end, levels - 1));
      out += Cat(out.empty() ? "" : " | ", one);
    }
    return Rule(out);
  }

  // `skipped`: bytes of the opening text that stand before the tag already.
  StatusOr<std::string> Tag(const Json& tag, const std::string& path,
                            size_t skipped, int levels) {
    if (!tag.is_object()) return Fail(path, "is no object");
    SLUICE_ASSIGN_OR_RETURN(const std::string begin, Text(tag, "begin", path));
    SLUICE_ASSIGN_OR_RETURN(const std::string end, Text(tag, "end", path));
    if (tag.contains("schema")) {  // of the older form
      SLUICE_ASSIGN_OR_RETURN(const std::string schema,
                              Schema(tag["schema"], path + "/schema"));
      return Rule(
          Cat(Literal(begin.substr(skipped)), " ", schema, " ", Literal(end)));
    }
    SLUICE_ASSIGN_OR_RETURN(const Json* inner, Member(tag, "content", path));
    SLUICE_ASSIGN_OR_RETURN(const std::string content,
                            Format(*inner, path + "/content", end, levels - 1));
    return Rule(Cat(Literal(begin.substr(skipped)), " ", content));
  }

  struct TagCounts {
    bool at_least_one = false;  // and no text before the first
    bool stop_after_first = false;
  };

  // Free text, and from a trigger on one of the tags that begin with it.
  StatusOr<std::string> Triggered(const Strings& triggers, const Json& tags,
                                  const std::string& path,
                                  const TagCounts& counts,
                                  const std::string& end, int levels) {
    std::string behind_text;
    std::string at_once;
    std::vector<bool> is_triggered(tags.size());
    for (const std::string& trigger : triggers) {
      std::string rests;
      for (size_t i = 0; i < tags.size(); ++i) {
        const std::string at = Cat(path, "/", i);
        if (!tags[i].is_object()) return Fail(at, "is no object");
        SLUICE_ASSIGN_OR_RETURN(const std::string begin,
                                Text(tags[i], "begin", at));
        if (!begin.starts_with(trigger)) continue;
        if (is_triggered[i]) {
          return Fail(at, "begins with two of the triggers");
        }
        is_triggered[i] = true;
        SLUICE_ASSIGN_OR_RETURN(const std::string rest,
                                Tag(tags[i], at, trigger.size(), levels - 1));
        rests += Cat(rests.empty() ? "" : " | ", rest);
      }
      if (rests.empty()) {
        return Fail(path, Cat("has no tag for the trigger `", trigger, "`"));
      }
      const std::string tag = Rule(rests);
      Strings never = triggers;
      if (!end.empty()) never.push_back(end);
      behind_text += Cat(behind_text.empty() ? "" : " | ",
                         FreeUntil(trigger, never), " ", tag);
      at_once += Cat(at_once.empty() ? "" : " | ", Literal(trigger), " ", tag);
    }
    for (size_t i = 0; i < tags.size(); ++i) {
      if (is_triggered[i]) continue;
      return Fail(Cat(path, "/", i), "begins with none of the triggers");
    }
    const std::string first = Rule(at_once);
    const std::string more = Rule(behind_text);
    if (counts.at_least_one && counts.stop_after_first) {
      return Cat(first, " ", Literal(end));
    }
    const std::string tail = Free(triggers, end);
    if (counts.at_least_one) return Cat(first, " ", more, "* ", tail);
    if (counts.stop_after_first) {
      return Rule(Cat(more, " ", Literal(end), " | ", tail));
    }
    return Cat(more, "* ", tail);
  }

  StatusOr<std::string> Separated(const Json& format, const std::string& path,
                                  int levels) {
    SLUICE_ASSIGN_OR_RETURN(const Json* tags, List(format, "tags", path));
    SLUICE_ASSIGN_OR_RETURN(const std::string separator,
                            Text(format, "separator", path));
    std::string any;
    for (size_t i = 0; i < tags->size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(
          const std::string one,
          Tag((*tags)[i], Cat(path, "/tags/", i), 0, levels - 1));
      any += Cat(any.empty() ? "" : " | ", one);
    }
    const std::string tag = Rule(any);
    std::string all = tag;
    if (!Flag(format, "stop_after_first")) {
      all += Cat(" (", Literal(separator), " ", tag, ")*");
    }
    if (!Flag(format, "at_least_one")) all = Cat("(", all, ")?");
    return Rule(all);
  }

  // Returns those of `texts` that a text could spell: it has no special token.
  Strings Spelled(const Strings& texts) const {
    Strings spelled;
    for (const std::string& text : texts) {
      const std::vector<Piece> pieces = PiecesOf(text);
      const bool is_plain = pieces.size() == 1 && !pieces[0].is_special;
      if (is_plain) spelled.push_back(text);
    }
    return spelled;
  }

  // A text that spells none of `never`, and then `end`.
  std::string FreeUntil(const std::string& end, const Strings& never) {
    const std::vector<Piece> pieces = PiecesOf(end);
    const Strings spelled = Spelled(never);
    const std::vector<std::string_view> texts(spelled.begin(), spelled.end());
    const std::string name = Cat("until", num_rules_++);
    rules_ += LarkTextUntil(name, pieces[0].text, texts, vocabulary_);
    std::string out = name;
    for (size_t i = 1; i < pieces.size(); ++i) {
      out += Cat(" ", LarkTag(pieces[i].text, vocabulary_));
    }
    return out;
  }

  // The same; an empty `end` stands for the answer's.
  std::string Free(Strings never, const std::string& end) {
    if (!end.empty()) {
      never.push_back(end);
      return FreeUntil(end, never);
    }
    std::string spelled;
    for (const std::string& text : Spelled(never)) {
      spelled += Cat(spelled.empty() ? "" : "|", EscapedRegex(text));
    }
    const std::string name = Cat("FREE", num_rules_++);
    rules_ += Cat(name, ": /(?s:.*)/");
    if (!spelled.empty()) {
      rules_ += Cat(" & ~/(?s:.*)(", spelled, ")(?s:.*)/");
    }
    rules_ += "\n";
    return name;
  }

  std::string Literal(std::string_view text) const {
    if (text.empty()) return "\"\"";
    std::string out;
    for (const Piece& piece : PiecesOf(text)) {
      out += Cat(out.empty() ? "" : " ", LarkTag(piece.text, vocabulary_));
    }
    return out;
  }

  // Cuts `text`, which is not empty, at the special tokens that it spells.
  std::vector<Piece> PiecesOf(std::string_view text) const {
    std::vector<Piece> pieces;
    size_t begin = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '<' && text[at] != '[') continue;
      const char close = text[at] == '<' ? '>' : ']';
      const size_t end = text.find(close, at);
      if (end == text.npos || end - at >= kMaxSpecialBytes) continue;
      const std::string_view token = text.substr(at, end + 1 - at);
      if (!IsSpecialTag(token, vocabulary_)) continue;
      if (begin < at) {
        pieces.push_back({std::string(text.substr(begin, at - begin))});
      }
      pieces.push_back({std::string(token), true});
      begin = end + 1;
      at = end;
    }
    if (begin < text.size()) {
      pieces.push_back({std::string(text.substr(begin))});
    }
    return pieces;
  }

  // Returns the name of a rule `body`.
  std::string Rule(const std::string& body) {
    const std::string name = Cat("part", num_rules_++);
    rules_ += Cat(name, ": ", body, "\n");
    return name;
  }

  const Vocabulary& vocabulary_;
  const GrammarTexts& compiler_;
  std::string rules_;
  int num_rules_ = 0;
};

}  // namespace

StatusOr<GrammarSpec> StructuralTagGrammar(std::string_view tag,
                                           const Vocabulary& vocabulary,
                                           const GrammarTexts& compiler) {
  std::vector<RoundedNumber> rounded;
  const auto json = ParseJson(tag, {.rounded = &rounded});
  if (!json.ok()) return InvalidArgument("structural tag: no JSON");
  if (!rounded.empty()) {
    return InvalidArgument("structural tag: `", rounded[0].path,
                           "` has a number of more digits than a double keeps");
  }
  return TagWriter(vocabulary, compiler).Write(*json);
}

}  // namespace sluice
