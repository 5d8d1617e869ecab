#ifndef SLUICE_COMMON_SERVING_EVENT_ID_H_
#define SLUICE_COMMON_SERVING_EVENT_ID_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice::serving {

// The ids of a stream's events (SSE's `id`, `Last-Event-ID`). An id is all that
// is needed, beside the request's body, to give a client the rest of an answer:
//
//   HEAD ~ CHOICE . CHOICE .. [. u]
//
// HEAD: "a", then the digits (A-Z a-z 0-9 - _, six bits each, high ones first)
// of `created` (6), `seed` (11), `fingerprint` (8) and of an id of ours (16);
// or "b" and the same with a client's id as it is.
// CHOICE: empty before its first event, "f" after its last one, else the bytes
// of content, then those numbers that are not 0: r, bytes of reasoning; k, tool
// calls begun; a, bytes of the latest call's arguments; e, entries (tokens with
// log probabilities or ids); m, events that open or close a part; n, all
// events, of a dialect that numbers them. "u": usage is told too.
// The counts, but n, do not depend on how tokens were batched into events.

// The most bytes of an id. One of 128 choices, the most of a prompt, has below
// 4096: 31 for each, as for three counts of 7 to 8 digits.
inline constexpr size_t kMaxEventIdBytes = 8192;
inline constexpr int kFingerprintBits = 48;

// What the random and time-based members of an answer come from.
struct AnswerOrigin {
  std::string request_id;  // 1 to 128 of [A-Za-z0-9._:-]
  bool is_own_id = true;   // the server's, not the client's X-Request-Id
  int64_t created = 0;     // Unix time, 0 to 2^36 - 1
  uint64_t seed = 0;
  bool operator==(const AnswerOrigin&) const = default;
};

// How much of one choice a stream has shown, or one event shows.
struct ChoiceProgress {
  bool begun = false;      // its first event is out
  bool ended = false;      // its finish is out; the counts say nothing then
  uint64_t content = 0;    // bytes
  uint64_t reasoning = 0;  // bytes
  uint64_t calls = 0;      // tool calls begun
  uint64_t arguments = 0;  // bytes, of the latest call
  uint64_t entries = 0;    // tokens told of beside the text, the echo's first
  // Of a BlockFormat: events that open or close a part, and all events.
  uint64_t marks = 0;
  uint64_t events = 0;
  bool operator==(const ChoiceProgress&) const = default;
};

struct StreamProgress {
  std::vector<ChoiceProgress> choices;
  bool usage = false;  // the event of usage is out
  // Whether nothing but the end is left; `has_usage`: the stream tells usage.
  bool is_whole(bool has_usage) const;
  bool operator==(const StreamProgress&) const = default;
};

struct EventId {
  AnswerOrigin origin;
  uint64_t fingerprint = 0;  // of the request, kFingerprintBits
  StreamProgress progress;   // at least one choice
};

// Returns HEAD; bits of `fingerprint` above kFingerprintBits do not count.
std::string EventIdHead(const AnswerOrigin& origin, uint64_t fingerprint);

// Returns the text behind "~".
std::string ProgressText(const StreamProgress& progress);

// Reads what EventIdHead and ProgressText write, and nothing else.
// INVALID_ARGUMENT, about Last-Event-ID, for any other text.
StatusOr<EventId> ParseEventId(std::string_view text);

// INVALID_ARGUMENT about the header Last-Event-ID, with `why`.
Status EventIdError(std::string_view why);

// The ids of one stream's events, as they go out. One thread at a time.
class EventIds {
 public:
  // `begin`: what an earlier stream showed. An empty `head`: events have no
  // ids; the progress is counted all the same. `usage_follows`: as the last
  // event.
  EventIds(std::string head, StreamProgress begin, bool usage_follows = false);

  const ChoiceProgress& choice(int index) const {
    return progress_.choices.at(static_cast<size_t>(index));
  }
  // Returns the id of an event of choice `index` that shows `shown`; empty
  // without a head, and of the last choice's end if usage follows: litellm's
  // provider hosted_vllm takes a line in between for the end of the stream.
  std::string After(int index, const ChoiceProgress& shown);
  // Returns the id of the event of usage.
  std::string AfterUsage();
  // Returns the id of an event that shows no more than those before.
  std::string Again() const;
  // Whether nothing but the end is left.
  bool is_whole() const { return progress_.is_whole(usage_follows_); }

 private:
  std::string Text() const;

  std::string head_;
  StreamProgress progress_;
  bool usage_follows_;
  std::vector<std::string> texts_;  // of each choice
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_EVENT_ID_H_
