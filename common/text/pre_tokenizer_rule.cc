#include <array>
#include <span>

#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

#define SLUICE_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SLUICE_SPACES R"(|\s+(?!\S)|\s+)"
#define SLUICE_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define SLUICE_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define SLUICE_OTHER_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define SLUICE_OTHER_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define SLUICE_MARK R"([^\r\n\p{L}\p{N}]?)"

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)" SLUICE_SPACES;
constexpr char kLlama3[] = SLUICE_CONTRACTIONS
    "|" SLUICE_MARK R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kQwen2[] = SLUICE_CONTRACTIONS
    "|" SLUICE_MARK R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kQwen35[] = SLUICE_CONTRACTIONS
    "|" SLUICE_MARK R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kMiniCpm5[] = SLUICE_CONTRACTIONS
    "|" SLUICE_MARK R"(\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kUfakzeka[] = SLUICE_MARK
    R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kBailing[] =
    "'(?i:[sdmt]|ll|ve|re)|" SLUICE_MARK
    R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n])" SLUICE_SPACES;
constexpr char kSeedCoder[] = SLUICE_CONTRACTIONS
    "|" SLUICE_MARK
    R"(\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kExaoneMoe[] = SLUICE_CONTRACTIONS
    "|" SLUICE_MARK R"((?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n])" SLUICE_SPACES;
constexpr char kO200k[] = SLUICE_MARK SLUICE_UPPER
    "*" SLUICE_LOWER "+" SLUICE_CONTRACTIONS "?|" SLUICE_MARK SLUICE_UPPER
    "+" SLUICE_LOWER "*" SLUICE_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kO200kDigit[] = SLUICE_MARK SLUICE_UPPER
    "*" SLUICE_LOWER "+" SLUICE_CONTRACTIONS "?|" SLUICE_MARK SLUICE_UPPER
    "+" SLUICE_LOWER "*" SLUICE_CONTRACTIONS
    R"(?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kTekken[] = SLUICE_MARK SLUICE_UPPER
    "*" SLUICE_LOWER "+|" SLUICE_MARK SLUICE_UPPER "+" SLUICE_LOWER
    R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kKimiK2[] =
    R"([\p{Han}]+|)" SLUICE_MARK SLUICE_OTHER_UPPER "*" SLUICE_OTHER_LOWER
    "+" SLUICE_CONTRACTIONS "?|" SLUICE_MARK SLUICE_OTHER_UPPER
    "+" SLUICE_OTHER_LOWER "*" SLUICE_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kDeepSeek3[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+)" SLUICE_SPACES;
constexpr char kSpark[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n])" SLUICE_SPACES;
constexpr char kJais2[] = SLUICE_CONTRACTIONS
    "|" SLUICE_MARK R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S))"
    R"(|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
    R"(|\s{1,2}(?!\S)|\s{1})";
constexpr char kBloom[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr char kPunctuation[] = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr char kFalconPunctuation[] = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr char kThreeDigits[] = "[0-9][0-9][0-9]";
constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits[] = R"(\p{N}+)";
constexpr char kUpTo3Digits[] = R"(\p{N}{1,3})";
// Threes that count from a number's end.
constexpr char kDigitsFromEnd[] = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr char kThreesFromEnd[] = R"((?=(\d{3})+(?!\d)))";
constexpr char kNumeralsFromEnd[] =
    R"(\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?:\P{Nd}|$)))";
constexpr char kLineBreak[] = R"([\r\n])";
constexpr char kLines[] = R"([^\n]+|[\n]+)";
constexpr char kKana[] = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr char kCjk[] = "[一-龥ࠀ-一가-퟿]+";
constexpr char kEndSpaces[] = R"(\s+$)";
constexpr char kLetters[] = R"(\s?\p{L}+)";
constexpr char kSigns[] = R"(\s?\p{P}+)";
constexpr char kDeepSeekSigns[] = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr char kDeepSeekLetters[] =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽ)"
    R"(ͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-Ჺ)"
    R"(Ჽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώ)"
    R"(ᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓ)"
    R"(ℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮ)"
    R"(ⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀)"
    R"(-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";

constexpr char kAsian[] =
    R"([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟)"
    R"(ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)";

constexpr char kYoutuAsian[] =
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+)"
    R"(|[一-龥぀-ゟ゠-ヿ]+)";

// At most this many patterns split a text in turn.
constexpr size_t kMaxPatterns = 6;

struct NamedRule {
  std::string_view name;
  std::array<std::string_view, kMaxPatterns> patterns;
  bool ignore_merges = false;
  bool add_bos = false;
};

// The names of decoders' vocabularies that llama.cpp's converter writes, with
// the splits of the released tokenizers. Of names with the same splits a file
// that is written gets the first.
constexpr NamedRule kRules[] = {
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"falcon-h1", {kLlama3}, true, true},
    {"pixtral", {kLlama3}, true, true},
    {"midm-2.0", {kLlama3}, true, true},
    {"lfm2", {kLlama3}, true, true},
    {"glm4", {kLlama3}, true},
    {"glm5", {kLlama3}, true},
    {"chatglm-bpe", {kLlama3}},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"hunyuan", {kQwen2}},
    {"megrez", {kQwen2}},
    {"grok-2", {kQwen2}},
    {"solar-open", {kQwen2}},
    {"kormo", {kQwen2}},
    {"f2llmv2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"ufakzeka", {kUfakzeka}},
    {"gpt-4o", {kO200k}},
    {"llama4", {kO200k}},
    {"kanana2", {kO200k}},
    {"talkie", {kO200k}},
    {"minimax-m2", {kO200k}},
    {"tekken", {kTekken}, true, true},
    {"kimi-k2", {kKimiK2}},
    {"deepseek-v3", {kUpTo3Digits, kKana, kDeepSeek3}},
    {"hunyuan-dense", {kUpTo3Digits, kKana, kDeepSeek3}},
    {"joyai-llm", {kUpTo3Digits, kKana, kDeepSeek3}},
    {"hy_v4", {kUpTo3Digits, kKana, kDeepSeek3}},
    {"deepseek-llm",
     {kLineBreak, kDeepSeekLetters, kDeepSeekSigns, kEndSpaces, kCjk, kDigits}},
    {"deepseek-coder", {kLineBreak, kLetters, kSigns, kCjk, kDigit}},
    {"spark2_5", {kUpTo3Digits, kKana, kSpark, kDigit}},
    {"youtu", {kYoutuAsian, kO200kDigit}, true},
    {"bailingmoe", {kBailing}},
    {"bailingmoe2", {kBailing}},
    {"llada-moe", {kBailing}},
    {"seed-coder", {kSeedCoder}},
    {"minicpm5", {kUpTo3Digits, kMiniCpm5}, true},
    {"exaone-moe", {kExaoneMoe}},
    {"tiny_aya", {kDigitsFromEnd, kO200k}},
    {"cohere2moe", {kDigitsFromEnd, kO200k}},
    {"afmoe", {kNumeralsFromEnd, kAsian, kDeepSeek3}},
    {"laguna", {kLines, kQwen2}},
    {"superbpe", {kDigits, kThreesFromEnd}},
    {"jais-2", {kJais2}},
    {"gpt-2", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"olmo", {kGpt2}},
    {"mpt", {kGpt2}},
    {"jais", {kGpt2}},
    {"exaone4", {kGpt2}},
    {"gigachat", {kGpt2}},
    {"a.x-4.0", {kGpt2}},
    {"mellum", {kGpt2}},
    {"trillion", {kGpt2}},
    {"modern-bert", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"smollm", {kDigit, kGpt2}},
    {"starcoder", {kDigit, kGpt2}},
    {"refact", {kDigit, kGpt2}},
    {"command-r", {kDigit, kGpt2}},
    {"codeshell", {kDigit, kGpt2}},
    {"exaone", {kDigit, kGpt2}},
    {"minerva-7b", {kDigit, kGpt2}},
    {"mellum2", {kDigit, kGpt2}},
    {"falcon", {kFalconPunctuation, kGpt2, kThreeDigits}},
    {"bloom", {kBloom}},
    {"poro-chat", {kBloom}},
    {"gpt3-finnish", {kBloom}},
    {"viking", {kBloom, kDigit}},
    {"chameleon",
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
      R"(([\t\n]|    |  ))", kDigit, R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
     false,
     true},
    {"default", {kPunctuation, kGpt2, kDigits, kThreeDigits}},
};

#undef SLUICE_CONTRACTIONS
#undef SLUICE_SPACES
#undef SLUICE_UPPER
#undef SLUICE_LOWER
#undef SLUICE_OTHER_UPPER
#undef SLUICE_OTHER_LOWER
#undef SLUICE_MARK

std::vector<std::string> PatternsOf(const NamedRule& rule) {
  std::vector<std::string> patterns;
  for (const std::string_view pattern : rule.patterns) {
    if (!pattern.empty()) patterns.emplace_back(pattern);
  }
  return patterns;
}

// Returns `pattern` with its raw line breaks as escapes.
std::string WithEscapedBreaks(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == '\r') out += "\\r";
    if (c == '\n') out += "\\n";
    if (c != '\r' && c != '\n') out += c;
  }
  return out;
}

}  // namespace

StatusOr<PreTokenizerRule> PreTokenizerByName(std::string_view pre) {
  std::string known;
  for (const NamedRule& named : kRules) {
    if (named.name == pre) {
      return PreTokenizerRule{PatternsOf(named), named.ignore_merges,
                              named.add_bos};
    }
    known += Cat(known.empty() ? "" : ", ", named.name);
  }
  return Unimplemented("tokenizer.ggml.pre \"", pre, "\"; known are ", known);
}

std::vector<std::string> PreTokenizerNames() {
  std::vector<std::string> names;
  for (const NamedRule& named : kRules) names.emplace_back(named.name);
  return names;
}

StatusOr<std::string> PreTokenizerNameOf(
    const std::vector<std::string>& patterns, bool ignore_merges,
    bool has_bos) {
  std::vector<std::string> plain;
  std::string all;
  for (const std::string& pattern : patterns) {
    plain.push_back(WithEscapedBreaks(pattern));
    all += Cat(all.empty() ? "" : ", then ", pattern);
  }
  // Llama 3's patterns without whole tokens: llama.cpp gives these names no
  // bos, or the file's.
  if (plain == std::vector<std::string>{kLlama3} && !ignore_merges) {
    return std::string(has_bos ? "smaug-bpe" : "dbrx");
  }
  const NamedRule* found = nullptr;
  for (const NamedRule& named : kRules) {
    if (PatternsOf(named) != plain) continue;
    if (named.ignore_merges == ignore_merges) return std::string(named.name);
    if (found == nullptr) found = &named;
  }
  if (found != nullptr) return std::string(found->name);
  if (all.empty()) all = "nothing";
  return Unimplemented("pre_tokenizer splits by ", all,
                       ", which no tokenizer.ggml.pre is known for; "
                       "--pre-tokenizer names one");
}

}  // namespace sluice
