#include "common/grammar/lark_regex.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/grammar/lark_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxTextBytes = size_t{256} << 10;
// Groups and rules within one another.
constexpr int kMaxNesting = 64;
// The bytes of all expressions that are made on the way.
constexpr size_t kMaxSpentBytes = size_t{1} << 20;
constexpr int64_t kMaxRepeats = 10'000;

// The terminals of Lark's library `common`, in ECMA-262's syntax.
constexpr std::pair<std::string_view, std::string_view> kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
    {"FLOAT",
     "(?:(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?|"
     "[0-9]+[eE][+\\-]?[0-9]+)"},
    {"NUMBER",
     "(?:[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?|"
     "[0-9]+[eE][+\\-]?[0-9]+)"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"}};

struct Token {
  enum class Kind { kName, kString, kRegex, kDigits, kSign, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string and a regex: decoded, without quotes
  size_t at = 0;     // the byte in the grammar
  bool begins_line = false;
};
using Kind = Token::Kind;

bool IsNameChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Splits a grammar's text.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  StatusOr<std::vector<Token>> All() {
    std::vector<Token> tokens;
    while (SkipSpace()) {
      const bool begins_line = std::exchange(begins_line_, false);
      SLUICE_ASSIGN_OR_RETURN(Token token, Next());
      token.begins_line = begins_line;
      tokens.push_back(std::move(token));
    }
    tokens.push_back({Kind::kEnd, "", text_.size(), true});
    return tokens;
  }

 private:
  // Returns whether there is more.
  bool SkipSpace() {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with("//") || rest.front() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (absl::ascii_isspace(static_cast<unsigned char>(rest[0]))) {
        begins_line_ = begins_line_ || rest[0] == '\n';
        ++at_;
      } else {
        return true;
      }
    }
    return false;
  }

  StatusOr<Token> Next() {
    const size_t begin = at_;
    const char first = text_[at_];
    if (first == '"') return String();
    if (first == '/') return Regex();
    if (IsNameChar(first)) {
      while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
      const std::string word(text_.substr(begin, at_ - begin));
      const bool is_number =
          std::all_of(word.begin(), word.end(),
                      [](unsigned char c) { return absl::ascii_isdigit(c); });
      return Token{is_number ? Kind::kDigits : Kind::kName, word, begin, false};
    }
    for (const std::string_view sign : {"->", ".."}) {
      if (!text_.substr(at_).starts_with(sign)) continue;
      at_ += sign.size();
      return Token{Kind::kSign, std::string(sign), begin, false};
    }
    ++at_;
    return Token{Kind::kSign, std::string(1, first), begin, false};
  }

  // Moves behind the closing `quote`. False: there is none.
  bool FindEnd(char quote) {
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == quote) {
        ++at_;
        return true;
      }
    }
    return false;
  }

  StatusOr<Token> String() {
    const size_t begin = at_;
    if (!FindEnd('"')) {
      return InvalidArgument("the string at byte ", begin, " has no end");
    }
    const auto text = ParseJson(text_.substr(begin, at_ - begin));
    if (!text.ok() || !text->is_string()) {
      return InvalidArgument("the string at byte ", begin, " is malformed");
    }
    if (at_ < text_.size() && text_[at_] == 'i') {
      return Unimplemented("the string at byte ", begin, " has the flag i");
    }
    return Token{Kind::kString, text->get<std::string>(), begin, false};
  }

  StatusOr<Token> Regex() {
    const size_t begin = at_;
    if (!FindEnd('/')) {
      return InvalidArgument("the expression at byte ", begin, " has no end");
    }
    const std::string body(text_.substr(begin + 1, at_ - begin - 2));
    if (at_ < text_.size() && IsNameChar(text_[at_])) {
      return Unimplemented("the expression at byte ", begin, " has flags");
    }
    if (HasLookaround(body)) {
      return Unimplemented("the expression at byte ", begin,
                           " has a look-around");
    }
    return Token{Kind::kRegex, body, begin, false};
  }

  const std::string_view text_;
  size_t at_ = 0;
  bool begins_line_ = true;
};

// Reads the rules, and writes the expression of a rule where another one needs
// it.
class Writer {
 public:
  explicit Writer(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  StatusOr<std::string> Write() {
    SLUICE_RETURN_IF_ERROR(FindRules());
    SLUICE_ASSIGN_OR_RETURN(const std::string start, RuleText("start", 0));
    if (start.size() > kMaxLarkRegexBytes) return TooLarge();
    return Cat("^", start, "$");
  }

 private:
  struct Rule {
    size_t body = 0;  // its first token
    bool is_open = false;
    std::optional<std::string> text;
  };

  const Token& Peek(size_t more = 0) const {
    return tokens_[std::min(at_ + more, tokens_.size() - 1)];
  }
  bool IsSign(std::string_view sign, size_t more = 0) const {
    return Peek(more).kind == Kind::kSign && Peek(more).text == sign;
  }
  bool Takes(std::string_view sign) {
    if (!IsSign(sign)) return false;
    ++at_;
    return true;
  }
  Status Unexpected() const {
    return InvalidArgument("unexpected text at byte ", Peek().at);
  }
  static Status TooLarge() {
    return Unimplemented("as one expression it has more than ",
                         kMaxLarkRegexBytes, " bytes");
  }

  // A rule begins here, on a line of its own: name, priority, colon.
  bool IsRule() const {
    if (!Peek().begins_line) return false;
    const size_t modifier = IsSign("?") || IsSign("!") ? 1 : 0;
    if (Peek(modifier).kind != Kind::kName) return false;
    if (IsSign(".", modifier + 1)) return IsSign(":", modifier + 3);
    return IsSign(":", modifier + 1);
  }

  Status FindRules() {
    while (Peek().kind != Kind::kEnd) {
      if (Takes("%")) {
        SLUICE_RETURN_IF_ERROR(ReadStatement());
        continue;
      }
      if (!IsRule()) return Unexpected();
      if (IsSign("?") || IsSign("!")) ++at_;
      const Token& name = Peek();
      while (!Takes(":")) ++at_;
      const auto added = rules_.emplace(name.text, Rule{at_, false, {}});
      if (!added.second) {
        return InvalidArgument("rule ", name.text, " is defined twice");
      }
      while (Peek().kind != Kind::kEnd && !IsSign("%") && !IsRule()) ++at_;
    }
    return OkStatus();
  }

  // %import common.NAME [-> NAME], %import common (NAME, ..).
  Status ReadStatement() {
    if (Peek().text != "import") {
      return Unimplemented("the statement at byte ", Peek().at);
    }
    ++at_;
    if (Peek().text != "common") return Unexpected();
    ++at_;
    if (Takes(".")) {
      const Token name = Peek();
      ++at_;
      std::string as = name.text;
      if (Takes("->")) {
        as = Peek().text;
        ++at_;
      }
      return Import(name, as);
    }
    if (!Takes("(")) return Unexpected();
    while (!Takes(")")) {
      const Token name = Peek();
      if (name.kind != Kind::kName) return Unexpected();
      ++at_;
      SLUICE_RETURN_IF_ERROR(Import(name, name.text));
      Takes(",");
    }
    return OkStatus();
  }

  Status Import(const Token& name, const std::string& as) {
    const auto found =
        std::find_if(std::begin(kCommon), std::end(kCommon),
                     [&](const auto& one) { return one.first == name.text; });
    if (found == std::end(kCommon)) {
      return Unimplemented("the import at byte ", name.at);
    }
    rules_[as] = {0, false, std::string(found->second)};
    return OkStatus();
  }

  StatusOr<std::string> RuleText(const std::string& name, int level) {
    const auto found = rules_.find(name);
    if (found == rules_.end()) {
      return InvalidArgument("there is no rule ", name.substr(0, 64));
    }
    Rule& rule = found->second;
    if (rule.text) return *rule.text;
    if (rule.is_open) {
      return Unimplemented("rule ", name.substr(0, 64), " contains itself");
    }
    rule.is_open = true;
    const size_t back = std::exchange(at_, rule.body);
    SLUICE_ASSIGN_OR_RETURN(std::string text, Alternatives(level + 1));
    if (Peek().kind != Kind::kEnd && !IsSign("%") && !IsRule()) {
      return Unexpected();
    }
    at_ = back;
    rule.text = std::move(text);
    return *rule.text;
  }

  StatusOr<std::string> Alternatives(int level) {
    if (level > kMaxNesting) {
      return Unimplemented("more than ", kMaxNesting,
                           " groups and rules within one another");
    }
    std::string all;
    bool is_first = true;
    do {
      SLUICE_ASSIGN_OR_RETURN(const std::string one, Sequence(level));
      all += Cat(is_first ? "" : "|", one);
      is_first = false;
      if (all.size() > kMaxLarkRegexBytes) return TooLarge();
      SLUICE_RETURN_IF_ERROR(Spend(one.size() + 1));
    } while (Takes("|"));
    return Cat("(?:", all, ")");
  }

  StatusOr<std::string> Sequence(int level) {
    std::string all;
    while (!IsSign("|") && !IsSign(")") && !IsSign("]") && !IsSign("%") &&
           Peek().kind != Kind::kEnd && !IsRule()) {
      // The name of the branch in Lark's tree.
      if (Takes("->")) {
        ++at_;
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(std::string item, Item(level));
      all += item;
      SLUICE_RETURN_IF_ERROR(Spend(item.size()));
    }
    return all;
  }

  StatusOr<std::string> Item(int level) {
    SLUICE_ASSIGN_OR_RETURN(std::string atom, Atom(level));
    if (IsRule()) return atom;
    for (const char* sign : {"?", "*", "+"}) {
      if (Takes(sign)) return Cat("(?:", atom, ")", sign);
    }
    if (Takes("~")) {
      SLUICE_ASSIGN_OR_RETURN(const int64_t low, Count());
      int64_t high = low;
      if (Takes("..")) {
        SLUICE_ASSIGN_OR_RETURN(high, Count());
      }
      return Cat("(?:", atom, "){", low, ",", high, "}");
    }
    if (!Takes("{")) return atom;
    SLUICE_ASSIGN_OR_RETURN(const int64_t low, Count());
    std::string high = Cat(low);
    if (Takes(",")) {
      high.clear();
      if (!IsSign("}")) {
        SLUICE_ASSIGN_OR_RETURN(const int64_t most, Count());
        high = Cat(most);
      }
    }
    if (!Takes("}")) return Unexpected();
    return Cat("(?:", atom, "){", low, ",", high, "}");
  }

  StatusOr<int64_t> Count() {
    const Token& token = Peek();
    int64_t count = -1;
    const char* const end = token.text.data() + token.text.size();
    const auto parsed = std::from_chars(token.text.data(), end, count);
    if (token.kind != Kind::kDigits || parsed.ptr != end ||
        count > kMaxRepeats) {
      return InvalidArgument("at byte ", token.at,
                             " must be a number of repeats from 0 to ",
                             kMaxRepeats);
    }
    ++at_;
    return count;
  }

  StatusOr<std::string> Atom(int level) {
    const Token token = Peek();
    const bool is_group = IsSign("(") || IsSign("[");
    if (is_group) {
      const bool is_optional = token.text == "[";
      ++at_;
      SLUICE_ASSIGN_OR_RETURN(const std::string all, Alternatives(level + 1));
      if (!Takes(is_optional ? "]" : ")")) return Unexpected();
      return is_optional ? Cat(all, "?") : all;
    }
    ++at_;
    switch (token.kind) {
      case Kind::kName:
        return RuleText(token.text, level);
      case Kind::kRegex:
        return Cat("(?:", token.text, ")");
      case Kind::kString:
        if (Takes("..")) {
          const Token last = Peek();
          ++at_;
          if (last.kind != Kind::kString || last.text.size() != 1 ||
              token.text.size() != 1 || last.text < token.text) {
            return InvalidArgument("the range at byte ", token.at,
                                   " must be of two characters of ASCII");
          }
          return Cat("[", EscapedRegex(token.text), "-",
                     EscapedRegex(last.text), "]");
        }
        return Cat("(?:", EscapedRegex(token.text), ")");
      default:
        return Unimplemented("the text at byte ", token.at);
    }
  }

  Status Spend(size_t bytes) {
    spent_ += bytes;
    return spent_ <= kMaxSpentBytes && bytes <= kMaxLarkRegexBytes ? OkStatus()
                                                                   : TooLarge();
  }

  const std::vector<Token> tokens_;
  std::map<std::string, Rule, std::less<>> rules_;
  size_t at_ = 0;
  size_t spent_ = 0;
};

}  // namespace

bool HasLookaround(std::string_view regex) {
  bool in_class = false;
  for (size_t at = 0; at < regex.size(); ++at) {
    if (regex[at] == '\\') {
      ++at;
    } else if (regex[at] == '[' || regex[at] == ']') {
      in_class = regex[at] == '[';
    } else if (!in_class) {
      const std::string_view rest = regex.substr(at);
      for (const std::string_view sign : {"(?=", "(?!", "(?<=", "(?<!"}) {
        if (rest.starts_with(sign)) return true;
      }
    }
  }
  return false;
}

StatusOr<std::string> RegexOfLark(std::string_view lark) {
  if (lark.size() > kMaxTextBytes) {
    return InvalidArgument("has ", lark.size(), " bytes, limit ",
                           kMaxTextBytes);
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Lexer(lark).All());
  return Writer(std::move(tokens)).Write();
}

}  // namespace sluice
