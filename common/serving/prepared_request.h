#ifndef SLUICE_COMMON_SERVING_PREPARED_REQUEST_H_
#define SLUICE_COMMON_SERVING_PREPARED_REQUEST_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "common/core/generate_request.h"
#include "common/http/event_stream.h"
#include "common/http/message.h"
#include "common/serving/answer_format.h"
#include "common/serving/best_choices.h"
#include "common/serving/choice_text.h"
#include "common/serving/event_id.h"
#include "common/serving/request_grammar.h"
#include "common/trace/request_trace.h"

namespace sluice::serving {

class AnswerTimings;
struct StreamRequest;
struct TokenRules;

// A prepared request: what to generate and how to answer.
struct PreparedRequest {
  struct Choice {
    GenerateRequest generate;
    ChoiceTextOptions text;
    std::shared_ptr<const TokenRules> rules;  // null: none
    size_t prompt = 0;                        // index of its prompt
    // Copies the prompt's logprobs of the prompt's first choice, which alone
    // requests them.
    bool follows = false;
  };
  std::vector<Choice> choices;  // at least one; prompts rise by at most one
  std::unique_ptr<AnswerFormat> format;
  bool stream = false;
  // The choices that the answer shows, of a whole answer; nothing: all.
  std::optional<BestOf> best_of;
  // What the client has of a stream that it resumes; nothing: it is a new one.
  std::optional<StreamProgress> resumed;
  std::shared_ptr<const StreamRequest> kept;  // for the journal; null: nothing
  // What the answers keep to; see AddConstraints. Nothing: they are free.
  std::optional<RequestGrammar> grammar;
  http::HttpHeaders headers;     // of the answer, beside those of every answer
  http::EventStreamTimes times;  // of a stream
  std::shared_ptr<trace::RequestTrace> trace;  // null: not traced
  std::shared_ptr<AnswerTimings> timings;      // null: nothing tells them
  // The answer to a request that generates nothing; the rest has no meaning.
  std::optional<http::HttpResponse> answer;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_PREPARED_REQUEST_H_
