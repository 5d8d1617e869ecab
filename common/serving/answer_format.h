#ifndef SLUICE_COMMON_SERVING_ANSWER_FORMAT_H_
#define SLUICE_COMMON_SERVING_ANSWER_FORMAT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/http/error_answer.h"
#include "common/http/event_framing.h"
#include "common/serving/choice_text.h"
#include "common/serving/event_id.h"
#include "common/serving/json_pieces.h"
#include "common/serving/model_text.h"
#include "common/serving/text_offsets.h"

namespace sluice::serving {

class AnswerTimings;

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  // Of the completion; nullopt for a model whose reasoning is not parsed.
  std::optional<int64_t> reasoning_tokens;
};

// The members that every answer and chunk of one request has.
struct AnswerInfo {
  std::string id;
  int64_t created = 0;  // Unix time
  std::string model;
  bool logprobs = false;
  bool include_usage = false;     // in streams, usage is null, or
  bool continuous_usage = false;  // the count so far
  bool return_token_ids = false;
  bool tokens_as_token_ids = false;
  bool prompt_logprobs = false;
  bool is_parsed = false;     // reasoning and calls are parsed
  bool as_functions = false;  // a call is told as the older function_call
  std::string fingerprint;    // equal for equal tokens; empty: unknown
  int choices_per_prompt = 1;
  size_t num_choices = 1;  // over all prompts
  // Only with return_token_ids.
  std::vector<std::vector<TokenId>> prompts;
  // Of completions with logprobs, by prompt: the offsets of a choice's tokens.
  // None: a choice's text is its tokens' alone.
  std::vector<std::shared_ptr<const TextOffsets>> offsets;
  // With GenerationFields::timings, of the choices; else null.
  std::shared_ptr<const AnswerTimings> timings;
  std::string event_head;  // of the events' ids (EventIdHead); empty: none
  // What the client has of the stream; no choices: nothing.
  StreamProgress told;
};

// An event of a stream, as its text or as a value with lists of JsonPieces. Its
// framing may have no place for id and name.
struct Event {
  std::string id;  // empty: none
  std::string json;
  std::string name = {};  // of SSE's field `event`; empty: none
};
struct EventValue {
  std::string id;
  Json json;
  std::string name = {};
};

// Writes the answers of one request, whole or as stream chunks. A choice's
// chunks come in order: the first one differs. One thread.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // Returns how the events of a stream become bytes.
  virtual const http::EventFraming& framing() const {
    return http::kServerSentEvents;
  }
  // Returns the events that open a stream, before its first delta. A resumed
  // stream leaves out the events that its client has. `usage` counts the
  // prompt.
  virtual std::vector<Event> Begin(const Usage& usage) { return {}; }
  // Returns the events that show in a silence that the stream lives. Without
  // events the framing's comment shows it.
  virtual std::vector<Event> Ping() { return {}; }
  // Returns, before the first event, whether the client of a resumed stream has
  // all of it but what End({}) returns.
  virtual bool is_whole() const { return ids_.is_whole(); }
  // Returns whether the format of a resumed stream takes the deltas that the
  // client has, too, and leaves them out itself.
  virtual bool takes_told_deltas() const { return false; }
  // Returns the events of `delta` of choice `index`; none if it shows nothing.
  std::vector<Event> Chunks(int index, const Delta& delta, const Usage& usage);
  // Returns the events as values with lists of `pieces`, which read `delta`.
  virtual std::vector<EventValue> ChunkValues(int index, const Delta& delta,
                                              const Usage& usage,
                                              JsonPieces& pieces) = 0;
  // Returns the events behind the last delta. A resumed stream leaves out the
  // events that its client has.
  virtual std::vector<Event> End(const Usage& usage) = 0;
  // Returns the events that end a stream with an error.
  virtual std::vector<Event> Fail(const http::ApiError& error) = 0;
  std::string Whole(const std::vector<Delta>& choices, const Usage& usage);
  // Returns the whole answer as a value with lists of `pieces`, which read
  // `choices`.
  virtual Json WholeValue(const std::vector<Delta>& choices, const Usage& usage,
                          JsonPieces& pieces) = 0;

 protected:
  explicit AnswerFormat(const AnswerInfo& info);
  // Returns the id of the event of usage.
  std::string IdAfterUsage() { return ids_.AfterUsage(); }
  // Returns the id of an event that shows no more than those before. A stream
  // goes on elsewhere behind its last event if that has an id.
  std::string IdAgain() const { return ids_.Again(); }
  // Returns whether the choice's first chunk is still to come.
  bool is_first(int index) const { return !ids_.choice(index).begun; }
  // Returns what the events of choice `index` have shown so far.
  const ChoiceProgress& progress(int index) const { return ids_.choice(index); }
  // Returns the id of the choice's next event, which shows `shown`.
  std::string IdAfter(int index, const ChoiceProgress& shown) {
    return ids_.After(index, shown);
  }
  // Returns the entries that a chunk with the tokens of `delta` tells.
  uint64_t EntriesOf(const Delta& delta) const {
    return tells_entries_ ? delta.num_entries() : 0;
  }
  // Returns whether the next chunk of choice `index`, for a delta with text
  // alone, differs from the previous chunk in its text alone.
  virtual bool ShowsTextAlone(int index) const = 0;

 private:
  // A chunk of one choice, before and behind its text, and its event's name.
  struct Around {
    std::string before;
    std::string behind;
    std::string name;
  };
  Event TextChunk(int index, const std::string& text);
  Around MakeAround(int index);

  std::map<int, Around> around_;
  EventIds ids_;
  const bool tells_entries_;  // chunks tell of tokens beside the text
};

// "stop", "length" or "tool_calls" of a delta with a finish.
std::string_view FinishName(const Delta& delta);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_ANSWER_FORMAT_H_
