#include "common/serving/prepare.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <limits>
#include <utility>

#include "common/serving/error.h"
#include "common/serving/served_model.h"
#include "common/serving/text_work.h"
#include "common/serving/token_rules.h"
#include "common/trace/trace_store.h"

namespace sluice::serving {
namespace {

// The event loop parses and tokenizes smaller bodies: handing them over costs
// more than the work.
constexpr size_t kMaxInlineBytes = size_t{8} << 10;
// Memory of parsing, rendering and tokenizing per byte of a body.
constexpr size_t kMemoryPerByte = 128;
// Hexadecimal digits of the model's digest in AnswerInfo::fingerprint.
constexpr size_t kFingerprintDigits = 12;

constexpr std::string_view kUnreadHeader = "X-Sluice-Unused-Template-Kwargs";
// Of the names in that header together, and of one of them.
constexpr size_t kMaxUnreadBytes = 1024;
constexpr size_t kMaxUnreadNameBytes = 64;

// Returns the first bytes of `name`, those that no template's name has as %XX.
std::string HeaderWord(std::string_view name) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string word;
  for (const char c : name.substr(0, kMaxUnreadNameBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                       (c >= 'a' && c <= 'z') || c == '_' || c == '-' ||
                       c == '.';
    if (plain) {
      word += c;
    } else {
      word += '%';
      word += kHex[byte >> 4];
      word += kHex[byte & 15];
    }
  }
  return word;
}

SamplingParams MakeSampling(const ServedModel& model,
                            const GenerationFields& fields) {
  const SamplingDefaults& defaults = model.defaults;
  SamplingParams sampling;
  sampling.temperature =
      static_cast<float>(fields.temperature.value_or(defaults.temperature));
  sampling.top_p = static_cast<float>(fields.top_p.value_or(defaults.top_p));
  sampling.top_k = static_cast<int32_t>(fields.top_k.value_or(defaults.top_k));
  sampling.min_p = static_cast<float>(fields.min_p.value_or(defaults.min_p));
  sampling.frequency_penalty =
      static_cast<float>(fields.frequency_penalty.value_or(0));
  sampling.presence_penalty =
      static_cast<float>(fields.presence_penalty.value_or(0));
  sampling.repetition_penalty = static_cast<float>(
      fields.repetition_penalty.value_or(defaults.repetition_penalty));
  sampling.logit_bias = fields.logit_bias;
  sampling.logprobs = fields.logprobs.value_or(-1);
  sampling.logprob_token_ids = fields.logprob_token_ids;
  sampling.prompt_logprobs = fields.prompt_logprobs.value_or(-1);
  sampling.min_tokens = static_cast<int32_t>(fields.min_tokens);
  sampling.stop_token_ids = fields.stop_token_ids;
  return sampling;
}

bool CutsMaxTokens(const ServingContext& context,
                   const GenerationFields& fields) {
  return context.rules.cut_max_tokens || fields.cuts_max_tokens;
}

Rejection RejectionOf(const Status& status) {
  return ToApiError(status).code == "context_length_exceeded"
             ? Rejection::kTooLong
             : Rejection::kInvalid;
}

// Returns what a trace tells of a request: no text, no tokens.
trace::TraceRecord::Request TracedRequest(const ServedModel& model,
                                          const PreparedRequest& prepared) {
  const GenerateRequest& first = prepared.choices.front().generate;
  trace::TraceRecord::Request request;
  request.model = model.name;
  request.max_tokens = first.max_tokens;
  request.temperature = first.sampling.temperature;
  request.top_p = first.sampling.top_p;
  request.top_k = first.sampling.top_k;
  request.frequency_penalty = first.sampling.frequency_penalty;
  request.presence_penalty = first.sampling.presence_penalty;
  return request;
}

void RunOrRefuse(const ServingContext& context,
                 StatusOr<PreparedRequest> prepared,
                 const std::shared_ptr<http::Exchange>& on) {
  if (!prepared.ok()) {
    context.metrics.OnRejection(RejectionOf(prepared.status()));
    on->SendError(ToApiError(prepared.status()));
    return;
  }
  for (PreparedRequest::Choice& choice : prepared->choices) {
    if (choice.rules == nullptr) continue;
    auto& constraint = choice.generate.constraint;
    constraint = std::make_shared<RuledConstraint>(
        choice.rules, std::move(constraint), context.model.vocab_size);
  }
  RequestRunner::Start(context, *std::move(prepared), on);
}

// Answers a stream whose client has all but its end; false for others. 204 to a
// GET: EventSource, which else connects again after each end, stops at that.
bool AnswerWhole(const ServingContext& context, const PreparedRequest& prepared,
                 const std::shared_ptr<http::Exchange>& on) {
  if (!prepared.resumed || !prepared.format->is_whole()) return false;
  context.metrics.OnResume();
  if (on->request().method == "GET") {
    on->Send({204, "", {}, ""});
    return true;
  }
  const auto rest = std::make_shared<http::EventStream>(
      on, prepared.times, http::HttpHeaders(), prepared.format->framing());
  rest->Open();
  for (const Event& event : prepared.format->End({})) {
    rest->Send(event.json, event.id, event.name);
  }
  rest->End();
  return true;
}

// Returns how long the client waits for a grammar: what it was promised for the
// queue is for its grammar, too.
GrammarPatience PatienceOf(const TurnQueue* queue,
                           const std::shared_ptr<http::Exchange>& on) {
  GrammarPatience patience;
  patience.wanted = [on] { return !on->gone(); };
  if (queue != nullptr) patience.deadline = Clock::now() + queue->max_wait();
  const auto asked = DeadlineOf(on->request());  // a bad one was refused
  if (asked.ok() && *asked) {
    patience.deadline = std::min(patience.deadline.value_or(**asked), **asked);
  }
  return patience;
}

void ConstrainAndRun(const ServingContext& context, PreparedRequest prepared,
                     const std::shared_ptr<http::Exchange>& on) {
  TurnQueue* const queue =
      context.compiles != nullptr ? context.compiles : context.work;
  const size_t bytes = GrammarMemory(*prepared.grammar);
  // A job is copied; the request is not.
  auto request = std::make_shared<PreparedRequest>(std::move(prepared));
  auto make = [context, request, patience = PatienceOf(queue, on)] {
    return AddConstraints(context, *request, patience);
  };
  auto run = [context, request](const std::shared_ptr<http::Exchange>& to,
                                const Status& added, const TraceSpan&) {
    if (added.ok()) return RunOrRefuse(context, std::move(*request), to);
    RunOrRefuse(context, added, to);
  };
  WorkThenUse({queue, context.metrics}, bytes, std::move(make), std::move(run),
              on);
}

}  // namespace

bool Serves(const ServedModel& model, std::string_view name) {
  const auto& aliases = model.aliases;
  return name == model.name ||
         std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

Status CheckModel(const ServedModel& model, std::string_view field,
                  std::string_view name) {
  if (name.empty() || model.any_name || Serves(model, name)) return OkStatus();
  return WithCode(WithParam(NotFound("The model \"", name.substr(0, 200),
                                     "\" does not exist here; there is \"",
                                     model.name, "\""),
                            field),
                  "model_not_found");
}

Status CheckStops(const ServingContext& context,
                  const GenerationFields& fields) {
  const size_t limit = context.rules.max_stop_strings;
  if (fields.stop.size() <= limit) return OkStatus();
  return FieldError(fields.names->stop, "has ", fields.stop.size(),
                    " strings, limit ", limit);
}

http::EventStreamTimes StreamTimes(const ServingContext& context,
                                   const GenerationFields& fields) {
  http::EventStreamTimes times = context.rules.stream_times;
  if (fields.ping_interval) {
    times.ping_interval = std::chrono::seconds(*fields.ping_interval);
  }
  return times;
}

int MaxContext(const ServingContext& context) {
  const int limit = context.engine.max_context();
  if (limit <= 0) return context.model.max_positions;
  return std::min(limit, context.model.max_positions);
}

size_t MaxTextBytes(const ServingContext& context,
                    const GenerationFields& fields) {
  const size_t per_token = context.model.text->max_bytes_per_token();
  if (per_token == 0 || fields.truncate_prompt) {
    return std::numeric_limits<size_t>::max();
  }
  return per_token * static_cast<size_t>(MaxContext(context));
}

size_t MaxTokenizeBytes(const ServingContext& context) {
  return TokenizeLimit(context.limits, MaxContext(context));
}

Status TextTooLong(const ServingContext& context,
                   const GenerationFields& fields, size_t bytes) {
  const size_t per_token = context.model.text->max_bytes_per_token();
  const int limit = MaxContext(context);
  const Status status = FieldError(
      fields.names->prompt, "this model's maximum context length is ", limit,
      " tokens of at most ", per_token, " bytes each, the prompt has ", bytes,
      " bytes");
  return WithTooLong(status, static_cast<int64_t>(bytes / per_token) + 1,
                     limit);
}

StatusOr<std::vector<TokenId>> TruncatePrompt(const ServingContext& context,
                                              const GenerationFields& fields,
                                              std::vector<TokenId> prompt) {
  if (!fields.truncate_prompt) return prompt;
  const int64_t limit = MaxContext(context);
  int64_t kept = *fields.truncate_prompt;
  if (kept < 0) {
    const bool cut = CutsMaxTokens(context, fields) &&
                     fields.max_tokens.value_or(0) >= limit;
    const auto left_out = std::max<int64_t>(fields.min_tokens, 1);
    kept = limit - (cut ? left_out : fields.max_tokens.value_or(left_out));
  }
  if (kept > limit || kept < 1) {
    return FieldError(fields.names->truncate_prompt,
                      "the context is limited to ", limit, " tokens, ", kept,
                      " would be kept");
  }
  const auto size = static_cast<int64_t>(prompt.size());
  if (kept < size) prompt.erase(prompt.begin(), prompt.end() - kept);
  return prompt;
}

StatusOr<GenerateRequest> MakeGenerateRequest(const ServingContext& context,
                                              const GenerationFields& fields,
                                              std::vector<TokenId> prompt,
                                              int64_t default_max_tokens) {
  const FieldNames& names = *fields.names;
  const auto tokens = static_cast<int64_t>(prompt.size());
  const int64_t limit = MaxContext(context);
  if (tokens == 0) {
    return FieldError(names.prompt, "must not be empty");
  }
  const int64_t room = limit - tokens;
  const bool only_prompt = fields.max_tokens == 0;
  if (room < (only_prompt ? 0 : 1)) {
    return WithTooLong(
        FieldError(names.prompt, "this model's maximum context length is ",
                   limit, " tokens, the prompt has ", tokens),
        tokens, limit);
  }
  int64_t most = fields.max_tokens.value_or(std::min(default_max_tokens, room));
  if (CutsMaxTokens(context, fields)) most = std::min(most, room);
  if (most > room) {
    return WithCode(FieldError(fields.max_tokens_field,
                               "this model's maximum context length is ", limit,
                               " tokens: the prompt has ", tokens, " and ",
                               most, " are asked for"),
                    "context_length_exceeded");
  }
  GenerateRequest request;
  request.prompt_tokens = std::move(prompt);
  request.sampling = MakeSampling(context.model, fields);
  request.cache_salt = fields.cache_salt;
  request.priority = fields.priority;
  request.max_tokens = static_cast<int32_t>(most);
  if (fields.min_tokens > most) {
    return FieldError(names.min_tokens, "must not exceed ", names.max_tokens,
                      ", which is ", most,
                      fields.max_tokens ? " beside this prompt, got "
                                        : " where it is left out, got ",
                      fields.min_tokens);
  }
  if (!fields.ignore_eos) request.eos_token_ids = context.model.eos_ids;
  if (fields.min_tokens > 0) {
    // The sampler excludes these below min_tokens; the union of both lists ends
    // a sequence anyway.
    auto& excluded = request.sampling.stop_token_ids;
    excluded.insert(excluded.end(), request.eos_token_ids.begin(),
                    request.eos_token_ids.end());
    std::sort(excluded.begin(), excluded.end());
    excluded.erase(std::unique(excluded.begin(), excluded.end()),
                   excluded.end());
  }
  SLUICE_RETURN_IF_ERROR(Validate(request.sampling, context.model.vocab_size));
  return request;
}

StatusOr<http::HttpHeaders> CheckTemplateArguments(
    const ServingContext& context, std::string_view field,
    const Json& arguments, const std::vector<std::string>& names) {
  SLUICE_RETURN_IF_ERROR(CheckArguments(field, arguments, context.limits));
  std::string unread;
  for (const std::string& name : names) {
    if (context.model.text->ReadsVariable(name)) continue;
    const std::string shown = HeaderWord(name);
    if (context.strict_fields) {
      return WithCode(FieldError(field, "the model's chat template ",
                                 "does not read \"", shown, "\""),
                      "unknown_parameter");
    }
    if (unread.size() + shown.size() > kMaxUnreadBytes) {
      unread += ", ..";
      break;
    }
    unread += Cat(unread.empty() ? "" : ", ", shown);
  }
  if (unread.empty()) return http::HttpHeaders();
  return http::HttpHeaders{{std::string(kUnreadHeader), std::move(unread)}};
}

StatusOr<RequestTerms> ReadTerms(const http::HttpRequest& request) {
  static std::atomic<uint64_t> count{0};
  RequestTerms terms;
  terms.id = Cat(request.request_id, "/", ++count);
  terms.tenant = request.tenant;
  terms.client = request.client;
  SLUICE_ASSIGN_OR_RETURN(terms.deadline, DeadlineOf(request));
  return terms;
}

void AddChoices(PreparedRequest& prepared, PreparedRequest::Choice first, int n,
                const RequestTerms& terms) {
  first.prompt =
      prepared.choices.empty() ? 0 : prepared.choices.back().prompt + 1;
  first.generate.request_id = terms.id;
  first.generate.tenant = terms.tenant;
  first.generate.client = terms.client;
  first.generate.deadline = terms.deadline;
  first.generate.num_choices = n;
  for (int choice = 0; choice + 1 < n; ++choice) {
    prepared.choices.push_back(first);
    prepared.choices.back().generate.sampling.choice =
        static_cast<uint32_t>(choice);
  }
  first.generate.sampling.choice = static_cast<uint32_t>(n - 1);
  prepared.choices.push_back(std::move(first));
}

ChoiceTextOptions MakeTextOptions(const GenerationFields& fields) {
  ChoiceTextOptions text;
  text.stop = fields.stop;
  text.stop_token_ids = fields.stop_token_ids;
  text.min_tokens = fields.min_tokens;
  text.include_stop = fields.include_stop;
  text.skip_special = fields.skip_special;
  text.logprobs = fields.logprobs.has_value();
  text.num_echo_tops = fields.logprobs.value_or(0);
  text.prompt_logprobs = fields.prompt_logprobs.has_value();
  return text;
}

AnswerInfo MakeAnswerInfo(const ServedModel& model,
                          const GenerationFields& fields,
                          const AnswerStart& start,
                          std::string_view id_prefix) {
  AnswerInfo info;
  const AnswerOrigin& origin = start.origin;
  const bool from_body = origin.is_own_id && !fields.request_id.empty();
  info.id = Cat(id_prefix, from_body ? fields.request_id : origin.request_id);
  if (!model.digest.empty()) {
    info.fingerprint = model.digest.substr(0, kFingerprintDigits);
  }
  info.prompt_logprobs = fields.prompt_logprobs.has_value();
  info.choices_per_prompt = fields.n;
  info.created = origin.created;
  info.model = model.name;
  info.logprobs = fields.logprobs.has_value();
  info.include_usage = fields.include_usage;
  info.continuous_usage = fields.continuous_usage;
  info.return_token_ids = fields.return_token_ids;
  info.tokens_as_token_ids = fields.tokens_as_token_ids;
  return info;
}

TextWorkers WorkersFor(const ServingContext& context, http::Exchange& exchange,
                       size_t more_bytes) {
  const size_t bytes = exchange.request().body.size() + more_bytes;
  const bool here = bytes <= kMaxInlineBytes && context.model.text->is_quick();
  return {here ? nullptr : context.work, context.metrics};
}

size_t TextMemory(http::Exchange& exchange, size_t more_bytes) {
  return (exchange.request().body.size() + more_bytes) * kMemoryPerByte;
}

void PrepareAndRun(const ServingContext& context,
                   Maker<PreparedRequest> prepare,
                   std::shared_ptr<http::Exchange> exchange,
                   size_t more_bytes) {
  // Before anything is told under another id.
  const Status resumed = TakeResumedId(exchange->request());
  if (!resumed.ok()) return RunOrRefuse(context, resumed, exchange);
  std::shared_ptr<trace::RequestTrace> trace;
  if (context.traces != nullptr) {
    trace = context.traces->Begin(exchange->request().Header("x-sluice-trace"),
                                  *exchange);
  }
  auto run = [context, trace = std::move(trace)](
                 const std::shared_ptr<http::Exchange>& on,
                 StatusOr<PreparedRequest> prepared, const TraceSpan& span) {
    context.metrics.OnTokenized(1e-9 * static_cast<double>(span.duration_ns()));
    if (trace != nullptr) trace->OnPrepared(span);
    if (prepared.ok() && prepared->answer) {
      return on->Send(*std::move(prepared->answer));
    }
    if (trace != nullptr && prepared.ok()) {
      trace->OnAccepted(TracedRequest(context.model, *prepared));
      prepared->trace = trace;
    }
    if (prepared.ok() && AnswerWhole(context, *prepared, on)) return;
    if (prepared.ok() && prepared->grammar) {
      ConstrainAndRun(context, *std::move(prepared), on);
    } else {
      RunOrRefuse(context, std::move(prepared), on);
    }
  };
  MakeThenUse(context, prepare, std::move(run), std::move(exchange),
              more_bytes);
}

void AnswerOffLoop(const ServingContext& context,
                   Maker<http::HttpResponse> answer,
                   std::shared_ptr<http::Exchange> exchange,
                   size_t more_bytes) {
  MakeThenUse(
      context, answer,
      [](const std::shared_ptr<http::Exchange>& on,
         StatusOr<http::HttpResponse>&& response, const TraceSpan&) {
        if (response.ok()) return on->Send(*std::move(response));
        on->SendError(ToApiError(response.status()));
      },
      std::move(exchange), more_bytes);
}

}  // namespace sluice::serving
