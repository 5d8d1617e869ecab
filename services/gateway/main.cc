// sluice-gateway: the OpenAI API over a pipeline of stages. See README.md.
// Size: every flag of the process is here, with the check of its value.
#include <absl/flags/flag.h>
#include <malloc.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "common/base/control_group.h"
#include "common/base/log.h"
#include "common/dialects/openai/parse.h"
#include "common/grammar/compile_server.h"
#include "common/otlp/otlp_options.h"
#include "common/service/service_main.h"
#include "services/gateway/gateway_server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:8000",
          "HTTP address, IP:port; port 0: the system chooses");
ABSL_FLAG(std::string, metrics_listen, "",
          "a second address for /metrics, /livez and /readyz; empty: none");
ABSL_FLAG(std::vector<std::string>, stages, {},
          "gRPC addresses of the stages, in the order of their layers");
ABSL_FLAG(std::vector<std::string>, spares, {},
          "gRPC addresses of stages of --layers assigned that take the place "
          "of one that is lost");
ABSL_FLAG(std::vector<std::string>, layers, {},
          "layers of the stages, as 0-14,15-29, for those of --layers "
          "assigned; empty: what the stages were started with");
ABSL_FLAG(std::string, model, "", "model folder, .gguf or .m file");
ABSL_FLAG(std::vector<std::string>, served_model_name, {},
          "names of the model in requests, the first is shown; empty: by its "
          "config, its place in a Hugging Face cache, or its file");
ABSL_FLAG(std::vector<std::string>, model_name, {},
          "another name of --served-model-name");
ABSL_FLAG(bool, any_model_name, false, "requests may name any model");
ABSL_FLAG(int32_t, max_stop_strings, 32, "stop strings of one request");
ABSL_FLAG(std::string, max_tokens_overflow, "refuse",
          "max_tokens beyond what the context leaves: refuse, or cut to it");
ABSL_FLAG(double, sse_head_after, 10,
          "seconds after which a stream that waits sends its header");
ABSL_FLAG(double, sse_ping_interval, 10,
          "seconds of silence after which a stream sends a comment; 0: never");
ABSL_FLAG(bool, no_event_ids, false,
          "events of streams have no ids, by which a client that lost its "
          "connection gets the rest");
ABSL_FLAG(int32_t, stream_journal_mb, 64,
          "MiB for the requests of recent streams, for GET /v1/streams/ID; 0: "
          "none is kept");
ABSL_FLAG(double, stream_journal_minutes, 10,
          "minutes that they are kept, at the most");
ABSL_FLAG(std::string, tool_format, "auto",
          "how the model writes tool calls: glm, qwen3-coder, hermes, "
          "llama3-json, harmony, none and others of API.md; generic: as a "
          "system message tells it to; auto: as its chat template shows, else "
          "generic");
ABSL_FLAG(std::string, reasoning_format, "auto",
          "how it sets reasoning apart: think, harmony, mistral, seed-oss, "
          "command, gemma4, apertus, think-answer, think-response, minimax-m3, "
          "none; auto: as its chat template shows");
ABSL_FLAG(std::string, tls_cert, "", "PEM file: this gateway's certificate");
ABSL_FLAG(std::string, tls_key, "", "PEM file: its key");
ABSL_FLAG(std::string, tls_ca, "", "PEM file: who signs the stages");
ABSL_FLAG(std::string, tls_roles, "auto",
          "whether stages need the role `stage` in their certificates: "
          "require, allow those without a role, or auto: they do where "
          "--tls-cert names one");
ABSL_FLAG(bool, insecure, false, "plain text to stages beyond loopback");
ABSL_FLAG(double, peer_timeout, 10,
          "seconds of silence after which a connection to a peer is given up");
ABSL_FLAG(double, lost_after, 2.5,
          "seconds of silence after which a stage is lost");
ABSL_FLAG(double, recovery_timeout, 30,
          "seconds that requests wait for a lost stage, or what takes its "
          "place; 0: they end with it");
ABSL_FLAG(double, resplit_after, 10,
          "seconds without a process for a stage's place after which the other "
          "stages, if they are assignable, split the layers anew; 0: never");
ABSL_FLAG(double, rejoin_after, 10,
          "seconds that a process must be there without a break before the "
          "layers are split over it again");
ABSL_FLAG(std::vector<std::string>, peer_gateway, {},
          "HTTP addresses of other gateways of the same stages, host:port: one "
          "leads, the others pass requests on to it and stand by");
ABSL_FLAG(std::string, peer_gateway_ca, "",
          "PEM file: who signs the certificates that they show clients; empty: "
          "the system's authorities");
ABSL_FLAG(std::string, peer_gateway_secret, "",
          "file of a secret that all of them share, a line of 16 to 512 "
          "characters: a leader knows the others' clients apart, and they copy "
          "its streams for GET /v1/streams/ID; empty: neither");
ABSL_FLAG(double, lease, 3,
          "seconds of this gateway's silence after which a stage is another "
          "one's that asks for it; with --peer-gateway");
ABSL_FLAG(int32_t, max_replays, 2,
          "a request that more stages than this are lost with, one after "
          "another, ends");
ABSL_FLAG(double, prefix_idle, 300,
          "seconds after which a cached prefix that no request used is "
          "forgotten, and the stages' memory of it given back; looked at while "
          "nothing is computed; 0: never");
ABSL_FLAG(int32_t, max_running, 64, "sequences computed at once");
ABSL_FLAG(int32_t, max_queue, 256, "sequences that may wait beyond those");
ABSL_FLAG(int32_t, max_running_per_client, 0,
          "sequences that one client (an API key, else an address) computes at "
          "once while another one's wait; 0: an equal share");
ABSL_FLAG(int32_t, max_queue_per_client, 0,
          "sequences of one client that may wait while another one's do; 0: an "
          "equal share");
ABSL_FLAG(double, max_queue_wait, 30,
          "seconds: a request that would wait longer to start is refused");
ABSL_FLAG(double, target_itl_ms, 0,
          "milliseconds between the tokens of a stream that others' prompts "
          "may make of it; 0: 1.3 times what it takes without them");
ABSL_FLAG(int32_t, max_step_tokens, 0,
          "tokens of one step; 0: as many as the stages take");
ABSL_FLAG(int32_t, prefill_chunk, -1,
          "tokens of one prompt in one step; 0: no limit but the step's; -1: "
          "half of the step's, at least 256");
ABSL_FLAG(bool, no_prefix_cache, false, "never reuse computed prompt blocks");
ABSL_FLAG(int32_t, kv_blocks, 0,
          "KV blocks of 16 tokens to use; 0: all that the stages have, up to "
          "1048576");
ABSL_FLAG(int32_t, max_plans_in_flight, 0, "0: one per stage");
ABSL_FLAG(double, ahead_ms, 5,
          "a plan leaves before the result of the one before it while plans of "
          "decodes take at most so many milliseconds, full plans of prompts "
          "20 times as many; 0: none does");
ABSL_FLAG(int32_t, http_threads, 2, "event loops");
ABSL_FLAG(int32_t, text_threads, 0,
          "threads that parse, tokenize and format what is large, in turns "
          "among clients; with several the first is kept for small work; 0: 3, "
          "on two CPUs 2");
ABSL_FLAG(int32_t, text_memory, 512, "MiB of large text work at once");
ABSL_FLAG(int32_t, answer_memory, 256,
          "MiB of all answers that clients have not read yet; beyond it the "
          "largest of the client that has the most is cut");
ABSL_FLAG(int32_t, max_connections, 4096, "open connections at once");
ABSL_FLAG(int32_t, max_connections_per_client, 1024,
          "of one address, while all are taken and others wait");
ABSL_FLAG(double, header_timeout, 10,
          "seconds in which a connection's first byte, and then a request's "
          "header, must be there");
ABSL_FLAG(double, body_timeout, 60,
          "seconds in which a request's body must be there");
ABSL_FLAG(int32_t, min_body_rate, 500,
          "bytes per second that a body must have had after its first 10 "
          "seconds; 0: none");
ABSL_FLAG(std::string, api_key_file, "",
          "file of API keys, a line each: name:key or key; read again when it "
          "changes; empty: the keys in the environment's SLUICE_API_KEYS, by "
          "commas or lines; without any no key is asked for");
ABSL_FLAG(bool, open, false,
          "let everybody in who can reach --listen: needed beyond loopback "
          "without API keys");
ABSL_FLAG(std::string, http_tls_cert, "",
          "PEM file: the certificate shown to clients, with its chain; read "
          "again when it changes; empty: plain HTTP");
ABSL_FLAG(std::string, http_tls_key, "", "PEM file: its key");
ABSL_FLAG(
    std::vector<std::string>, allowed_hosts, {},
    "names that clients without API keys may call this server by, besides "
    "localhost and IP addresses: host, .domain or *");
ABSL_FLAG(std::vector<std::string>, cors_origins, {},
          "origins whose web pages may call this server: *, or "
          "scheme://host[:port],..; empty: its own and, on loopback without "
          "API keys, those of this machine");
ABSL_FLAG(std::vector<std::string>, trusted_proxies, {},
          "addresses and networks, as 10.0.0.0/8, of proxies in front of "
          "--listen: the client's address is the one in their Forwarded or "
          "X-Forwarded-For; empty: both headers are ignored");
ABSL_FLAG(bool, strict_fields, false,
          "refuse fields of a request's body that are not known, instead of "
          "ignoring them");
ABSL_FLAG(int64_t, max_answer_bytes, 64 << 20,
          "bytes that a request's choices may take, by an estimate from n, "
          "prompt, logprobs and max_tokens");
ABSL_FLAG(int64_t, max_history_bytes, 16 << 20,
          "bytes of messages and tools for the chat template: text, and 64 for "
          "each value");
ABSL_FLAG(int64_t, max_tokenize_bytes, 0,
          "bytes of one text to tokenize; 0: 1 MiB, or 16 for each token of "
          "the context if that is more");
ABSL_FLAG(int64_t, max_grammar_bytes, 256 << 10,
          "bytes of a grammar that an answer is held to, as of a JSON Schema");
ABSL_FLAG(int32_t, max_schema_levels, 64,
          "levels of a JSON Schema's objects and arrays");
ABSL_FLAG(int32_t, max_enum_values, 10000,
          "values of all enums of a JSON Schema together");
ABSL_FLAG(
    int32_t, max_grammar_compile_ms, 1000,
    "milliseconds of CPU time that compiling a grammar may take, together "
    "with trying it in a process of its own before");
ABSL_FLAG(int32_t, grammar_threads, 0,
          "threads that compute which tokens a grammar allows; 0: a quarter "
          "of the CPUs, at least 2 and at most 8");
ABSL_FLAG(double, trace_sample, 0,
          "share of requests that are traced without asking for it, 0 to 1");
ABSL_FLAG(std::string, trace_dir, "",
          "folder that every trace is written to, for Perfetto; empty: none");
ABSL_FLAG(std::string, log_format, "text", "lines of the log: text or json");
ABSL_FLAG(std::string, log_level, "info",
          "the least that is logged: debug, info, warning or error");
ABSL_FLAG(bool, access_log, false,
          "log a line per request: figures, never a text of it");
ABSL_FLAG(std::string, metrics_compat, "vllm",
          "vllm: vLLM's metric names beside ours; none: ours alone");
ABSL_FLAG(bool, metrics_key_names, false,
          "count requests per API key in the metrics, by the keys' names");
ABSL_FLAG(std::string, port_file, "",
          "file that the chosen address is written to");
ABSL_FLAG(double, drain_timeout, 120,
          "seconds that requests in progress get after SIGTERM");
ABSL_FLAG(bool, debug_endpoints, false,
          "serve /debug/logits and GET /debug/traces");

namespace sluice::gateway {
namespace {

constexpr double kMinPingSeconds = 0.01;

Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds));
}

// INVALID_ARGUMENT unless `value` lies in [low, high]; NaN does not.
Status CheckRange(const char* flag, double value, double low, double high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(flag, " must be between ", low, " and ", high,
                         ", got ", value);
}

StatusOr<serving::CostLimits> CostLimitsFromFlags() {
  const auto size = [](const char* flag, int64_t value,
                       int64_t low) -> StatusOr<size_t> {
    SLUICE_RETURN_IF_ERROR(CheckRange(flag, static_cast<double>(value),
                                      static_cast<double>(low),
                                      static_cast<double>(int64_t{1} << 40)));
    return static_cast<size_t>(value);
  };
  serving::CostLimits limits;
  SLUICE_ASSIGN_OR_RETURN(
      limits.answer_bytes,
      size("--max-answer-bytes", absl::GetFlag(FLAGS_max_answer_bytes), 1));
  SLUICE_ASSIGN_OR_RETURN(
      limits.history_bytes,
      size("--max-history-bytes", absl::GetFlag(FLAGS_max_history_bytes), 1));
  SLUICE_ASSIGN_OR_RETURN(
      limits.tokenize_bytes,
      size("--max-tokenize-bytes", absl::GetFlag(FLAGS_max_tokenize_bytes), 0));
  return limits;
}

StatusOr<GrammarCompiler::Options> GrammarsFromFlags() {
  GrammarCompiler::Options grammars;
  const int64_t bytes = absl::GetFlag(FLAGS_max_grammar_bytes);
  SLUICE_RETURN_IF_ERROR(CheckRange("--max-grammar-bytes",
                                    static_cast<double>(bytes), 1, 1 << 20));
  grammars.limits.max_bytes = static_cast<size_t>(bytes);
  grammars.limits.max_levels = absl::GetFlag(FLAGS_max_schema_levels);
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--max-schema-levels", grammars.limits.max_levels, 1, 64));
  grammars.limits.max_enum_values = absl::GetFlag(FLAGS_max_enum_values);
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--max-enum-values", grammars.limits.max_enum_values, 1, 1 << 20));
  grammars.limits.max_compile_ms = absl::GetFlag(FLAGS_max_grammar_compile_ms);
  SLUICE_RETURN_IF_ERROR(CheckRange("--max-grammar-compile-ms",
                                    grammars.limits.max_compile_ms, 1, 60'000));
  grammars.trial_program = "/proc/self/exe";
  grammars.num_threads = absl::GetFlag(FLAGS_grammar_threads);
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--grammar-threads", grammars.num_threads, 0, 256));
  if (grammars.num_threads == 0) {
    grammars.num_threads = std::clamp(UsableCpus() / 4, 2, 8);
  }
  return grammars;
}

// Checks the flags that no later code checks.
Status CheckFlags() {
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--kv-blocks", absl::GetFlag(FLAGS_kv_blocks), 0, INT32_MAX));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--http-threads", absl::GetFlag(FLAGS_http_threads), 1, 256));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--text-threads", absl::GetFlag(FLAGS_text_threads), 0, 256));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--text-memory", absl::GetFlag(FLAGS_text_memory), 1, 1 << 20));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--answer-memory", absl::GetFlag(FLAGS_answer_memory), 1, 1 << 20));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--max-connections", absl::GetFlag(FLAGS_max_connections), 1, INT32_MAX));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--max-connections-per-client",
      absl::GetFlag(FLAGS_max_connections_per_client), 1, INT32_MAX));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--peer-timeout", absl::GetFlag(FLAGS_peer_timeout), 0.1, 3600));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--lost-after", absl::GetFlag(FLAGS_lost_after), 0.1, 3600));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--recovery-timeout", absl::GetFlag(FLAGS_recovery_timeout), 0, 86400));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--resplit-after", absl::GetFlag(FLAGS_resplit_after), 0, 86400));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--lease", absl::GetFlag(FLAGS_lease), 1, 3600));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--rejoin-after", absl::GetFlag(FLAGS_rejoin_after), 0.1, 86400));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--prefix-idle", absl::GetFlag(FLAGS_prefix_idle), 0, 1e6));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--max-replays", absl::GetFlag(FLAGS_max_replays), 0, 1000));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--header-timeout", absl::GetFlag(FLAGS_header_timeout), 0.1, 3600));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--body-timeout", absl::GetFlag(FLAGS_body_timeout), 0.1, 3600));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--min-body-rate", absl::GetFlag(FLAGS_min_body_rate), 0, INT32_MAX));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--max-queue-wait", absl::GetFlag(FLAGS_max_queue_wait), 0, 86400));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "--target-itl-ms", absl::GetFlag(FLAGS_target_itl_ms), 0, 60000));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--ahead-ms", absl::GetFlag(FLAGS_ahead_ms), 0, 60000));
  return CheckRange("--drain-timeout", absl::GetFlag(FLAGS_drain_timeout), 0,
                    86400);
}

StatusOr<std::vector<std::string>> ModelNames() {
  constexpr size_t kMaxBytes = 256;
  auto names = absl::GetFlag(FLAGS_served_model_name);
  const auto old_names = absl::GetFlag(FLAGS_model_name);
  if (!names.empty() && !old_names.empty()) {
    return InvalidArgument(
        "--served-model-name and --model-name are one: give either");
  }
  if (names.empty()) names = old_names;
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kMaxBytes) {
      return InvalidArgument("--served-model-name: each name must have 1 to ",
                             kMaxBytes, " bytes, got ", name.size());
    }
  }
  return names;
}

StatusOr<serving::RequestRules> RulesFromFlags() {
  serving::RequestRules rules;
  const int stops = absl::GetFlag(FLAGS_max_stop_strings);
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--max-stop-strings", stops, 0, openai::kMaxStopStrings));
  rules.max_stop_strings = static_cast<size_t>(stops);
  const std::string overflow = absl::GetFlag(FLAGS_max_tokens_overflow);
  if (overflow != "refuse" && overflow != "cut") {
    return InvalidArgument("--max-tokens-overflow must be refuse or cut, got '",
                           overflow, "'");
  }
  rules.cut_max_tokens = overflow == "cut";
  const double head = absl::GetFlag(FLAGS_sse_head_after);
  SLUICE_RETURN_IF_ERROR(CheckRange("--sse-head-after", head, 0, 86400));
  rules.stream_times.head_after = FromSeconds(head);
  // Zero and less mean off, as empty does.
  const double ping = absl::GetFlag(FLAGS_sse_ping_interval);
  SLUICE_RETURN_IF_ERROR(CheckRange("--sse-ping-interval", ping, -1, 3600));
  if (ping > 0 && ping < kMinPingSeconds) {
    return InvalidArgument("--sse-ping-interval must be 0 or at least ",
                           kMinPingSeconds, ", got ", ping);
  }
  rules.stream_times.ping_interval = FromSeconds(ping);
  rules.event_ids = !absl::GetFlag(FLAGS_no_event_ids);
  return rules;
}

StatusOr<serving::StreamJournal::Options> JournalFromFlags() {
  serving::StreamJournal::Options journal;
  const int32_t mib = absl::GetFlag(FLAGS_stream_journal_mb);
  SLUICE_RETURN_IF_ERROR(CheckRange("--stream-journal-mb", mib, 0, 1 << 20));
  journal.max_bytes = static_cast<size_t>(mib) << 20;
  const double minutes = absl::GetFlag(FLAGS_stream_journal_minutes);
  SLUICE_RETURN_IF_ERROR(
      CheckRange("--stream-journal-minutes", minutes, 0.01, 1440));
  journal.max_age = FromSeconds(minutes * 60);
  return journal;
}

// Access and connection limits.
void SetDoors(GatewayOptions& options) {
  options.cors_origins = absl::GetFlag(FLAGS_cors_origins);
  options.allowed_hosts = absl::GetFlag(FLAGS_allowed_hosts);
  options.trusted_proxies = absl::GetFlag(FLAGS_trusted_proxies);
  options.api_key_file = absl::GetFlag(FLAGS_api_key_file);
  const char* const keys = std::getenv("SLUICE_API_KEYS");
  if (keys != nullptr) options.api_keys = keys;
  options.open = absl::GetFlag(FLAGS_open);
  options.http_tls = {absl::GetFlag(FLAGS_http_tls_cert),
                      absl::GetFlag(FLAGS_http_tls_key)};
  http::HttpLimits& limits = options.http_limits;
  limits.connections = absl::GetFlag(FLAGS_max_connections);
  limits.connections_per_client =
      absl::GetFlag(FLAGS_max_connections_per_client);
  limits.header_time = FromSeconds(absl::GetFlag(FLAGS_header_timeout));
  limits.body_time = FromSeconds(absl::GetFlag(FLAGS_body_timeout));
  limits.min_body_rate = absl::GetFlag(FLAGS_min_body_rate);
}

void SetTextThreads(GatewayOptions& options) {
  options.text_threads = absl::GetFlag(FLAGS_text_threads);
  if (options.text_threads == 0) {
    options.text_threads = UsableCpus() <= 2 ? 2 : 3;
  }
  options.text_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_text_memory))
                       << 20;
}

// What becomes of a lost stage's place and requests.
void SetLosses(GatewayOptions& options) {
  options.lost_after = FromSeconds(absl::GetFlag(FLAGS_lost_after));
  options.resplit = {FromSeconds(absl::GetFlag(FLAGS_resplit_after)),
                     FromSeconds(absl::GetFlag(FLAGS_rejoin_after))};
  options.engine.recovery_timeout =
      FromSeconds(absl::GetFlag(FLAGS_recovery_timeout));
  options.engine.max_replays = absl::GetFlag(FLAGS_max_replays);
  options.engine.prefix_idle = FromSeconds(absl::GetFlag(FLAGS_prefix_idle));
}

void SetPeers(GatewayOptions& options) {
  options.peers.addresses = absl::GetFlag(FLAGS_peer_gateway);
  options.peers.ca = absl::GetFlag(FLAGS_peer_gateway_ca);
  options.peers.secret_file = absl::GetFlag(FLAGS_peer_gateway_secret);
  options.peers.lease = FromSeconds(absl::GetFlag(FLAGS_lease));
}

StatusOr<std::vector<StagePlace>> PlacesFromFlags() {
  std::vector<StagePlace> places;
  for (const std::string& text : absl::GetFlag(FLAGS_layers)) {
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

Status SetTraces(GatewayOptions& options) {
  options.traces.sample = absl::GetFlag(FLAGS_trace_sample);
  options.traces.folder = absl::GetFlag(FLAGS_trace_dir);
  const auto get = [](const char* name) { return std::getenv(name); };
  SLUICE_ASSIGN_OR_RETURN(options.otlp, otlp::OptionsFromEnvironment(get));
  return OkStatus();
}

Status SetTransport(rpc::TransportOptions& transport) {
  transport.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  transport.tls_key = absl::GetFlag(FLAGS_tls_key);
  transport.tls_ca = absl::GetFlag(FLAGS_tls_ca);
  SLUICE_ASSIGN_OR_RETURN(transport.roles,
                          rpc::ParseTlsRoles(absl::GetFlag(FLAGS_tls_roles)));
  transport.insecure = absl::GetFlag(FLAGS_insecure);
  transport.peer_timeout = FromSeconds(absl::GetFlag(FLAGS_peer_timeout));
  return OkStatus();
}

StatusOr<GatewayOptions> OptionsFromFlags() {
  SLUICE_RETURN_IF_ERROR(CheckFlags());
  GatewayOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.stages = absl::GetFlag(FLAGS_stages);
  if (options.stages.empty()) return InvalidArgument("--stages is needed");
  options.spares = absl::GetFlag(FLAGS_spares);
  SLUICE_ASSIGN_OR_RETURN(options.places, PlacesFromFlags());
  options.model_path = absl::GetFlag(FLAGS_model);
  if (options.model_path.empty()) return InvalidArgument("--model is needed");
  SLUICE_ASSIGN_OR_RETURN(options.model_names, ModelNames());
  options.any_model_name = absl::GetFlag(FLAGS_any_model_name);
  SLUICE_ASSIGN_OR_RETURN(options.rules, RulesFromFlags());
  SLUICE_ASSIGN_OR_RETURN(options.stream_journal, JournalFromFlags());
  options.tool_format = absl::GetFlag(FLAGS_tool_format);
  options.reasoning_format = absl::GetFlag(FLAGS_reasoning_format);
  SLUICE_RETURN_IF_ERROR(SetTransport(options.transport));
  SetLosses(options);
  SetPeers(options);
  EngineOptions& engine = options.engine;
  engine.max_running = absl::GetFlag(FLAGS_max_running);
  engine.max_queue = absl::GetFlag(FLAGS_max_queue);
  engine.max_running_per_client = absl::GetFlag(FLAGS_max_running_per_client);
  engine.max_queue_per_client = absl::GetFlag(FLAGS_max_queue_per_client);
  engine.max_queue_wait = FromSeconds(absl::GetFlag(FLAGS_max_queue_wait));
  engine.target_itl = FromSeconds(absl::GetFlag(FLAGS_target_itl_ms) / 1000);
  engine.ahead_within = FromSeconds(absl::GetFlag(FLAGS_ahead_ms) / 1000);
  const int32_t step_tokens = absl::GetFlag(FLAGS_max_step_tokens);
  engine.max_step_tokens =
      step_tokens == 0 ? std::numeric_limits<int32_t>::max() : step_tokens;
  engine.prefill_chunk = absl::GetFlag(FLAGS_prefill_chunk);
  engine.prefix_cache = !absl::GetFlag(FLAGS_no_prefix_cache);
  engine.max_plans_in_flight = absl::GetFlag(FLAGS_max_plans_in_flight);
  options.kv_blocks = absl::GetFlag(FLAGS_kv_blocks);
  options.http_threads = absl::GetFlag(FLAGS_http_threads);
  SetTextThreads(options);
  options.http_limits.all_backlog_bytes =
      static_cast<size_t>(absl::GetFlag(FLAGS_answer_memory)) << 20;
  SetDoors(options);
  const std::string compat = absl::GetFlag(FLAGS_metrics_compat);
  if (compat != "vllm" && compat != "none") {
    return InvalidArgument("--metrics-compat must be vllm or none, got '",
                           compat, "'");
  }
  options.vllm_metrics = compat == "vllm";
  options.metrics_key_names = absl::GetFlag(FLAGS_metrics_key_names);
  options.strict_fields = absl::GetFlag(FLAGS_strict_fields);
  SLUICE_ASSIGN_OR_RETURN(options.limits, CostLimitsFromFlags());
  SLUICE_ASSIGN_OR_RETURN(options.grammars, GrammarsFromFlags());
  SLUICE_RETURN_IF_ERROR(SetTraces(options));
  options.access_log = absl::GetFlag(FLAGS_access_log);
  options.debug_endpoints = absl::GetFlag(FLAGS_debug_endpoints);
  return options;
}

// Maps large bodies, and unmaps freed ones: by default glibc raises its
// threshold after the first and keeps later ones.
void BoundHeap() {
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
}

// Returns memory of parsed bodies to the system, which they leave in small
// pieces.
void TidyHeap() {
  constexpr size_t kKeptBytes = size_t{64} << 20;
  if (mallinfo2().fordblks > kKeptBytes) malloc_trim(0);
}

Status Run(const sigset_t& signals) {
  SLUICE_RETURN_IF_ERROR(SetUpLog(absl::GetFlag(FLAGS_log_format),
                                  absl::GetFlag(FLAGS_log_level)));
  BoundHeap();
  SLUICE_ASSIGN_OR_RETURN(GatewayOptions options, OptionsFromFlags());
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          GatewayServer::Start(std::move(options)));
  const bool tls = !absl::GetFlag(FLAGS_http_tls_cert).empty();
  LogInfo("listening on ", tls ? "https" : "http", "://", server->address());
  SLUICE_RETURN_IF_ERROR(
      WritePortFile(absl::GetFlag(FLAGS_port_file), server->address()));
  const Status why = AwaitSignal(signals, [&server] {
    server->Tidy();
    TidyHeap();
  });
  UnblockSignals(signals);
  server->Drain(Clock::now() + FromSeconds(absl::GetFlag(FLAGS_drain_timeout)));
  server->Stop();
  LogInfo("stopped");
  return why;
}

}  // namespace
}  // namespace sluice::gateway

int main(int argc, char** argv) {
  if (sluice::IsCompileProcess(argc, argv)) return sluice::RunCompileProcess();
  return sluice::ServiceMain(
      argc, argv, "gateway",
      "serves the OpenAI API over a pipeline of stages\n"
      "  sluice-gateway --model PATH --stages 127.0.0.1:7001,127.0.0.1:7002",
      sluice::gateway::Run);
}
