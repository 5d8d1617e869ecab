#ifndef SLUICE_COMMON_METRICS_METRIC_NAMES_H_
#define SLUICE_COMMON_METRICS_METRIC_NAMES_H_

// Every metric name and every histogram's bounds, once. Units are suffixes,
// `_total` stands on counters only. Labels are named in the comments.

#include <string_view>
#include <vector>

namespace sluice::metrics::names {

using Name = std::string_view;

// Every process -------------------------------------------------------------
inline constexpr Name kBuildInfo =
    "sluice_build_info";  // version git service isa cuda
inline constexpr Name kProcessCpuSeconds = "process_cpu_seconds_total";
inline constexpr Name kProcessResidentBytes = "process_resident_memory_bytes";
inline constexpr Name kProcessVirtualBytes = "process_virtual_memory_bytes";
inline constexpr Name kMemoryLimitBytes = "sluice_memory_limit_bytes";
inline constexpr Name kMemoryLeftBytes = "sluice_memory_left_bytes";
inline constexpr Name kProcessOpenFds = "process_open_fds";
inline constexpr Name kProcessMaxFds = "process_max_fds";
inline constexpr Name kProcessStartTime = "process_start_time_seconds";
inline constexpr Name kLogLinesDropped = "sluice_log_lines_dropped_total";
inline constexpr Name kExceptions =
    "sluice_exceptions_total";  // where=http_handler|..: the edge
inline constexpr Name kTlsCertificateExpiry =
    "sluice_tls_certificate_expiry_timestamp_seconds";  // use=peers|peers_ca|
                                                        //   http

// gRPC servers: grpc_service, grpc_method, grpc_type; handled: grpc_code.
inline constexpr Name kGrpcHandled = "grpc_server_handled_total";
inline constexpr Name kGrpcHandlingSeconds = "grpc_server_handling_seconds";

// Gateway, by vLLM's names: model_name, engine. ------------------------------
inline constexpr Name kVllmRunning = "vllm:num_requests_running";
inline constexpr Name kVllmWaiting = "vllm:num_requests_waiting";
inline constexpr Name kVllmKvUsage = "vllm:kv_cache_usage_perc";  // 0 to 1
inline constexpr Name kVllmKvUsageOld =
    "vllm:gpu_cache_usage_perc";  // older boards: the same
inline constexpr Name kVllmHealthy = "vllm:engine_healthy";
inline constexpr Name kVllmCacheConfig =
    "vllm:cache_config_info";  // + block_size num_gpu_blocks
                               //   enable_prefix_caching
inline constexpr Name kVllmPromptTokens = "vllm:prompt_tokens_total";
inline constexpr Name kVllmCachedTokens = "vllm:prompt_tokens_cached_total";
inline constexpr Name kVllmGenerationTokens = "vllm:generation_tokens_total";
inline constexpr Name kVllmPreemptions = "vllm:num_preemptions_total";
inline constexpr Name kVllmSuccess =
    "vllm:request_success_total";  // + finished_reason
inline constexpr Name kVllmPrefixQueries = "vllm:prefix_cache_queries_total";
inline constexpr Name kVllmPrefixHits = "vllm:prefix_cache_hits_total";
inline constexpr Name kVllmTtft = "vllm:time_to_first_token_seconds";
inline constexpr Name kVllmItl = "vllm:inter_token_latency_seconds";
inline constexpr Name kVllmTimePerToken =
    "vllm:time_per_output_token_seconds";  // older boards: the same as ITL
inline constexpr Name kVllmRequestTpot =
    "vllm:request_time_per_output_token_seconds";
inline constexpr Name kVllmE2e = "vllm:e2e_request_latency_seconds";
inline constexpr Name kVllmQueueTime = "vllm:request_queue_time_seconds";
inline constexpr Name kVllmPrefillTime = "vllm:request_prefill_time_seconds";
inline constexpr Name kVllmDecodeTime = "vllm:request_decode_time_seconds";
inline constexpr Name kVllmInferenceTime =
    "vllm:request_inference_time_seconds";
inline constexpr Name kVllmRequestPromptTokens = "vllm:request_prompt_tokens";
inline constexpr Name kVllmRequestGenerationTokens =
    "vllm:request_generation_tokens";
inline constexpr Name kVllmRequestMaxTokens = "vllm:request_params_max_tokens";
inline constexpr Name kVllmRequestN = "vllm:request_params_n";
inline constexpr Name kVllmMaxGenerationTokens =
    "vllm:request_max_num_generation_tokens";  // of a prompt's choices
inline constexpr Name kVllmPrefillComputed =
    "vllm:request_prefill_kv_computed_tokens";
inline constexpr Name kVllmIterationTokens =
    "vllm:iteration_tokens_total";  // a histogram, in spite of its name

// Gateway, HTTP: handler, method, status ("2xx"). ----------------------------
inline constexpr Name kHttpRequests = "http_requests_total";
inline constexpr Name kHttpDuration =
    "http_request_duration_seconds";  // handler method
inline constexpr Name kHttpRequestBytes = "http_request_size_bytes";  // handler
inline constexpr Name kHttpResponseBytes =
    "http_response_size_bytes";  // handler

// Gateway, our own -----------------------------------------------------------
inline constexpr Name kGatewayRequests =
    "sluice_gateway_requests_total";  // endpoint status_class error_type
inline constexpr Name kGatewayKeyRequests =
    "sluice_gateway_key_requests_total";  // key (its name) status_class;
                                          //   behind a flag
inline constexpr Name kGatewayInflight = "sluice_gateway_inflight_requests";
inline constexpr Name kGatewayQueueDepth = "sluice_gateway_queue_depth";
inline constexpr Name kGatewayQueueTokens =
    "sluice_gateway_queue_tokens";  // prompt tokens of the waiting
inline constexpr Name kGatewayQueueBytes =
    "sluice_gateway_queue_bytes";  // of their token histories
inline constexpr Name kGatewayPromisedWait =
    "sluice_gateway_promised_wait_seconds";  // of a new request
inline constexpr Name kGatewayPromptBudget =
    "sluice_gateway_prompt_budget_tokens";  // that a step may carry now
inline constexpr Name kGatewayTokenRate =
    "sluice_gateway_token_rate";  // per second; kind=prompt|decode
inline constexpr Name kGatewayRejections =
    "sluice_gateway_rejections_total";  // reason=queue_full|draining|
                                        //   unavailable|too_large|invalid
inline constexpr Name kGatewayDisconnects =
    "sluice_gateway_client_disconnects_total";  // reason
inline constexpr Name kGatewayConnections = "sluice_gateway_connections";
inline constexpr Name kGatewayEvictions =
    "sluice_gateway_connection_evictions_total";  // closed to make room
inline constexpr Name kGatewayLoopLongestHold =
    "sluice_gateway_loop_longest_hold_seconds";  // of its thread's CPU time
inline constexpr Name kGatewayLoopLongHolds =
    "sluice_gateway_loop_long_holds_total";  // of more than 50 ms
inline constexpr Name kGatewaySseBacklog = "sluice_gateway_sse_backlog_bytes";
inline constexpr Name kGatewayTokenizeSeconds =
    "sluice_gateway_tokenize_seconds";
inline constexpr Name kGatewayDetokenizeSeconds =
    "sluice_gateway_detokenize_seconds";
inline constexpr Name kGatewayResumedStreams =
    "sluice_gateway_resumed_streams_total";
inline constexpr Name kGatewayJournalStreams =
    "sluice_gateway_stream_journal_streams";
inline constexpr Name kGatewayJournalBytes =
    "sluice_gateway_stream_journal_bytes";
inline constexpr Name kGatewayJournalDropped =
    "sluice_gateway_stream_journal_dropped_total";  // reason
inline constexpr Name kGatewayGrammarRequests =
    "sluice_gateway_grammar_requests_total";  // kind
inline constexpr Name kGatewayGrammarSeconds =
    "sluice_gateway_grammar_compile_seconds";
inline constexpr Name kGatewayGrammarFailures =
    "sluice_gateway_grammar_failures_total";  // reason=crashed|time|memory
inline constexpr Name kGatewayReady = "sluice_gateway_ready";
inline constexpr Name kGatewayEpoch = "sluice_gateway_epoch";
inline constexpr Name kGatewayRecoverySeconds =
    "sluice_gateway_last_recovery_seconds";  // 0: there was none
inline constexpr Name kGatewayStages = "sluice_gateway_stages";
inline constexpr Name kGatewayMissingStages = "sluice_gateway_missing_stages";
inline constexpr Name kGatewayResplits =
    "sluice_gateway_resplits_total";  // kind
inline constexpr Name kGatewayLeader = "sluice_gateway_leader";
inline constexpr Name kGatewayTerm = "sluice_gateway_term";
inline constexpr Name kGatewayTakeovers = "sluice_gateway_takeovers_total";
inline constexpr Name kGatewayForwarding = "sluice_gateway_forwarding_requests";
inline constexpr Name kGatewayForwarded =
    "sluice_gateway_forwarded_requests_total";  // end
inline constexpr Name kGatewaySteps = "sluice_gateway_steps_total";
inline constexpr Name kGatewayStepSeconds =
    "sluice_gateway_step_seconds_total";  // submit to result, summed
inline constexpr Name kGatewayStepInterval =
    "sluice_gateway_step_interval_seconds_total";  // result to result, summed
inline constexpr Name kGatewayScheduleSeconds =
    "sluice_gateway_schedule_seconds_total";  // planning, summed
inline constexpr Name kGatewayComputedTokens =
    "sluice_gateway_computed_tokens_total";  // recompute included
inline constexpr Name kGatewayPlansInFlight = "sluice_gateway_plans_in_flight";
inline constexpr Name kGatewayPlansInFlightMax =
    "sluice_gateway_plans_in_flight_max";  // the most so far
inline constexpr Name kGatewayRecoveries = "sluice_gateway_recoveries_total";
inline constexpr Name kGatewayReplayedTokens =
    "sluice_gateway_replayed_tokens_total";
inline constexpr Name kGatewayKeptTokens =
    "sluice_gateway_kept_tokens_total";  // of the replayed ones
inline constexpr Name kGatewaySuspended = "sluice_gateway_suspended_sequences";
inline constexpr Name kGatewayYields =
    "sluice_gateway_yields_total";  // places given to another client
inline constexpr Name kGatewayTracesExported =
    "sluice_gateway_otlp_traces_total";  // result=sent|queue_full|failed
inline constexpr Name kGatewayTracesRejectedSpans =
    "sluice_gateway_otlp_rejected_spans_total";
inline constexpr Name kGatewayKvEvictions =
    "sluice_gateway_kv_evictions_total";  // of cached prefixes
inline constexpr Name kGatewaySharedSteps =
    "sluice_gateway_shared_steps_total";  // with several sequences
inline constexpr Name kGatewaySplitPrefills =
    "sluice_gateway_split_prefills_total";  // prompts in several chunks

// Stage: stage, replica; tp_rank where it differs. ---------------------------
inline constexpr Name kStageStepSeconds =
    "sluice_stage_step_seconds";  // phase=prefill|decode|mixed
inline constexpr Name kStageComputeSeconds = "sluice_stage_compute_seconds";
inline constexpr Name kStageWaitSeconds =
    "sluice_stage_wait_seconds";  // for=input|expert|collective|output_window
inline constexpr Name kStageCollectiveSeconds =
    "sluice_stage_collective_seconds";  // op=reduce|gather
inline constexpr Name kStageRankWaitSeconds =
    "sluice_stage_rank_wait_seconds_total";  // tp_rank
inline constexpr Name kStageBusyRatio = "sluice_stage_busy_ratio";
inline constexpr Name kStageQueueDepth = "sluice_stage_queue_depth";
inline constexpr Name kStageSequences = "sluice_stage_sequences";
inline constexpr Name kStageBatchSequences = "sluice_stage_batch_sequences";
inline constexpr Name kStageBatchTokens = "sluice_stage_batch_tokens";
inline constexpr Name kStageKvBlocksUsed = "sluice_stage_kv_blocks_used";
inline constexpr Name kStageKvBlocksPeak = "sluice_stage_kv_blocks_peak";
inline constexpr Name kStageKvBlocks = "sluice_stage_kv_blocks";
inline constexpr Name kStageWireBytes =
    "sluice_stage_wire_bytes_total";  // dir=in|out peer=previous|next|gateway
inline constexpr Name kStageWireMessages =
    "sluice_stage_wire_messages_total";  // dir peer
inline constexpr Name kStageSerializeSeconds = "sluice_stage_serialize_seconds";
inline constexpr Name kStageHopSeconds = "sluice_stage_hop_seconds";
inline constexpr Name kStageWeightsBytes = "sluice_stage_weights_bytes";
inline constexpr Name kStageKvBytes = "sluice_stage_kv_bytes";
inline constexpr Name kStageKvCopies =
    "sluice_stage_kv_copies_total";  // outcome=whole|broken
inline constexpr Name kStageKvCopiedBytes =
    "sluice_stage_kv_copied_bytes_total";
inline constexpr Name kStageKvCopySeconds =
    "sluice_stage_kv_copy_seconds_total";
inline constexpr Name kStageLoadSeconds = "sluice_stage_load_seconds";
inline constexpr Name kStageFirstLayer = "sluice_stage_first_layer";
inline constexpr Name kStageNumLayers = "sluice_stage_num_layers";
inline constexpr Name kStageEpoch = "sluice_stage_epoch";
inline constexpr Name kStageState =
    "sluice_stage_state";  // state=loading|ready|draining|failed: 0 or 1
// On GPUs: gpu, the id.
inline constexpr Name kStageGpuMemoryUsed =
    "sluice_stage_gpu_memory_used_bytes";
inline constexpr Name kStageGpuMemoryTotal =
    "sluice_stage_gpu_memory_total_bytes";
inline constexpr Name kStageGpuBusy = "sluice_stage_gpu_busy_ratio";
inline constexpr Name kStageGpuEccErrors = "sluice_stage_gpu_ecc_errors_total";
inline constexpr Name kStageGpuXidErrors = "sluice_stage_gpu_xid_errors_total";
inline constexpr Name kStageSteps = "sluice_stage_steps_total";
inline constexpr Name kStageStepsAhead = "sluice_stage_steps_ahead_total";
inline constexpr Name kStageTokens = "sluice_stage_tokens_total";
// A stage's remote experts: host (a name of the placement).
inline constexpr Name kStageExpertUp = "sluice_stage_expert_up";
inline constexpr Name kStageExpertSilent = "sluice_stage_expert_silent";
inline constexpr Name kStageExpertBatches =
    "sluice_stage_expert_batches_total";  // + outcome=used|late|refused|lost
inline constexpr Name kStageExpertHedges = "sluice_stage_expert_hedges_total";
inline constexpr Name kStageExpertRetries = "sluice_stage_expert_retries_total";
inline constexpr Name kStageExpertTripSeconds =
    "sluice_stage_expert_trip_seconds";
inline constexpr Name kStageExpertPartSeconds =
    "sluice_stage_expert_part_seconds";  // part=serialise|wire|queue|compute,
                                         // no host
inline constexpr Name kStageExpertFailedRows =
    "sluice_stage_expert_failed_rows_total";  // no host

// Host of experts. ------------------------------------------------------------
inline constexpr Name kExpertBatches =
    "sluice_expert_batches_total";  // outcome=answered|refused
inline constexpr Name kExpertRows =
    "sluice_expert_rows_total";  // outcome=answered|failed
inline constexpr Name kExpertBatchTokens =
    "sluice_expert_batch_tokens";  // rows of one computation
inline constexpr Name kExpertJoinedBatches =
    "sluice_expert_joined_batches";  // batches of one computation
inline constexpr Name kExpertQueueSeconds = "sluice_expert_queue_seconds";
inline constexpr Name kExpertComputeSeconds = "sluice_expert_compute_seconds";
inline constexpr Name kExpertSerializeSeconds =
    "sluice_expert_serialize_seconds";  // both ways, of one batch
inline constexpr Name kExpertQueueDepth = "sluice_expert_queue_depth";
inline constexpr Name kExpertDropped =
    "sluice_expert_dropped_total";  // answers whose client had left
inline constexpr Name kExpertLoadSkew =
    "sluice_expert_load_skew";  // layer; max / mean asks per expert, a minute
inline constexpr Name kExpertActive =
    "sluice_expert_active";  // layer; experts asked in the last minute
inline constexpr Name kExpertTokens =
    "sluice_expert_tokens_total";  // layer expert; behind a flag
inline constexpr Name kExpertWireBytes =
    "sluice_expert_wire_bytes_total";  // dir=in|out
inline constexpr Name kExpertAskers = "sluice_expert_askers";
inline constexpr Name kExpertBusyRatio = "sluice_expert_busy_ratio";
inline constexpr Name kExpertWeightsBytes = "sluice_expert_weights_bytes";
inline constexpr Name kExpertLoadSeconds = "sluice_expert_load_seconds";
inline constexpr Name kExpertState =
    "sluice_expert_state";  // state=loading|ready|stalled|draining|failed: 0|1
// On a GPU: gpu, the id.
inline constexpr Name kExpertGpuMemoryUsed =
    "sluice_expert_gpu_memory_used_bytes";
inline constexpr Name kExpertGpuMemoryTotal =
    "sluice_expert_gpu_memory_total_bytes";
inline constexpr Name kExpertGpuBusy = "sluice_expert_gpu_busy_ratio";
inline constexpr Name kExpertGpuEccErrors =
    "sluice_expert_gpu_ecc_errors_total";
inline constexpr Name kExpertGpuXidErrors =
    "sluice_expert_gpu_xid_errors_total";

}  // namespace sluice::metrics::names

// Upper bounds of histograms. Where vLLM has boundaries ours are a superset,
// so that its dashboards' quantiles stay right.
namespace sluice::metrics::buckets {

using Bounds = std::vector<double>;

inline Bounds Ttft() {
  return {.001, .0025, .005, .01, .02, .04, .06, .08, .1,  .25, .5,  .75,
          1,    2.5,   5,    7.5, 10,  20,  40,  80,  160, 640, 2560};
}
inline Bounds InterToken() {
  return {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
          .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
}
// Latencies of whole requests and of their parts.
inline Bounds RequestLatency() {
  return {.005, .01, .025, .05, .1, .2, .3, .5,  .8,  1,   1.5, 2,    2.5, 5,
          10,   15,  20,   30,  40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
// Parts of a step: 50 us to 10 s.
inline Bounds StepPart() {
  return {.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025,
          .05,    .1,    .25,    .5,    1,    2.5,   5,    10};
}
// Bodies: 100 bytes to 10 MB.
inline Bounds BodyBytes() { return {100, 1e3, 1e4, 1e5, 1e6, 1e7}; }
// Tokens of one step, at vLLM's boundaries.
inline Bounds StepTokens() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}
// n of a request.
inline Bounds Choices() { return {1, 2, 5, 10, 20}; }
// Sequences or tokens of one batch.
inline Bounds BatchSize() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
}
// 1-2-5 series up to `limit`, its last bound included.
inline Bounds TokenCount(int limit) {
  Bounds bounds;
  for (double decade = 1; decade < limit; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step < limit) bounds.push_back(decade * step);
    }
  }
  bounds.push_back(limit);
  return bounds;
}

}  // namespace sluice::metrics::buckets

#endif  // SLUICE_COMMON_METRICS_METRIC_NAMES_H_
