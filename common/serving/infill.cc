#include "common/serving/infill.h"

#include <algorithm>
#include <utility>

#include "common/serving/error.h"

namespace sluice::serving {
namespace {

// Qwen; StarCoder and Granite; SantaCoder; DeepSeek; CodeLlama; GLM; CodeGemma
// is as Qwen.
constexpr std::string_view kPrefixes[] = {
    "<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>",   "<｜fim▁begin｜>",
    "▁<PRE>",         "<PRE>",        "<|code_prefix|>"};
constexpr std::string_view kSuffixes[] = {
    "<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>",   "<｜fim▁hole｜>",
    "▁<SUF>",         "<SUF>",        "<|code_suffix|>"};
constexpr std::string_view kMiddles[] = {
    "<|fim_middle|>", "<fim_middle>", "<fim-middle>",   "<｜fim▁end｜>",
    "▁<MID>",         "<MID>",        "<|code_middle|>"};
constexpr std::string_view kRepositories[] = {
    "<|repo_name|>", "<|fim_repo|>", "<fim-repo>", "<reponame>", "<REPO>"};
constexpr std::string_view kFiles[] = {"<|file_sep|>", "<|file_separator|>",
                                       "<file_sep>"};
constexpr std::string_view kEnds[] = {
    "<|endoftext|>", "<|end_of_text|>", "<|fim_pad|>",
    "<fim_pad>",     "<fim-pad>",       "<PAD>",
    "▁<EOT>",        "<EOT>",           "<｜end▁of▁sentence｜>"};

// Returns the token of `key`, else of one of `names`.
template <size_t N>
std::optional<TokenId> Find(const ServedModel& model, std::string_view key,
                            const std::string_view (&names)[N]) {
  const auto known = model.infill_ids.find(key);
  if (known != model.infill_ids.end()) return known->second;
  const ModelText& text = *model.text;
  for (const std::string_view name : names) {
    if (const auto token = text.FindToken(name)) return token;
  }
  return std::nullopt;
}

// Appends texts and tokens to a prompt; keeps the first error.
class InfillWriter {
 public:
  explicit InfillWriter(const ModelText& text) : text_(text) {}

  void Add(TokenId token) { tokens_.push_back(token); }
  void Add(const InfillParts::Text& part) { Add(part.field, part.text); }
  void Add(std::string_view field, std::string_view words) {
    if (!status_.ok() || words.empty()) return;
    const auto ids = text_.EncodePlain(words);
    if (!ids.ok()) {
      status_ = WithParam(ids.status(), field);
      return;
    }
    tokens_.insert(tokens_.end(), ids->begin(), ids->end());
  }
  StatusOr<std::vector<TokenId>> Take() && {
    if (!status_.ok()) return status_;
    return std::move(tokens_);
  }

 private:
  const ModelText& text_;
  std::vector<TokenId> tokens_;
  Status status_;
};

}  // namespace

size_t InfillParts::bytes() const {
  size_t sum = prefix.text.size() + suffix.text.size() + begin.text.size();
  for (const ExtraFile& file : extra)
    sum += file.name.size() + file.text.size();
  return sum;
}

StatusOr<InfillTokens> FindInfillTokens(const ServedModel& model,
                                        std::string_view field) {
  const auto prefix = Find(model, "fim_pre", kPrefixes);
  const auto suffix = Find(model, "fim_suf", kSuffixes);
  const auto middle = Find(model, "fim_mid", kMiddles);
  if (!prefix || !suffix || !middle) {
    return WithCode(
        FieldError(field, "this model cannot fill in: its vocabulary has no ",
                   "token for the ",
                   !prefix   ? "prefix (such as <|fim_prefix|>)"
                   : !suffix ? "suffix (such as <|fim_suffix|>)"
                             : "middle (such as <|fim_middle|>)"),
        "unsupported_parameter");
  }
  InfillTokens tokens{*prefix,
                      *suffix,
                      *middle,
                      Find(model, "fim_rep", kRepositories),
                      Find(model, "fim_sep", kFiles),
                      {}};
  const auto pad = model.infill_ids.find("fim_pad");
  if (pad != model.infill_ids.end()) tokens.ends.push_back(pad->second);
  for (const std::string_view name : kEnds) {
    if (const auto token = model.text->FindToken(name))
      tokens.ends.push_back(*token);
  }
  for (const auto& token : {tokens.repository, tokens.file}) {
    if (token) tokens.ends.push_back(*token);
  }
  std::sort(tokens.ends.begin(), tokens.ends.end());
  tokens.ends.erase(std::unique(tokens.ends.begin(), tokens.ends.end()),
                    tokens.ends.end());
  return tokens;
}

StatusOr<std::vector<TokenId>> EncodeInfill(const ModelText& text,
                                            const InfillTokens& tokens,
                                            const InfillParts& parts) {
  InfillWriter out(text);
  // BOS, if the model begins a text with it.
  SLUICE_ASSIGN_OR_RETURN(const std::vector<TokenId> begin,
                          text.Encode("", /*special=*/true));
  if (text.info().adds_bos && !begin.empty()) out.Add(begin.front());
  const bool by_name = parts.names_files && tokens.repository && tokens.file;
  if (by_name) {
    out.Add(*tokens.repository);
    out.Add(parts.extra_field, "myproject\n");
  }
  for (const ExtraFile& file : parts.extra) {
    if (by_name) {
      out.Add(*tokens.file);
      out.Add(parts.extra_field, file.name + "\n");
    }
    out.Add(parts.extra_field, file.text);
  }
  if (by_name) {
    out.Add(*tokens.file);
    out.Add(parts.extra_field, "filename\n");
  }
  out.Add(tokens.prefix);
  out.Add(parts.prefix);
  out.Add(tokens.suffix);
  out.Add(parts.suffix);
  out.Add(tokens.middle);
  out.Add(parts.begin);
  return std::move(out).Take();
}

}  // namespace sluice::serving
