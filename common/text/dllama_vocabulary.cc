#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/utf8.h"
#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

constexpr uint32_t kMagic = 0x567124;
constexpr uint32_t kOldMagic = 0x567123;  // five numbers instead of pairs
constexpr int32_t kMaxTokens = 1 << 21;
constexpr int32_t kMaxDllamaTokenBytes = 1 << 16;
constexpr int32_t kMaxTemplateBytes = 1 << 24;
constexpr int32_t kMaxEosIds = 1 << 10;

// Keys of the header.
enum Key : int32_t {
  kVersion,
  kVocabSize,
  kMaxTokenLength,
  kBosId,
  kEosId,
  kPadId,
  kChatEosId,
  kChatTemplate,
  kChatStop,
  kNumEosIds,
  kAddBos,
  kNumKeys
};
constexpr std::string_view kNames[kNumKeys] = {
    "version",   "vocab_size",   "max_token_length", "bos_id",
    "eos_id",    "pad_id",       "chat_eos_id",      "chat_template",
    "chat_stop", "n_eos_tokens", "add_bos"};

// What a .t file says.
struct DllamaTokenizer {
  int32_t version = 1;
  int32_t vocab_size = 0;
  int32_t bos = -1;
  bool add_bos = true;
  std::vector<TokenId> eos_ids;
  std::string chat_template;
  std::vector<std::string> tokens;  // bytes
  std::vector<float> scores;
};

// Reads a file front to back.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  StatusOr<std::string> Bytes(int64_t size, std::string_view what) {
    const auto left = static_cast<int64_t>(bytes_.size() - at_);
    if (size < 0 || size > left) {
      return InvalidArgument(what, " needs ", size, " bytes at ", at_, ", ",
                             left, " are left of ", bytes_.size());
    }
    std::string taken(bytes_.substr(at_, static_cast<size_t>(size)));
    at_ += static_cast<size_t>(size);
    return taken;
  }

  template <typename T>
  StatusOr<T> Number(std::string_view what) {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes, Bytes(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  // Reads a number within limits.
  StatusOr<int32_t> Number(std::string_view what, int32_t min, int32_t max) {
    SLUICE_ASSIGN_OR_RETURN(const auto value, Number<int32_t>(what));
    SLUICE_RETURN_IF_ERROR(Check(what, value, min, max));
    return value;
  }

  static Status Check(std::string_view what, int32_t value, int32_t min,
                      int32_t max) {
    if (value >= min && value <= max) return OkStatus();
    return InvalidArgument(what, " is ", value, ", limits ", min, " and ", max);
  }

  size_t left() const { return bytes_.size() - at_; }

 private:
  const std::string_view bytes_;
  size_t at_ = 0;
};

// Lengths of what follows the pairs.
struct Lengths {
  int32_t chat_template = 0;
  int32_t chat_stop = 0;
  int32_t eos_ids = 0;
};

Status ReadPair(Reader& from, DllamaTokenizer& to, Lengths& lengths) {
  SLUICE_ASSIGN_OR_RETURN(const int32_t key,
                          from.Number("header key", 0, kNumKeys - 1));
  const std::string_view name = kNames[key];
  SLUICE_ASSIGN_OR_RETURN(const auto value, from.Number<int32_t>(name));
  const auto check = [&](int32_t min, int32_t max) {
    return Reader::Check(name, value, min, max);
  };
  switch (key) {
    case kVersion:
      to.version = value;
      return check(1, 1);
    case kVocabSize:
      to.vocab_size = value;
      return check(1, kMaxTokens);
    case kBosId:
      to.bos = value;
      return check(-1, kMaxTokens);
    case kEosId:
    case kChatEosId:
      to.eos_ids.push_back(value);
      return check(0, kMaxTokens);
    case kChatTemplate:
      lengths.chat_template = value;
      return check(0, kMaxTemplateBytes);
    case kChatStop:
      lengths.chat_stop = value;
      return check(0, kMaxTemplateBytes);
    case kNumEosIds:
      lengths.eos_ids = value;
      return check(0, kMaxEosIds);
    case kAddBos:
      to.add_bos = value == 1;
      return check(0, 1);
    default:
      return OkStatus();  // says nothing that the tokens do not
  }
}

// Reads the pairs, and what follows before the tokens.
Status ReadHeader(Reader& from, DllamaTokenizer& to) {
  constexpr int32_t kFixed = 8;  // the magic and the size
  constexpr int32_t kMost = kFixed + 8 * 64;
  SLUICE_ASSIGN_OR_RETURN(const int32_t size,
                          from.Number("header's size", kFixed, kMost));
  if (size % 8 != 0) {
    return InvalidArgument("header's size is ", size,
                           ", expected a multiple of 8");
  }
  Lengths lengths;
  to.version = 0;
  for (int32_t at = kFixed; at < size; at += 8) {
    SLUICE_RETURN_IF_ERROR(ReadPair(from, to, lengths));
  }
  if (to.version != 1) {
    return InvalidArgument("version is ", to.version, ", supported is 1");
  }
  SLUICE_ASSIGN_OR_RETURN(to.chat_template,
                          from.Bytes(lengths.chat_template, "chat_template"));
  SLUICE_RETURN_IF_ERROR(from.Bytes(lengths.chat_stop, "chat_stop").status());
  for (int32_t i = 0; i < lengths.eos_ids; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const int32_t id,
                            from.Number("eos id", 0, kMaxTokens));
    to.eos_ids.push_back(id);
  }
  return OkStatus();
}

Status ReadOldHeader(Reader& from, DllamaTokenizer& to) {
  SLUICE_ASSIGN_OR_RETURN(to.vocab_size,
                          from.Number("vocab_size", 1, kMaxTokens));
  SLUICE_RETURN_IF_ERROR(from.Number<int32_t>("max_token_length").status());
  SLUICE_ASSIGN_OR_RETURN(to.bos, from.Number("bos_id", -1, kMaxTokens));
  SLUICE_ASSIGN_OR_RETURN(const int32_t eos,
                          from.Number("eos_id", 0, kMaxTokens));
  to.eos_ids.push_back(eos);
  return from.Number<int32_t>("pad_id").status();
}

StatusOr<DllamaTokenizer> ReadTokenizer(std::string_view bytes) {
  Reader from(bytes);
  DllamaTokenizer to;
  SLUICE_ASSIGN_OR_RETURN(const auto magic, from.Number<uint32_t>("magic"));
  if (magic != kMagic && magic != kOldMagic) {
    return InvalidArgument("magic ", magic,
                           " is no tokenizer of distributed-llama, whose are ",
                           kMagic, " and ", kOldMagic);
  }
  SLUICE_RETURN_IF_ERROR(magic == kMagic ? ReadHeader(from, to)
                                         : ReadOldHeader(from, to));
  // A token has a score and a length.
  if (static_cast<size_t>(to.vocab_size) > from.left() / 8) {
    return InvalidArgument("vocab_size is ", to.vocab_size, ", ", from.left(),
                           " bytes are left for tokens of 8 at least");
  }
  to.eos_ids.erase(std::unique(to.eos_ids.begin(), to.eos_ids.end()),
                   to.eos_ids.end());
  for (const TokenId id : to.eos_ids) {
    SLUICE_RETURN_IF_ERROR(Reader::Check("eos id", id, 0, to.vocab_size - 1));
  }
  SLUICE_RETURN_IF_ERROR(
      Reader::Check("bos_id", to.bos, -1, to.vocab_size - 1));
  for (int32_t id = 0; id < to.vocab_size; ++id) {
    const std::string what = Cat("token ", id);
    SLUICE_ASSIGN_OR_RETURN(const auto score, from.Number<float>(what));
    SLUICE_ASSIGN_OR_RETURN(
        const int32_t size,
        from.Number(what + "'s length", 0, kMaxDllamaTokenBytes));
    SLUICE_ASSIGN_OR_RETURN(std::string token, from.Bytes(size, what));
    to.scores.push_back(score == score ? score : 0.0f);
    to.tokens.push_back(std::move(token));
  }
  if (from.left() > 0) {
    return InvalidArgument(from.left(), " bytes are behind the last of ",
                           to.vocab_size, " tokens");
  }
  return to;
}

std::string ByteToken(int byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

// Whether the tokens are sentencepiece's: three control tokens, then all bytes.
bool IsSentencePiece(const std::vector<std::string>& tokens) {
  constexpr size_t kFirst = 3;
  if (tokens.size() < kFirst + 256) return false;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& token = tokens[kFirst + static_cast<size_t>(byte)];
    const bool is_raw =
        token.size() == 1 && static_cast<uint8_t>(token[0]) == byte;
    if (!is_raw && token != ByteToken(byte)) return false;
  }
  return true;
}

void AddSentencePiece(const DllamaTokenizer& from, VocabularySpec& to) {
  for (size_t id = 0; id < from.tokens.size(); ++id) {
    TokenKind kind = TokenKind::kNormal;
    std::string text;
    if (id < 3) {
      kind = id == 0 ? TokenKind::kUnknown : TokenKind::kControl;
      text = from.tokens[id];
    } else if (id < 3 + 256) {
      kind = TokenKind::kByte;
      text = ByteToken(static_cast<int>(id) - 3);
    } else {
      // dllama has spaces for sentencepiece's marks.
      for (const char c : from.tokens[id]) {
        if (c == ' ') {
          text += kSpaceMark;
        } else {
          text += c;
        }
      }
    }
    to.tokens.push_back(std::move(text));
    to.kinds.push_back(kind);
  }
  to.unk = 0;
}

// Special tokens are spelled "<|im_end|>", also with fullwidth bars; others
// ("<think>") are part of an answer's text.
TokenKind KindOfAdded(std::string_view token) {
  const bool is_special =
      token.starts_with("<|") || token.starts_with("<\xEF\xBD\x9C");
  return is_special ? TokenKind::kControl : TokenKind::kUserDefined;
}

// dllama takes the ids from bos on as added tokens. The file does not say how
// a text is split: the numbers of other tokens tell Llama 3's and Qwen's.
// Others are merged without splits, as dllama does with all.
Status AddByteLevel(const DllamaTokenizer& from, VocabularySpec& to) {
  to.byte_level = true;
  const size_t first =
      from.bos < 0 ? from.tokens.size() : static_cast<size_t>(from.bos);
  for (size_t id = 0; id < from.tokens.size(); ++id) {
    const std::string& token = from.tokens[id];
    if (token.empty()) {
      to.tokens.push_back(Cat("[PAD", id, "]"));
      to.kinds.push_back(TokenKind::kUnused);
    } else if (id < first) {
      to.tokens.push_back(ByteLevelText(token));
      to.kinds.push_back(TokenKind::kNormal);
    } else {
      to.tokens.push_back(token);
      to.kinds.push_back(KindOfAdded(token));
    }
  }
  if (from.bos != kLlama3Tokens && from.bos != kQwenTokens) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(
      PreTokenizerRule rule,
      PreTokenizerByName(from.bos == kQwenTokens ? "qwen2" : "llama-bpe"));
  to.patterns = std::move(rule.patterns);
  to.ignore_merges = rule.ignore_merges;
  to.nfc = from.bos == kQwenTokens;
  return OkStatus();
}

}  // namespace

StatusOr<TextSource> FromDllama(std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(const DllamaTokenizer from, ReadTokenizer(bytes));
  VocabularySpec spec;
  if (IsSentencePiece(from.tokens)) {
    AddSentencePiece(from, spec);
  } else {
    SLUICE_RETURN_IF_ERROR(AddByteLevel(from, spec));
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (FirstInvalidUtf8(spec.tokens[id]) == std::string_view::npos) continue;
    return InvalidArgument("token ", id, " is not UTF-8");
  }
  spec.merges = MergesFromScores(spec.tokens, spec.kinds, from.scores);
  TextSource source;
  if (from.bos >= 0) {
    spec.bos = from.bos;
    spec.add_bos = from.add_bos;
    source.bos_token = spec.tokens[static_cast<size_t>(from.bos)];
  }
  if (!from.eos_ids.empty()) {
    spec.eos = from.eos_ids.front();
    source.eos_token = spec.tokens[static_cast<size_t>(*spec.eos)];
    source.eos_ids.assign(from.eos_ids.begin() + 1, from.eos_ids.end());
  }
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json, ToTokenizerJson(spec));
  return source;
}

StatusOr<std::string> ChatTemplateOfDllama(std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(DllamaTokenizer from, ReadTokenizer(bytes));
  return std::move(from.chat_template);
}

}  // namespace sluice
