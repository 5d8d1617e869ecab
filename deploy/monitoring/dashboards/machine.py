"""What the processes take of their machines."""

from panels import board, graph, number, row

# Adds `service` to a process's series.
_NAMED = " * on (job, instance) group_left (service) sluice_build_info{$C}"
_WHO = "{{service}} {{instance}}"
_GPU = "{{instance}} {{gpu}}"
_HOST = "experts {{instance}} {{gpu}}"


def _named(expr):
    return f"({expr}){_NAMED}"


def make():
    now = [
        row("Now"),
        number("Processes up", "none",
               "count(sluice_build_info{$C})"),
        number("Scrapes that fail", "none",
               'count(up{$C,role=~".+"} == 0) or vector(0)',
               steps=[(None, "green"), (1, "red")]),
        number("Cores in use", "none",
               "sum(rate(process_cpu_seconds_total{$C}$I))"),
        number("Resident memory", "bytes",
               "sum(process_resident_memory_bytes{$C})"),
        number("Versions", "none",
               "count(count by (version, git) (sluice_build_info{$C}))",
               steps=[(None, "green"), (2, "orange")],
               about="Builds that run: more than one during an upgrade."),
        number("First certificate ends in", "s",
               "min(sluice_tls_certificate_expiry_timestamp_seconds{$C}) "
               "- time()",
               steps=[(None, "red"), (172800, "orange"), (1209600, "green")],
               about="With TLS alone."),
    ]
    use = [
        row("Processes"),
        graph("Cores", "none",
              (_named("rate(process_cpu_seconds_total{$C}$I)"), _WHO)),
        graph("Resident memory", "bytes",
              (_named("process_resident_memory_bytes{$C}"), _WHO)),
        graph("Virtual memory", "bytes",
              (_named("process_virtual_memory_bytes{$C}"), _WHO)),
        graph("Open files of the limit", "percentunit",
              (_named("process_open_fds{$C} / process_max_fds{$C}"), _WHO)),
        graph("Uptime", "s",
              (_named("time() - process_start_time_seconds{$C}"), _WHO),
              about="Falls to nothing where a process was started again."),
        graph("Lines of logs dropped", "none",
              (_named("rate(sluice_log_lines_dropped_total{$C}$I)"), _WHO),
              about="Per second: stderr did not take them in time."),
    ]
    model = [
        row("Models in memory"),
        graph("Weights", "bytes",
              ("sluice_stage_weights_bytes{$C}", "stage {{stage}}"),
              ("sluice_expert_weights_bytes{$C}", "experts {{instance}}")),
        graph("KV cache", "bytes",
              ("sluice_stage_kv_bytes{$C}", "stage {{stage}}")),
        graph("Time to load", "s",
              ("sluice_stage_load_seconds{$C}", "stage {{stage}}"),
              ("sluice_expert_load_seconds{$C}", "experts {{instance}}")),
    ]
    gpus = [
        row("GPUs, with NVML"),
        graph("GPU memory in use", "bytes",
              ("sluice_stage_gpu_memory_used_bytes{$C}", _GPU),
              ("sluice_expert_gpu_memory_used_bytes{$C}", _HOST),
              about="Of all processes. Nearly all is normal: the KV cache "
                    "takes what the weights leave."),
        graph("GPU memory free", "bytes",
              ("sluice_stage_gpu_memory_total_bytes{$C} - "
               "sluice_stage_gpu_memory_used_bytes{$C}", _GPU),
              ("sluice_expert_gpu_memory_total_bytes{$C} - "
               "sluice_expert_gpu_memory_used_bytes{$C}", _HOST),
              about="What the buffers of a step have to grow into."),
        graph("GPU busy", "percentunit",
              ("sluice_stage_gpu_busy_ratio{$C}", _GPU),
              ("sluice_expert_gpu_busy_ratio{$C}", _HOST), limits=(0, 1),
              about="The share of NVML's last sample in which a kernel ran, "
                    "on however many multiprocessors; 0 for a MIG slice."),
        graph("GPU errors", "none",
              ("sluice_stage_gpu_xid_errors_total{$C}", _GPU + " XID"),
              ("sluice_stage_gpu_ecc_errors_total{$C}", _GPU + " memory"),
              ("sluice_expert_gpu_xid_errors_total{$C}", _HOST + " XID"),
              ("sluice_expert_gpu_ecc_errors_total{$C}", _HOST + " memory"),
              size=(24, 6),
              about="Since the process' start. One of the GPU itself ends the "
                    "process."),
    ]
    edge = [
        row("The gateway's event loops"),
        graph("Longest hold so far", "s",
              ("sluice_gateway_loop_longest_hold_seconds{$C}",
               "{{instance}}"),
              about="CPU time that one event held its loop."),
        graph("Not read yet by clients", "bytes",
              ("sluice_gateway_sse_backlog_bytes{$C}", "{{instance}}")),
        graph("HTTP", "reqps",
              ("sum by (handler, status) "
               "(rate(http_requests_total{$C}$I))",
               "{{handler}} {{status}}")),
    ]
    return board("machine", "Sluice: machine",
                 "What the processes take: cores, memory, GPUs, files, "
                 "certificates.", now + use + model + gpus + edge)
