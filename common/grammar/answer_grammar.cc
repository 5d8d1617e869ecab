#include "common/grammar/answer_grammar.h"

#include <algorithm>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/grammar/lark_text.h"
#include "common/grammar/structural_tag.h"
#include "common/grammar/tagged_arguments.h"
#include "common/text/output/markup_tags.h"
#include "common/text/output/parsers.h"

namespace sluice {
namespace {

constexpr std::string_view kFunctionsPrefix = "functions.";

// Writes one grammar: rules are added to `rules_` as they are needed.
class AnswerWriter {
 public:
  AnswerWriter(const OutputFormat& format, const Vocabulary& vocabulary,
               const AnswerRules& rules, const GrammarTexts& compiler)
      : format_(format),
        markup_(MarkupOf(format.tools)),
        vocabulary_(vocabulary),
        asked_(rules),
        compiler_(compiler) {}

  StatusOr<GrammarSpec> Write() {
    if (!asked_.tools.empty()) SLUICE_RETURN_IF_ERROR(AddCalls());
    if (asked_.content) {
      SLUICE_ASSIGN_OR_RETURN(const std::string content, ContentRule());
      rules_ += "content: " + content + "\n";
    }
    const std::string start =
        format_.tools == ToolFormat::kHarmony ? HarmonyStart() : MarkupStart();
    return GrammarSpec{GrammarSpec::Kind::kLark,
                       "start: " + start + "\n" + rules_};
  }

 private:
  bool may_answer() const { return !asked_.requires_call; }

  StatusOr<std::string> ContentRule() {
    const GrammarSpec& content = *asked_.content;
    switch (content.kind) {
      case GrammarSpec::Kind::kJsonObject:
        return Schema(R"({"type":"object"})");
      case GrammarSpec::Kind::kJsonSchema:
        return Schema(content.text);
      case GrammarSpec::Kind::kRegex:
        return "/" + WithEscapedSlashes(content.text) + "/";
      case GrammarSpec::Kind::kChoice:
        return Choice(content.text);
      case GrammarSpec::Kind::kLark:
        return Nested(content.text);
      case GrammarSpec::Kind::kGbnf: {
        SLUICE_ASSIGN_OR_RETURN(const std::string lark,
                                compiler_.LarkOfGbnf(content.text));
        return Nested(lark);
      }
      case GrammarSpec::Kind::kStructuralTag: {
        SLUICE_ASSIGN_OR_RETURN(
            const GrammarSpec lark,
            StructuralTagGrammar(content.text, vocabulary_, compiler_));
        return Nested(lark.text);
      }
    }
    return Internal("a grammar of unknown kind");
  }

  // A grammar by itself within another one: names of rules are its own.
  static std::string Nested(const std::string& lark) {
    return Cat("%lark {\n", lark, "\n}");
  }

  static StatusOr<std::string> Choice(const std::string& text) {
    SLUICE_ASSIGN_OR_RETURN(const Json words, ParseJson(text));
    std::string out;
    if (words.is_array()) {
      for (const Json& word : words) {
        if (!word.is_string()) return InvalidArgument("a choice is no string");
        out += (out.empty() ? "" : " | ") +
               LarkLiteral(word.get_ref<const std::string&>());
      }
    }
    if (out.empty()) return InvalidArgument("a choice of no strings");
    return out;
  }

  StatusOr<std::string> Schema(std::string_view schema) {
    SLUICE_ASSIGN_OR_RETURN(const std::string checked,
                            compiler_.CheckSchema(schema));
    return "%json " + checked;
  }

  // Adds rule `call`, a call of any of the tools.
  Status AddCalls() {
    std::string names;
    for (size_t i = 0; i < asked_.tools.size(); ++i) {
      const std::string rule = "call_" + std::to_string(i);
      const auto added = AddCall(asked_.tools[i], rule);
      if (!added.ok()) {
        return Annotate(added, "tool " + asked_.tools[i].name);
      }
      names += (names.empty() ? "" : " | ") + rule;
    }
    rules_ += "call: " + names + "\n";
    return OkStatus();
  }

  Status AddCall(const GrammarTool& tool, const std::string& rule) {
    switch (format_.tools) {
      case ToolFormat::kNone:
        return InvalidArgument("the model has no format of calls");
      case ToolFormat::kGlm:
      case ToolFormat::kQwenCoder:
      case ToolFormat::kSeed:
      case ToolFormat::kMiniMax:
      case ToolFormat::kMiniMaxM3:
      case ToolFormat::kDeepSeekV32:
      case ToolFormat::kDeepSeekV4: {
        SLUICE_ASSIGN_OR_RETURN(
            const std::string text,
            TaggedCallRules(format_.tools, tool, rule, vocabulary_, compiler_));
        rules_ += text;
        return OkStatus();
      }
      default:
        return AddJsonCall(tool, rule);
    }
  }

  // Formats whose arguments are a JSON object.
  Status AddJsonCall(const GrammarTool& tool, const std::string& rule) {
    const bool is_free = !tool.is_strict || tool.parameters.empty();
    SLUICE_ASSIGN_OR_RETURN(
        const std::string schema,
        Schema(is_free ? std::string_view(R"({"type":"object"})")
                       : std::string_view(tool.parameters)));
    const std::string name = Json(tool.name).dump();
    std::string before;
    std::string behind;
    switch (format_.tools) {
      case ToolFormat::kHermes:
      case ToolFormat::kGeneric:
        // Behind the opening tag, which MarkupStart writes.
        before = LarkLiteral("\n{\"name\": " + name + ", \"arguments\": ");
        behind = LarkLiteral("}\n") + " " + Tag(kToolCallEnd);
        break;
      case ToolFormat::kLlamaJson:
        before = LarkLiteral("{\"name\": " + name + ", \"parameters\": ");
        behind = LarkLiteral("}");
        break;
      case ToolFormat::kHarmony:
        before = Tag("<|channel|>") + " " +
                 LarkLiteral("commentary to=" + std::string(kFunctionsPrefix) +
                             tool.name);
        before += " " + Constrain() + Tag("<|message|>");
        break;
      default:
        SetAround(tool.name, before, behind);
        break;
    }
    rules_ += rule + ": " + before + " args" + rule + " " + behind + "\n";
    rules_ += "args" + rule + ": " + schema + "\n";
    return OkStatus();
  }

  // Sets what stands before and behind a call's arguments, within the tags
  // that Group or MarkupStart write.
  void SetAround(const std::string& name, std::string& before,
                 std::string& behind) {
    constexpr std::string_view kNumber = "/[0-9]{1,3}/";
    const std::string quoted = Json(name).dump();
    switch (markup_.shape) {
      case CallShape::kNamed:
        if (!markup_.type.empty()) {
          before = Cat(LarkLiteral(markup_.type), " ", Tag(markup_.separator),
                       " ", LarkLiteral(Cat(name, "\n```json\n")));
          behind = Cat(LarkLiteral("\n```"), " ");
        } else {
          before = LarkLiteral(Cat(markup_.name_prefix, name));
          if (markup_.is_numbered) before += Cat(" \":\" ", kNumber);
          before += Cat(" ", Tag(markup_.separator));
        }
        break;
      case CallShape::kGemma:
        before = LarkLiteral(Cat("call:", name));
        break;
      default:  // lists
        if (markup_.has_name_keys) {
          before = LarkLiteral(Cat("{", quoted, ": "));
          behind = LarkLiteral("}");
          return;
        }
        if (markup_.is_fenced) {
          before = LarkLiteral("{\n        ");
        } else if (!markup_.id_key.empty()) {
          before = Cat(LarkLiteral(Cat("{\"", markup_.id_key, "\": \"")), " ",
                       kNumber, " ", LarkLiteral("\", "));
        } else {
          before = LarkLiteral("{");
        }
        before +=
            Cat(" ", LarkLiteral(Cat("\"", markup_.name_key, "\": ", quoted,
                                     markup_.is_fenced ? ",\n        " : ", ",
                                     "\"", markup_.arguments_key, "\": ")));
        behind = LarkLiteral(markup_.is_fenced ? "\n    }" : "}");
        return;
    }
    if (!markup_.close.empty()) behind += Tag(markup_.close);
  }

  // True of formats whose calls stand together between tags of their own.
  bool is_grouped() const {
    switch (markup_.shape) {
      case CallShape::kJsonList:
      case CallShape::kPythonList:
        return true;
      case CallShape::kNamed:
        return !markup_.section.empty();
      case CallShape::kParameters:
      case CallShape::kElements:
        return markup_.quotes_names;
      default:
        return false;
    }
  }

  // The tag that begins a call, or all calls.
  std::string_view Opening() const {
    return markup_.section.empty() ? markup_.open : markup_.section;
  }

  // All calls behind their opening tag.
  std::string Group() const {
    std::string first;
    std::string next;
    std::string last = Tag(markup_.close);
    if (markup_.shape == CallShape::kParameters ||
        markup_.shape == CallShape::kElements) {
      first = LarkLiteral("\n");
    } else if (markup_.shape == CallShape::kNamed) {
      first = Tag(markup_.open);
      next = markup_.is_fenced ? Cat(LarkLiteral("\n"), " ", first) : first;
      last = Tag(markup_.section_end);
    } else {
      const bool has_lines = markup_.is_fenced || !markup_.id_key.empty();
      const std::string fence =
          markup_.is_fenced ? Cat("\n", kJsonFence, "\n") : "";
      first = LarkLiteral(Cat(fence, has_lines ? "[\n    " : "["));
      next = LarkLiteral(has_lines ? ",\n    " : ", ");
      last = LarkLiteral(has_lines ? "\n]" : "]");
      if (!markup_.close.empty()) last += Cat(" ", Tag(markup_.close));
    }
    std::string calls = Cat(first, " call");
    if (asked_.is_parallel) {
      calls += Cat(" (", next, " call){0,", kMaxCallsPerAnswer - 1, "}");
    }
    return Cat(calls, " ", last);
  }

  // --- <tool_call>, bare JSON ----------------------------------------------

  std::string MarkupStart() {
    if (asked_.tools.empty()) return "content";
    const bool tagged = format_.tools != ToolFormat::kLlamaJson;
    const std::string opening = tagged ? Tag(Opening()) + " " : "";
    const std::string most = std::to_string(kMaxCallsPerAnswer - 1);
    std::string separator = tagged ? "\"\\n\"? " : "\"; \" ";
    if (markup_.shape == CallShape::kNamed ||
        markup_.shape == CallShape::kGemma) {
      separator = "";
    }
    std::string calls = opening + (is_grouped() ? Group() : "call");
    if (asked_.is_parallel && !is_grouped()) {
      calls += " (" + separator + opening + "call){0," + most + "}";
    }
    if (!may_answer()) return calls;
    if (asked_.content) return "(" + calls + ") | content";
    if (!tagged) {
      // A text that begins with a brace would be read as a call.
      rules_ += Cat("FREE: /(\\s*[^\\s{](?s:.*))?/ & ~/(?s:.*)",
                    EscapedRegex(kPythonTag), "(?s:.*)/\n");
      return "(" + calls + ") | FREE";
    }
    return TextAndCalls();
  }

  // Any text, and from a call's opening on a call.
  std::string TextAndCalls() {
    std::vector<std::string_view> openings = {Opening()};
    if (markup_.shape == CallShape::kTagged) openings.push_back(kFunction);
    if (!markup_.section.empty()) openings.push_back(markup_.open);
    if (!markup_.function.empty()) openings.push_back(markup_.function);
    rules_ += LarkTextUntil("before", Opening(), openings, vocabulary_);
    std::string spelled;
    for (const std::string_view tag : openings) {
      spelled += Cat(spelled.empty() ? "" : "|", EscapedRegex(tag));
    }
    rules_ += Cat("TAIL: /(?s:.*)/ & ~/(?s:.*)(", spelled, ")(?s:.*)/\n");
    if (is_grouped()) return Cat("(before ", Group(), ")? TAIL");
    const std::string count =
        asked_.is_parallel ? "{0," + std::to_string(kMaxCallsPerAnswer) + "}"
                           : "?";
    return "(before call)" + count + " TAIL";
  }

  // --- harmony ---------------------------------------------------------------

  std::string HarmonyStart() {
    rules_ += "TEXT: /(?s:.*)/\n";
    const std::string again =
        Tag("<|end|>") + " " + Tag("<|start|>") + " \"assistant\"\n";
    const auto message = [&](std::string_view channel) {
      return Tag("<|channel|>") + " " + LarkLiteral(channel) + " " +
             Tag("<|message|>") + " ";
    };
    rules_ += "analysis: " + message("analysis") + "TEXT " + again;
    std::string before = "analysis*";
    std::string final_message;
    if (may_answer()) {
      final_message = Tag("<|channel|>") + " \"final\" " + Constrain() +
                      Tag("<|message|>") + " " +
                      (asked_.content ? "content" : "TEXT");
    }
    if (asked_.tools.empty()) return before + " " + final_message;
    if (may_answer() && !asked_.content) {
      // What the model says before a call.
      rules_ += "preamble: " + message("commentary") + "TEXT " + again;
      before = "(analysis | preamble)*";
    }
    if (!may_answer()) return before + " call";
    return before + " (call | " + final_message + ")";
  }

  // The type that a header may name; nothing where the vocabulary has no token
  // for it.
  std::string Constrain() const {
    if (!vocabulary_.Find("<|constrain|>")) return "";
    return "(\" \"? " + Tag("<|constrain|>") + " \"json\")? ";
  }
  std::string Tag(std::string_view tag) const {
    return LarkTag(tag, vocabulary_);
  }

  const OutputFormat& format_;
  const CallMarkup& markup_;
  const Vocabulary& vocabulary_;
  const AnswerRules& asked_;
  const GrammarTexts& compiler_;
  std::string rules_;
};

}  // namespace

StatusOr<GrammarSpec> AnswerGrammar(const OutputFormat& format,
                                    const Vocabulary& vocabulary,
                                    const AnswerRules& rules,
                                    const GrammarTexts& compiler) {
  const bool has_channels = format.tools == ToolFormat::kHarmony;
  if (rules.tools.empty() && rules.content && !has_channels) {
    if (rules.content->kind != GrammarSpec::Kind::kStructuralTag) {
      return *rules.content;
    }
    return StructuralTagGrammar(rules.content->text, vocabulary, compiler);
  }
  return AnswerWriter(format, vocabulary, rules, compiler).Write();
}

ReasoningMarks ReasoningMarksOf(const OutputFormat& format,
                                const Vocabulary& vocabulary) {
  ReasoningMarks marks;
  const ReasoningTags& tags = TagsOf(format.reasoning);
  if (tags.open.empty()) return marks;
  const auto begin =
      vocabulary.Find(tags.open_token.empty() ? tags.open : tags.open_token);
  const auto end = vocabulary.Find(tags.close);
  if (!begin || !end) return marks;
  marks.begin = {*begin};
  marks.end = {*end};
  return marks;
}

}  // namespace sluice
