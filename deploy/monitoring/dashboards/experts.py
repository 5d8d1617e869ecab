"""Hosts of experts: heat, hedges, and what a trip to a host takes."""

from panels import board, cells, graph, mean, number, quantile, row


def _rate(name, by, matcher="$C"):
    return f"sum by ({by}) (rate({name}{{{matcher}}}$I))"


def make():
    now = [
        row("Now"),
        number("Hosts ready", "none",
               'sum(sluice_expert_state{$C,state="ready"})'),
        number("Streams up", "none", "sum(sluice_stage_expert_up{$C})",
               about="Between stages and hosts."),
        number("Silent", "none", "sum(sluice_stage_expert_silent{$C})",
               steps=[(None, "green"), (1, "red")]),
        number("Hedged batches", "percentunit",
               "sum(rate(sluice_stage_expert_hedges_total{$C}$I)) / "
               "sum(rate(sluice_stage_expert_batches_total{$C}$I))",
               steps=[(None, "green"), (0.05, "orange"), (0.1, "red")],
               about="Sent again because another host was late."),
        number("Failed rows", "none",
               "sum(increase(sluice_stage_expert_failed_rows_total{$C}$I))",
               steps=[(None, "green"), (1, "red")]),
        number("Hottest layer", "none", "max(sluice_expert_load_skew{$C})",
               steps=[(None, "green"), (2, "orange"), (4, "red")],
               about="The most rows of one expert over the mean, in the last "
                     "minute."),
    ]
    heat = [
        row("Heat"),
        cells("Skew by layer", "none",
              "max by (layer) (sluice_expert_load_skew{$C})", "{{layer}}",
              about="The most rows of one expert over the mean of the layer's "
                    "experts on a host, in the last minute."),
        cells("Experts with rows by layer", "none",
              "sum by (layer) (sluice_expert_active{$C})", "{{layer}}"),
        graph("Rows per second", "none",
              (_rate("sluice_expert_rows_total", "instance, outcome"),
               "{{instance}} {{outcome}}")),
        graph("Busy", "percentunit",
              (_rate("sluice_expert_compute_seconds_sum", "instance"),
               "{{instance}}"), limits=(0, 1)),
        graph("Ten hottest experts, rows per second", "none",
              ("topk(10, " + _rate("sluice_expert_tokens_total",
                                   "layer, expert") + ")",
               "layer {{layer}} expert {{expert}}"),
              about="With --expert-series of sluice-expert alone."),
    ]
    trips = [
        row("Trips, seen by the stages"),
        graph("Trip", "s",
              (quantile(0.5, "sluice_stage_expert_trip_seconds", "$C",
                        "host"), "{{host}} P50"),
              (quantile(0.95, "sluice_stage_expert_trip_seconds", "$C",
                        "host"), "{{host}} P95"),
              about="Sent to answered."),
        graph("A trip by part", "s",
              (mean("sluice_stage_expert_part_seconds", "$C", "part"),
               "{{part}}"), stacked=True),
        graph("Waits for hosts", "s",
              (mean("sluice_stage_wait_seconds", '$C,for="expert"',
                    "stage"), "{{stage}}"), about="Of a step."),
        graph("Batches", "ops",
              (_rate("sluice_stage_expert_batches_total", "outcome"),
               "{{outcome}}"), stacked=True),
        graph("Hedges", "ops",
              (_rate("sluice_stage_expert_hedges_total", "host"),
               "{{host}}")),
        graph("Retries", "ops",
              (_rate("sluice_stage_expert_retries_total", "host"),
               "{{host}}")),
    ]
    hosts = [
        row("Hosts"),
        graph("A batch's queue and compute", "s",
              (mean("sluice_expert_queue_seconds", "$C", "instance"),
               "{{instance}} queue"),
              (mean("sluice_expert_compute_seconds", "$C", "instance"),
               "{{instance}} compute"),
              (mean("sluice_expert_serialize_seconds", "$C", "instance"),
               "{{instance}} serialise")),
        graph("Rows and batches of one computation", "none",
              (mean("sluice_expert_batch_tokens", "$C", "instance"),
               "{{instance}} rows"),
              (mean("sluice_expert_joined_batches", "$C", "instance"),
               "{{instance}} batches")),
        graph("Queue depth", "none",
              ("sluice_expert_queue_depth{$C}", "{{instance}}")),
        graph("Bytes per second", "Bps",
              (_rate("sluice_expert_wire_bytes_total", "instance, dir"),
               "{{instance}} {{dir}}")),
        graph("Streams", "none",
              ("sluice_expert_askers{$C}", "{{instance}}")),
        graph("Dropped and refused", "ops",
              (_rate("sluice_expert_dropped_total", "instance"),
               "{{instance}} dropped"),
              (_rate("sluice_expert_batches_total", "instance",
                     '$C,outcome="refused"'), "{{instance}} refused")),
    ]
    return board("experts", "Sluice: experts",
                 "Hosts of experts: heat, hedges and trips.",
                 now + heat + trips + hosts)
