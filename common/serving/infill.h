#ifndef SLUICE_COMMON_SERVING_INFILL_H_
#define SLUICE_COMMON_SERVING_INFILL_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/serving/model_text.h"
#include "common/serving/served_model.h"

namespace sluice::serving {

// A text with a hole, which the model fills in.

// The tokens by which a model fills in the middle.
struct InfillTokens {
  TokenId prefix = 0;
  TokenId suffix = 0;
  TokenId middle = 0;
  std::optional<TokenId> repository;
  std::optional<TokenId> file;
  // What ends an infill beside the model's end tokens.
  std::vector<TokenId> ends;
};

// Finds the tokens by the keys of the model's file, else by the names that
// known models have. INVALID_ARGUMENT about `field` for a model without a token
// for prefix, suffix or middle.
StatusOr<InfillTokens> FindInfillTokens(const ServedModel& model,
                                        std::string_view field);

// Another file of the text's repository.
struct ExtraFile {
  std::string name;
  std::string text;
};

// The texts around a hole, each with its field, for errors.
struct InfillParts {
  struct Text {
    std::string_view field;
    std::string text;
  };
  Text prefix;
  Text suffix;
  Text begin;  // of the answer
  std::string_view extra_field;
  std::vector<ExtraFile> extra;
  // The files are named, if the model has tokens for that, as llama.cpp names
  // them.
  bool names_files = false;

  size_t bytes() const;
};

// Returns the prompt, in the order of llama.cpp: the other files, the prefix,
// the suffix, and the beginning of the answer. No text becomes a special token.
StatusOr<std::vector<TokenId>> EncodeInfill(const ModelText& text,
                                            const InfillTokens& tokens,
                                            const InfillParts& parts);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_INFILL_H_
