"""How the service fares, by vLLM's names: its own boards show the same."""

from panels import board, buckets, graph, latency, mean, number, quantile, row

_GOOD = [(None, "red"), (1, "green")]
_SHARE = [(None, "green"), (0.7, "orange"), (0.9, "red")]


def _rate(name, matcher="$M", by=""):
    return f"sum {by}(rate({name}{{{matcher}}}$I))"


def make():
    overview = [
        row("Now"),
        number("Ready", "none", "min(sluice_gateway_ready{$C})", steps=_GOOD,
               about="1 if every gateway's /readyz says 200."),
        number("Running", "none", "sum(vllm:num_requests_running{$M})"),
        number("Waiting", "none", "sum(vllm:num_requests_waiting{$M})",
               steps=[(None, "green"), (10, "orange"), (50, "red")]),
        number("Tokens per second", "none",
               _rate("vllm:generation_tokens_total")),
        number("KV cache in use", "percentunit",
               "max(vllm:kv_cache_usage_perc{$M})", steps=_SHARE),
        number("A new request waits", "s",
               "max(sluice_gateway_promised_wait_seconds{$C})",
               steps=[(None, "green"), (2, "orange"), (10, "red")],
               about="What the gateway would promise a request that came "
                     "now."),
    ]
    times = [
        row("Latency"),
        graph("End to end", "s", *latency("vllm:e2e_request_latency_seconds"),
              about="From a request's arrival to its last token."),
        graph("Time to first token", "s",
              *latency("vllm:time_to_first_token_seconds")),
        graph("Between tokens", "s",
              *latency("vllm:inter_token_latency_seconds")),
        graph("Queue time", "s", *latency("vllm:request_queue_time_seconds"),
              about="From arrival to the first step."),
        graph("Prefill and decode", "s",
              (mean("vllm:request_prefill_time_seconds", "$M"), "prefill"),
              (mean("vllm:request_decode_time_seconds", "$M"), "decode"),
              (mean("vllm:request_inference_time_seconds", "$M"),
               "both"), about="Means of a request."),
        graph("Text", "s",
              (quantile(0.95, "sluice_gateway_tokenize_seconds", "$C"),
               "tokenize, P95"),
              (quantile(0.95, "sluice_gateway_detokenize_seconds", "$C"),
               "detokenize, P95"),
              about="Template and tokenizer of a request; an event's tokens "
                    "to text."),
    ]
    load = [
        row("Load"),
        graph("Tokens per second", "none",
              (_rate("vllm:prompt_tokens_total"), "prompt"),
              (_rate("vllm:generation_tokens_total"), "generation")),
        graph("Scheduler", "none",
              ("sum(vllm:num_requests_running{$M})", "running"),
              ("sum(vllm:num_requests_waiting{$M})", "waiting")),
        graph("KV cache and prefixes", "percentunit",
              ("max(vllm:kv_cache_usage_perc{$M})", "KV in use"),
              (_rate("vllm:prefix_cache_hits_total") + " / "
               + _rate("vllm:prefix_cache_queries_total"), "prefix hits"),
              limits=(0, 1)),
        graph("Ends of sequences", "reqps",
              (_rate("vllm:request_success_total",
                     by="by (finished_reason) "), "{{finished_reason}}"),
              stacked=True),
        graph("Answers", "reqps",
              (_rate("sluice_gateway_requests_total",
                     '$C,endpoint=~"/v1/.*"', by="by (status_class) "),
               "{{status_class}}"), stacked=True),
        graph("Refused and left", "reqps",
              (_rate("sluice_gateway_rejections_total", "$C",
                     by="by (reason) "), "{{reason}}"),
              (_rate("sluice_gateway_client_disconnects_total", "$C",
                     by="by (reason) "), "client: {{reason}}")),
        graph("Preempted, evicted", "none",
              (_rate("vllm:num_preemptions_total"), "preempted sequences"),
              (_rate("sluice_gateway_kv_evictions_total", "$C"),
               "blocks of cached prefixes")),
        graph("Tokens of a step", "none",
              (mean("vllm:iteration_tokens_total", "$M"), "mean"),
              (quantile(0.95, "vllm:iteration_tokens_total", "$M"), "P95")),
        graph("Connections and streams", "none",
              ("sum(sluice_gateway_connections{$C})", "connections"),
              ("sum(sluice_gateway_inflight_requests{$C})", "requests")),
    ]
    shapes = [
        row("What is asked"),
        buckets("Prompt tokens", "none", "vllm:request_prompt_tokens"),
        buckets("Generated tokens", "none", "vllm:request_generation_tokens"),
        buckets("Time to first token", "s",
                "vllm:time_to_first_token_seconds"),
        graph("Most tokens asked and given", "none",
              (quantile(0.95, "vllm:request_params_max_tokens", "$M"),
               "max_tokens, P95"),
              (quantile(0.95, "vllm:request_max_num_generation_tokens",
                        "$M"), "given, P95"), size=(12, 8)),
    ]
    return board("service", "Sluice: service",
                 "Requests, latencies and tokens, by vLLM's names.",
                 overview + times + load + shapes, model_names=True)
