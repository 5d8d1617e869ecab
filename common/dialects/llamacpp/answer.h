#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_ANSWER_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/serving/answer_format.h"

namespace sluice::llamacpp {

// What an answer has beside AnswerInfo.
struct CompletionShape {
  Json settings;                     // generation_settings
  std::vector<std::string> prompts;  // the texts of the prompts, as read
  int64_t n_ctx = 0;                 // positions of a sequence
  bool is_list = false;
  bool stream = false;
  bool return_tokens = false;
  bool timings_per_token = false;
  std::vector<std::string> response_fields;
};

// Writes answers of /completion and /infill: an object, or an array of one for
// each choice; as a stream an event for each piece, and one at the end of each
// choice with "stop": true. `info` has timings, and return_token_ids for a
// stream. `text` outlives the format.
std::unique_ptr<serving::AnswerFormat> MakeCompletionFormat(
    const serving::ModelText& text, serving::AnswerInfo info,
    CompletionShape shape);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_ANSWER_H_
