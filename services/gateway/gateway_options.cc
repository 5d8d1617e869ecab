#include "services/gateway/gateway_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "common/base/control_group.h"
#include "common/dialects/openai/parse.h"
#include "common/pipeline/gateway/pipeline_assembler.h"

namespace sluice::gateway {
namespace {

constexpr Duration kMinPing = std::chrono::milliseconds(10);
constexpr double kDay = 86400;                                   // seconds
constexpr double kMostMib = 1 << 20;                             // a TiB
constexpr double kMostBytes = int64_t{1} << 40;                  // a TiB
constexpr int kAllTokens = std::numeric_limits<int32_t>::max();  // of a step

OptionRows ModelRows(GatewayFlags& flags) {
  GatewayOptions& o = flags.gateway;
  return {
      {"model", &o.model_path, "model folder, .gguf or .m file"},
      {"served-model-name", &o.model_names,
       "names of the model in requests, the first is shown; empty: by its "
       "config, its place in a Hugging Face cache, or its file"},
      {"model-name", &flags.model_names, "another name of --served-model-name"},
      {"any-model-name", &o.any_model_name, "requests may name any model"},
      {"tool-format", &o.tool_format,
       "how the model writes tool calls: glm, qwen3-coder, hermes, "
       "llama3-json, harmony, none and others of API.md; generic: as a "
       "system message tells it to; auto: as its chat template shows, else "
       "generic"},
      {"reasoning-format", &o.reasoning_format,
       "how it sets reasoning apart: think, harmony, mistral, seed-oss, "
       "command, gemma4, apertus, think-answer, think-response, minimax-m3, "
       "none; auto: as its chat template shows"}};
}

OptionRows RuleRows(GatewayOptions& o) {
  using option::Seconds;
  using option::Time;
  serving::RequestRules& rules = o.rules;
  serving::CostLimits& limits = o.limits;
  return {
      {"max-stop-strings",
       {&rules.max_stop_strings, 0, double{serving::kMaxStopStrings}},
       "stop strings of one request"},
      {"max-tokens-overflow",
       option::Words(&rules.cut_max_tokens, {{"refuse", false}, {"cut", true}}),
       "max_tokens beyond what the context leaves: refuse, or cut to it"},
      {"strict-fields", &o.strict_fields,
       "refuse fields of a request's body that are not known, instead of "
       "ignoring them"},
      {"sse-head-after", Seconds(&rules.stream_times.head_after, 0, kDay),
       "seconds after which a stream that waits sends its header"},
      {"sse-ping-interval",
       Seconds(&rules.stream_times.ping_interval, -1, 3600),
       "seconds of silence after which a stream sends a comment; 0: never"},
      {"no-event-ids", option::Off(&rules.event_ids),
       "events of streams have no ids, by which a client that lost its "
       "connection gets the rest"},
      {"stream-journal-mb",
       option::Mebibytes(&o.stream_journal.max_bytes, 0, kMostMib),
       "MiB for the requests of recent streams, for GET /v1/streams/ID; 0: "
       "none is kept"},
      {"stream-journal-minutes",
       Time<std::ratio<60>>("MINUTES", &o.stream_journal.max_age, {0.01, 1440}),
       "minutes that they are kept, at the most"},
      {"response-store",
       option::Mebibytes(&o.response_store.max_bytes, 0, kMostMib),
       "MiB for the responses of each API key, for previous_response_id and "
       "GET /v1/responses/ID; 0: none is kept"},
      {"response-store-minutes",
       Time<std::ratio<60>>("MINUTES", &o.response_store.max_age,
                            {0.01, 43200}),
       "minutes that they are kept, at the most"},
      {"max-answer-bytes",
       {&limits.answer_bytes, 1, kMostBytes},
       "bytes that a request's choices may take, by an estimate from n, "
       "prompt, logprobs and max_tokens"},
      {"max-history-bytes",
       {&limits.history_bytes, 1, kMostBytes},
       "bytes of messages and tools for the chat template: text, and 64 for "
       "each value"},
      {"max-tokenize-bytes",
       {&limits.tokenize_bytes, 0, kMostBytes},
       "bytes of one text to tokenize; 0: 1 MiB, or 16 for each token of "
       "the context if that is more"}};
}

OptionRows GrammarRows(GrammarCompiler::Options& grammars) {
  GrammarLimits& limits = grammars.limits;
  return {
      {"max-grammar-bytes",
       {&limits.max_bytes, 1, 1 << 20},
       "bytes of a grammar that an answer is held to, as of a JSON Schema"},
      {"max-schema-levels",
       {&limits.max_levels, 1, 64},
       "levels of a JSON Schema's objects and arrays"},
      {"max-enum-values",
       {&limits.max_enum_values, 1, 1 << 20},
       "values of all enums of a JSON Schema together"},
      {"max-grammar-compile-ms",
       {&limits.max_compile_ms, 1, 60'000},
       "milliseconds of CPU time that compiling a grammar may take, together "
       "with trying it in a process of its own before"},
      {"grammar-threads",
       {&grammars.num_threads, 0, 256},
       "threads that compute which tokens a grammar allows; 0: a quarter "
       "of the CPUs, at least 2 and at most 8"}};
}

OptionRows StageRows(GatewayFlags& flags) {
  using option::Seconds;
  GatewayOptions& o = flags.gateway;
  OptionRows rows = {
      {"stages", &o.stages,
       "gRPC addresses of the stages, in the order of their layers"},
      {"spares", &o.spares,
       "gRPC addresses of stages of --layers assigned that take the place "
       "of one that is lost"},
      {"layers", &flags.layers,
       "layers of the stages, as 0-14,15-29, for those of --layers "
       "assigned; empty: what the stages were started with"},
      {"lost-after", Seconds(&o.lost_after, 0.1, 3600),
       "seconds of silence after which a stage is lost"},
      {"recovery-timeout", Seconds(&o.engine.recovery_timeout, 0, kDay),
       "seconds that requests wait for a lost stage, or what takes its "
       "place; 0: they end with it"},
      {"resplit-after", Seconds(&o.resplit.shrink_after, 0, kDay),
       "seconds without a process for a stage's place after which the other "
       "stages, if they are assignable, split the layers anew; 0: never"},
      {"rejoin-after", Seconds(&o.resplit.grow_after, 0.1, kDay),
       "seconds that a process must be there without a break before the "
       "layers are split over it again"},
      {"no-move-kv", option::Off(&o.resplit.moves_kv),
       "stages that take over layers by plan compute their keys and values "
       "again and copy none"},
      {"max-replays",
       {&o.engine.max_replays, 0, 1000},
       "a request that more stages than this are lost with, one after "
       "another, ends"},
      {"peer-gateway", &o.peers.addresses,
       "HTTP addresses of other gateways of the same stages, host:port: one "
       "leads, the others pass requests on to it and stand by"},
      {"peer-gateway-ca", &o.peers.ca,
       "PEM file: who signs the certificates that they show clients; empty: "
       "the system's authorities"},
      {"peer-gateway-secret", &o.peers.secret_file,
       "file of a secret that all of them share, a line of 16 to 512 "
       "characters: a leader knows the others' clients apart, and they copy "
       "its streams for GET /v1/streams/ID; empty: neither"},
      {"lease", Seconds(&o.peers.lease, 1, 3600),
       "seconds of this gateway's silence after which a stage is another "
       "one's that asks for it; with --peer-gateway"}};
  for (OptionRow& row : rpc::GatewayRowsOf(o.transport)) {
    rows.push_back(std::move(row));
  }
  return rows;
}

OptionRows EngineRows(GatewayOptions& o) {
  using option::Milliseconds;
  using option::Seconds;
  EngineOptions& engine = o.engine;
  return {
      {"prefix-idle", Seconds(&engine.prefix_idle, 0, 1e6),
       "seconds after which a cached prefix that no request used is "
       "forgotten, and the stages' memory of it given back; looked at while "
       "nothing is computed; 0: never"},
      {"max-running", &engine.max_running, "sequences computed at once"},
      {"max-queue", &engine.max_queue, "sequences that may wait beyond those"},
      {"max-running-per-client", &engine.max_running_per_client,
       "sequences that one client (an API key, else an address) computes at "
       "once while another one's wait; 0: an equal share"},
      {"max-queue-per-client", &engine.max_queue_per_client,
       "sequences of one client that may wait while another one's do; 0: an "
       "equal share"},
      {"max-queue-wait", Seconds(&engine.max_queue_wait, 0, kDay),
       "seconds: a request that would wait longer to start is refused"},
      {"target-itl-ms", Milliseconds(&engine.target_itl, 0, 60000),
       "milliseconds between the tokens of a stream that others' prompts "
       "may make of it; 0: 1.3 times what it takes without them"},
      {"max-step-tokens",
       option::Number<int32_t>(
           "N", {},
           [&engine](int32_t tokens) {
             engine.max_step_tokens = tokens == 0 ? kAllTokens : tokens;
             return OkStatus();
           },
           [&engine]() -> int64_t {
             const int tokens = engine.max_step_tokens;
             return tokens == kAllTokens ? 0 : tokens;
           }),
       "tokens of one step; 0: as many as the stages take"},
      {"prefill-chunk", &engine.prefill_chunk,
       "tokens of one prompt in one step; 0: no limit but the step's; -1: "
       "half of the step's, at least 256"},
      {"no-prefix-cache", option::Off(&engine.prefix_cache),
       "never reuse computed prompt blocks"},
      {"kv-blocks",
       {&o.kv_blocks, 0, option::kNoLimit},
       "KV blocks of 16 tokens to use; 0: all that the stages have, up to "
       "1048576"},
      {"max-plans-in-flight", &engine.max_plans_in_flight,
       "plans that the stages compute at once; 0: one per stage"},
      {"ahead-ms", Milliseconds(&engine.ahead_within, 0, 60000),
       "a plan leaves before the result of the one before it while plans of "
       "decodes take at most so many milliseconds, full plans of prompts "
       "20 times as many; 0: none does"}};
}

OptionRows DoorRows(GatewayOptions& o) {
  using option::Mebibytes;
  using option::Seconds;
  http::HttpLimits& limits = o.http_limits;
  return {
      {"listen", &o.listen,
       "HTTP address, IP:port; port 0: the system chooses"},
      {"metrics-listen", &o.metrics_listen,
       "a second address for /metrics, /livez and /readyz; empty: none"},
      {"http-threads", {&o.http_threads, 1, 256}, "event loops"},
      {"text-threads",
       {&o.text_threads, 0, 256},
       "threads that parse, tokenize and format what is large, in turns "
       "among clients; with several the first is kept for small work; 0: 3, "
       "on two CPUs 2"},
      {"text-memory", Mebibytes(&o.text_bytes, 1, kMostMib),
       "MiB of large text work at once"},
      {"answer-memory", Mebibytes(&limits.all_backlog_bytes, 1, kMostMib),
       "MiB of all answers that clients have not read yet; beyond it the "
       "largest of the client that has the most is cut"},
      {"max-connections",
       {&limits.connections, 1, option::kNoLimit},
       "open connections at once"},
      {"max-connections-per-client",
       {&limits.connections_per_client, 1, option::kNoLimit},
       "of one address, while all are taken and others wait"},
      {"max-body", Mebibytes(&limits.body_bytes, 1, 1024),
       "MiB of a request's body: agents repeat the pictures of a conversation"},
      {"header-timeout", Seconds(&limits.header_time, 0.1, 3600),
       "seconds in which a connection's first byte, and then a request's "
       "header, must be there"},
      {"body-timeout", Seconds(&limits.body_time, 0.1, 3600),
       "seconds in which a request's body must be there"},
      {"min-body-rate",
       {&limits.min_body_rate, 0, option::kNoLimit},
       "bytes per second that a body must have had after its first 10 "
       "seconds; 0: none"},
      {"api-key-file", &o.api_key_file,
       "file of API keys, a line each: name:key or key; read again when it "
       "changes; empty: the keys in the environment's SLUICE_API_KEYS, by "
       "commas or lines; without any no key is asked for"},
      {"open", &o.open,
       "let everybody in who can reach --listen: needed beyond loopback "
       "without API keys"},
      {"http-tls-cert", &o.http_tls.certificate,
       "PEM file: the certificate shown to clients, with its chain; read "
       "again when it changes; empty: plain HTTP"},
      {"http-tls-key", &o.http_tls.key, "PEM file: its key"},
      {"allowed-hosts", &o.allowed_hosts,
       "names that clients without API keys may call this server by, besides "
       "localhost and IP addresses: host, .domain or *"},
      {"cors-origins", &o.cors_origins,
       "origins whose web pages may call this server: *, or "
       "scheme://host[:port],..; empty: its own and, on loopback without "
       "API keys, those of this machine"},
      {"trusted-proxies", &o.trusted_proxies,
       "addresses and networks, as 10.0.0.0/8, of proxies in front of "
       "--listen: the client's address is the one in their Forwarded or "
       "X-Forwarded-For; empty: both headers are ignored"}};
}

OptionRows RecordRows(GatewayFlags& flags) {
  GatewayOptions& o = flags.gateway;
  return {{"trace-sample",
           {&o.traces.sample, 0, 1},
           "share of requests that are traced without asking for it"},
          {"trace-dir", &o.traces.folder,
           "folder that every trace is written to, for Perfetto; empty: none"},
          {"access-log", &o.access_log,
           "log a line per request: figures, never a text of it"},
          {"metrics-compat",
           option::Words(&o.vllm_metrics, {{"vllm", true}, {"none", false}}),
           "vllm: vLLM's metric names beside ours; none: ours alone"},
          {"metrics-key-names", &o.metrics_key_names,
           "count requests per API key in the metrics, by the keys' names"},
          {"debug-endpoints", &o.debug_endpoints,
           "serve /debug/logits and GET /debug/traces"},
          {"port-file", &flags.port_file,
           "file that the chosen address is written to"},
          {"drain-timeout", option::Seconds(&flags.drain_timeout, 0, kDay),
           "seconds that requests in progress get after SIGTERM"}};
}

Status CheckModelNames(const std::vector<std::string>& names) {
  constexpr size_t kMaxBytes = 256;
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kMaxBytes) {
      return InvalidArgument("--served-model-name: each name must have 1 to ",
                             kMaxBytes, " bytes, got ", name.size());
    }
  }
  return OkStatus();
}

}  // namespace

GatewayFlags::GatewayFlags() {
  gateway.engine.recovery_timeout = std::chrono::seconds(30);
  gateway.engine.ahead_within = std::chrono::milliseconds(5);
  gateway.engine.max_step_tokens = kAllTokens;
  gateway.engine.prefill_chunk = EngineOptions::kHalfStep;
  // The limit of Anthropic's servers, for which its clients cut their requests.
  gateway.http_limits.body_bytes = size_t{32} << 20;
  gateway.grammars.num_threads = 0;
  gateway.grammars.trial_program = "/proc/self/exe";
}

OptionRows RowsOf(GatewayFlags& flags) {
  OptionRows all;
  for (const OptionRows& rows :
       {DoorRows(flags.gateway), StageRows(flags), ModelRows(flags),
        EngineRows(flags.gateway), RuleRows(flags.gateway),
        GrammarRows(flags.gateway.grammars), RecordRows(flags)}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

StatusOr<std::vector<StagePlace>> ParsePlaces(
    const std::vector<std::string>& texts) {
  std::vector<StagePlace> places;
  for (const std::string& text : texts) {
    StagePlace& place = places.emplace_back();
    const char* end = text.data() + text.size();
    auto parsed = std::from_chars(text.data(), end, place.first_layer);
    const bool dash = parsed.ptr != end && *parsed.ptr == '-';
    if (dash) parsed = std::from_chars(parsed.ptr + 1, end, place.last_layer);
    if (!dash || parsed.ec != std::errc() || parsed.ptr != end ||
        place.last_layer == INT32_MAX || ++place.last_layer < 1 ||
        place.first_layer < 0 || place.empty()) {
      return InvalidArgument(
          "--layers must be first-last of every stage, got '", text, "'");
    }
  }
  return places;
}

StatusOr<GatewayOptions> Resolve(const GatewayFlags& flags) {
  GatewayOptions options = flags.gateway;
  if (options.stages.empty()) return InvalidArgument("--stages is needed");
  SLUICE_ASSIGN_OR_RETURN(options.places, ParsePlaces(flags.layers));
  if (options.model_path.empty()) return InvalidArgument("--model is needed");
  if (!options.model_names.empty() && !flags.model_names.empty()) {
    return InvalidArgument(
        "--served-model-name and --model-name are one: give either");
  }
  if (options.model_names.empty()) options.model_names = flags.model_names;
  SLUICE_RETURN_IF_ERROR(CheckModelNames(options.model_names));
  // Zero and less mean off, as empty does.
  const Duration ping = options.rules.stream_times.ping_interval;
  if (ping > Duration::zero() && ping < kMinPing) {
    return InvalidArgument("--sse-ping-interval must be 0 or at least ",
                           Seconds(kMinPing), ", got ", Seconds(ping));
  }
  if (options.text_threads == 0) {
    options.text_threads = UsableCpus() <= 2 ? 2 : 3;
  }
  if (options.grammars.num_threads == 0) {
    options.grammars.num_threads = std::clamp(UsableCpus() / 4, 2, 8);
  }
  const char* const keys = std::getenv("SLUICE_API_KEYS");
  if (keys != nullptr) options.api_keys = keys;
  SLUICE_ASSIGN_OR_RETURN(
      options.otlp, otlp::OptionsFromEnvironment(
                        [](const char* name) { return std::getenv(name); }));
  return options;
}

}  // namespace sluice::gateway
