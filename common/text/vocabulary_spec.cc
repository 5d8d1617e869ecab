#include "common/text/vocabulary_spec.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>

#include "common/text/utf8.h"

namespace sluice {
namespace {

// The longest token that is cut into merges.
constexpr size_t kMaxMergedBytes = 512;

void AppendQuoted(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20) {
      out.append("\\u00");
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

std::string Quoted(std::string_view text) {
  std::string out;
  AppendQuoted(text, out);
  return out;
}

std::string HexDigits(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    out.push_back(kHex[byte >> 4]);
    out.push_back(kHex[byte & 15]);
  }
  return out;
}

std::string ByteLevelParts(const VocabularySpec& spec) {
  std::string out =
      Cat("\"normalizer\":", spec.nfc ? R"({"type":"NFC"})" : "null",
          R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)");
  for (const std::string& pattern : spec.patterns) {
    out += R"({"type":"Split","behavior":"Isolated","invert":false,)"
           R"("pattern":{"Regex":)" +
           Quoted(pattern) + "}},";
  }
  const std::string byte_level =
      R"({"type":"ByteLevel","add_prefix_space":false,)"
      R"("trim_offsets":true,"use_regex":false})";
  return out + byte_level + R"(]},"decoder":)" + byte_level + ",";
}

std::string ReplaceStep(std::string_view text, std::string_view content) {
  return Cat(R"({"type":"Replace","pattern":{"String":)", Quoted(text),
             R"(},"content":)", Quoted(content), "}");
}

// The bridge's own normalizer, for what the crate's steps cannot do.
std::string OwnNormalizer(const VocabularySpec& spec) {
  std::string symbols;
  for (size_t id = 0; spec.keeps_user_defined && id < spec.tokens.size();
       ++id) {
    if (spec.kinds[id] != TokenKind::kUserDefined) continue;
    symbols += Cat(symbols.empty() ? "" : ",", Quoted(spec.tokens[id]));
  }
  const auto flag = [](bool is) { return is ? "true" : "false"; };
  return Cat(R"({"type":"SentencePiece","adds_space":)",
             flag(spec.add_space_prefix), R"(,"collapses":)",
             flag(spec.collapse_spaces), R"(,"is_suffix":)",
             flag(spec.space_is_suffix), R"(,"symbols":[)", symbols,
             R"(],"map":")", HexDigits(spec.charsmap), "\"}");
}

std::string SentencePieceParts(const VocabularySpec& spec) {
  // The crate would normalize user-defined tokens, too.
  const bool has_symbols =
      spec.keeps_user_defined &&
      std::find(spec.kinds.begin(), spec.kinds.end(),
                TokenKind::kUserDefined) != spec.kinds.end();
  const bool is_own = !spec.charsmap.empty() || spec.collapse_spaces ||
                      spec.space_is_suffix || has_symbols;
  std::string normalizer = R"({"type":"Sequence","normalizers":[)";
  if (spec.add_space_prefix) {
    normalizer += Cat(R"({"type":"Prepend","prepend":")", kSpaceMark, "\"},");
  }
  normalizer += ReplaceStep(" ", kSpaceMark) + "]}";
  std::string strip;
  if (spec.add_space_prefix && !spec.space_is_suffix) {
    strip = R"(,{"type":"Strip","content":" ","start":1,"stop":0})";
  }
  return Cat("\"normalizer\":", is_own ? OwnNormalizer(spec) : normalizer,
             R"(,"pre_tokenizer":null,"decoder":{"type":"Sequence",)",
             R"("decoders":[)", ReplaceStep(kSpaceMark, " "),
             R"(,{"type":"ByteFallback"},{"type":"Fuse"})", strip, "]},");
}

// Returns the post-processor of [BOS] text [EOS].
std::string PostProcessor(const VocabularySpec& spec) {
  std::string single;
  std::string specials;
  const auto add = [&](TokenId id) {
    const std::string name = Quoted(spec.tokens[static_cast<size_t>(id)]);
    single += R"({"SpecialToken":{"type_id":0,"id":)" + name + "}},";
    if (!specials.empty()) specials += ",";
    specials += name + ":{\"id\":" + name + ",\"ids\":[" + Cat(id) +
                "],\"tokens\":[" + name + "]}";
  };
  if (spec.add_bos && spec.bos) add(*spec.bos);
  single += R"({"Sequence":{"id":"A","type_id":0}},)";
  if (spec.add_eos && spec.eos && spec.eos != spec.bos) add(*spec.eos);
  single.pop_back();
  if (specials.empty()) return R"("post_processor":null,)";
  return R"("post_processor":{"type":"TemplateProcessing","single":[)" +
         single +
         R"(],"pair":[{"Sequence":{"id":"A","type_id":0}},)"
         R"({"Sequence":{"id":"B","type_id":1}}],"special_tokens":{)" +
         specials + "}},";
}

std::string AddedTokens(const VocabularySpec& spec) {
  std::string out;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenKind kind = spec.kinds[id];
    const bool special =
        kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!special && kind != TokenKind::kUserDefined) continue;
    // Runs of spaces are cut out of the text that has marks for spaces.
    const bool in_normalized =
        !spec.byte_level && !special &&
        (spec.keeps_user_defined ||
         spec.tokens[id].find(kSpaceMark) != std::string::npos);
    if (!out.empty()) out += ",";
    out += Cat(R"({"single_word":false,"lstrip":false,"rstrip":false,)",
               R"("normalized":)", in_normalized ? "true" : "false",
               R"(,"id":)", id, R"(,"special":)", special ? "true" : "false",
               R"(,"content":)", Quoted(spec.tokens[id]), "}");
  }
  return R"("added_tokens":[)" + out + "],";
}

Status Check(const VocabularySpec& spec) {
  if (spec.kinds.size() != spec.tokens.size()) {
    return InvalidArgument("vocabulary of ", spec.tokens.size(),
                           " tokens with ", spec.kinds.size(), " token types");
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (FirstInvalidUtf8(spec.tokens[id]) != std::string_view::npos) {
      return InvalidArgument("vocabulary: token ", id, " is not UTF-8");
    }
  }
  for (const auto& id : {spec.bos, spec.eos, spec.unk}) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= spec.tokens.size())) {
      return InvalidArgument("vocabulary: token id ", *id, " outside [0, ",
                             spec.tokens.size(), ")");
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> ToTokenizerJson(const VocabularySpec& spec) {
  SLUICE_RETURN_IF_ERROR(Check(spec));
  std::string out = R"({"version":"1.0","truncation":null,"padding":null,)";
  out += AddedTokens(spec);
  out += spec.byte_level ? ByteLevelParts(spec) : SentencePieceParts(spec);
  out += PostProcessor(spec);
  out += R"("model":{"type":"BPE","dropout":null,"unk_token":)";
  out +=
      spec.unk ? Quoted(spec.tokens[static_cast<size_t>(*spec.unk)]) : "null";
  out += Cat(R"(,"fuse_unk":)", spec.byte_level ? "false" : "true",
             R"(,"byte_fallback":)", spec.byte_level ? "false" : "true",
             R"(,"ignore_merges":)", spec.ignore_merges ? "true" : "false",
             R"(,"vocab":{)");
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (id > 0) out += ",";
    AppendQuoted(spec.tokens[id], out);
    out += Cat(":", id);
  }
  out += R"(},"merges":[)";
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    out += i > 0 ? ",[" : "[";
    AppendQuoted(spec.merges[i].first, out);
    out += ",";
    AppendQuoted(spec.merges[i].second, out);
    out += "]";
  }
  out += "]}}";
  return out;
}

std::vector<Merge> MergesFromScores(const std::vector<std::string>& tokens,
                                    const std::vector<TokenKind>& kinds,
                                    const std::vector<float>& scores) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (kinds[id] == TokenKind::kNormal) ids.emplace(tokens[id], id);
  }
  struct Cut {
    size_t id = 0;    // of the merged token
    size_t left = 0;  // bytes
  };
  std::vector<Cut> cuts;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    if (kinds[id] != TokenKind::kNormal || token.size() > kMaxMergedBytes) {
      continue;
    }
    for (size_t at = 1; at < token.size(); ++at) {
      if (ids.contains(token.substr(0, at)) && ids.contains(token.substr(at))) {
        cuts.push_back({id, at});
      }
    }
  }
  std::sort(cuts.begin(), cuts.end(), [&](const Cut& a, const Cut& b) {
    if (scores[a.id] != scores[b.id]) return scores[a.id] > scores[b.id];
    return std::tie(a.id, b.left) < std::tie(b.id, a.left);
  });
  std::vector<Merge> merges;
  merges.reserve(cuts.size());
  for (const Cut& cut : cuts) {
    merges.emplace_back(tokens[cut.id].substr(0, cut.left),
                        tokens[cut.id].substr(cut.left));
  }
  return merges;
}

std::string ByteLevelText(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    char32_t shown = byte;
    if (byte <= 0x20) {
      shown = 0x100 + byte;
    } else if (byte >= 0x7F && byte <= 0xA0) {
      shown = 0x121 + (byte - 0x7Fu);
    } else if (byte == 0xAD) {
      shown = 0x143;
    }
    AppendUtf8(shown, out);
  }
  return out;
}

}  // namespace sluice
