#include "common/serving/answer_start.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/random_bytes.h"
#include "common/http/sha256.h"
#include "common/serving/answer_timings.h"
#include "common/serving/error.h"
#include "common/serving/served_model.h"
#include "common/serving/stable_hash.h"
#include "common/serving/stream_journal.h"

namespace sluice::serving {
namespace {

constexpr uint64_t kFingerprintMask = (uint64_t{1} << kFingerprintBits) - 1;

// Rises with a release whose sampling, parsing or writing of answers gives
// another answer to the same request and seed.
constexpr uint64_t kAnswersVersion = 3;

// The model and its arithmetic, the body's members, and what the server's
// settings and the model's folder make of them. Without max_tokens, whose
// default is what the context leaves: it changes when a cluster shrinks, and no
// token before its end.
uint64_t Fingerprint(const ServedModel& model, std::string_view arithmetic,
                     std::string_view endpoint, const GenerationFields& fields,
                     const PreparedRequest& prepared) {
  StableHash hash;
  hash.Add(kAnswersVersion).Add(std::string_view(model.digest));
  hash.Add(arithmetic).Add(endpoint).Add(fields.digest);
  const OutputFormat format = model.text->output_format();
  hash.Add(ToolFormatName(format.tools));
  hash.Add(ReasoningFormatName(format.reasoning));
  hash.Add(uint64_t{prepared.choices.size()});
  for (const PreparedRequest::Choice& choice : prepared.choices) {
    const SamplingParams& sampling = choice.generate.sampling;
    if (sampling.choice > 0) continue;  // of the same prompt
    hash.Add(uint64_t{choice.generate.prompt_tokens.size()});
    for (const TokenId token : choice.generate.prompt_tokens) {
      hash.Add(static_cast<uint64_t>(token));
    }
    hash.Add(double{sampling.temperature}).Add(double{sampling.top_p});
    hash.Add(static_cast<uint64_t>(sampling.top_k));
    hash.Add(double{sampling.min_p}).Add(double{sampling.repetition_penalty});
    for (const TokenId token : choice.generate.eos_token_ids) {
      hash.Add(static_cast<uint64_t>(token));
    }
  }
  return hash.value() & kFingerprintMask;
}

// INVALID_ARGUMENT unless `resumed` is an id of a stream of this request.
Status CheckResumed(const EventId& resumed, uint64_t fingerprint,
                    const GenerationFields& fields, size_t num_choices) {
  const bool same_seed = !fields.seed || *fields.seed == resumed.origin.seed;
  if (resumed.fingerprint != fingerprint || !same_seed) {
    return EventIdError(
        "is of another request, or of another model or its arithmetic: send "
        "the body that the stream was asked for with");
  }
  if (resumed.progress.choices.size() == num_choices) return OkStatus();
  return EventIdError(Cat("has ", resumed.progress.choices.size(),
                          " choices, the request has ", num_choices));
}

}  // namespace

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t AnswerStart::SeedOf(const GenerationFields& fields,
                             size_t prompt) const {
  if (fields.seed || prompt == 0) return origin.seed;
  return StableHash().Add(origin.seed).Add(uint64_t{prompt}).value();
}

std::string AnswerStart::CallIds(std::string_view prefix) const {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr size_t kBytes = 8;
  const std::string text =
      Cat("sluice call ids 1 ", origin.created, " ", origin.seed, " ",
          fingerprint, " ", origin.request_id);
  const auto digest = http::Sha256(text);
  std::string ids(prefix);
  for (size_t i = 0; i < kBytes; ++i) {
    ids += kHex[digest[i] >> 4];
    ids += kHex[digest[i] & 15];
  }
  return ids += '_';
}

Status TakeResumedId(http::HttpRequest& request) {
  const std::string_view last = request.Header(kLastEventIdHeader);
  if (last.empty()) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(EventId id, ParseEventId(last));
  request.request_id = std::move(id.origin.request_id);
  return OkStatus();
}

StatusOr<AnswerStart> StartAnswer(const http::HttpRequest& request,
                                  std::string_view endpoint,
                                  const GenerationFields& fields) {
  AnswerStart start;
  start.endpoint = endpoint;
  const std::string_view last = request.Header(kLastEventIdHeader);
  if (last.empty()) {
    start.origin.request_id = request.request_id;
    start.origin.is_own_id = request.Header("x-request-id").empty();
    start.origin.created = UnixSeconds();
    start.origin.seed = fields.seed ? *fields.seed : RandomBits();
    return start;
  }
  if (!fields.stream) {
    return EventIdError(
        Cat("is for a request with \"", fields.names->stream, "\": true"));
  }
  SLUICE_ASSIGN_OR_RETURN(start.resumed, ParseEventId(last));
  start.origin = start.resumed->origin;
  return start;
}

Status StartStream(const ServingContext& context,
                   const http::HttpRequest& request,
                   const GenerationFields& fields, AnswerStart& start,
                   PreparedRequest& prepared, AnswerInfo& info) {
  const std::string arithmetic = context.arithmetic ? context.arithmetic() : "";
  start.fingerprint =
      Fingerprint(context.model, arithmetic, start.endpoint, fields, prepared);
  if (fields.timings) {
    std::vector<int64_t> prompts;
    for (const PreparedRequest::Choice& choice : prepared.choices) {
      prompts.push_back(
          static_cast<int64_t>(choice.generate.prompt_tokens.size()));
    }
    prepared.timings = std::make_shared<AnswerTimings>(prompts);
    info.timings = prepared.timings;
  }
  if (!fields.stream) return OkStatus();
  // Without the arithmetic an id would be of no use later.
  const bool unknown = context.arithmetic && arithmetic.empty();
  if (start.resumed) {
    if (unknown) {
      return Unavailable(
          "a stream cannot be resumed before the first pipeline is up");
    }
    SLUICE_RETURN_IF_ERROR(CheckResumed(*start.resumed, start.fingerprint,
                                        fields, info.num_choices));
    prepared.resumed = start.resumed->progress;
    info.told = start.resumed->progress;
  }
  if (!context.rules.event_ids || unknown) return OkStatus();
  info.event_head = EventIdHead(start.origin, start.fingerprint);
  if (context.streams == nullptr) return OkStatus();
  StreamProgress nothing;
  nothing.choices.resize(info.num_choices);
  auto kept = std::make_shared<StreamRequest>();
  kept->request_id = start.origin.request_id;
  kept->tenant = request.tenant;
  kept->path = start.endpoint;
  kept->body = request.body;
  kept->first_event_id = Cat(info.event_head, "~", ProgressText(nothing));
  prepared.kept = std::move(kept);
  return OkStatus();
}

}  // namespace sluice::serving
