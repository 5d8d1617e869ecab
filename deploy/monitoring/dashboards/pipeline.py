"""Where each token's time goes: stage by stage, hop by hop."""

from panels import board, graph, mean, number, quantile, row, states

_STAGE = ("cluster", "stage", "replica")
_BY = "by (cluster, stage, replica) "
_STATES = {1: ("loading", "blue"), 2: ("ready", "green"),
           3: ("draining", "orange"), 4: ("failed", "red")}


def _per_step(name, matcher="$C"):
    return (f"sum {_BY}(rate({name}_sum{{{matcher}}}$I)) / "
            f"sum {_BY}(rate(sluice_stage_steps_total{{$C}}$I))")


def _state():
    parts = (f'{value} * sluice_stage_state{{$C,state="{text}"}}'
             for value, (text, _) in _STATES.items())
    return f"sum {_BY}({' + ignoring(state) '.join(parts)})"


def make():
    busy = f"sum {_BY}(rate(sluice_stage_compute_seconds_sum{{$C}}$I))"
    step = ("sum(rate(sluice_gateway_step_seconds_total{$C}$I)) / "
            "sum(rate(sluice_gateway_steps_total{$C}$I))")
    now = [
        row("Now"),
        number("Stages ready", "none",
               'sum(sluice_stage_state{$C,state="ready"})'),
        number("A step", "s", step,
               about="From a plan's submission to its result."),
        number("Between steps", "s",
               "sum(rate(sluice_gateway_step_interval_seconds_total{$C}$I))"
               " / sum(rate(sluice_gateway_steps_total{$C}$I))",
               about="What a token waits for the next: less than a step where "
                     "several plans are in flight."),
        number("Bubble of the busiest stage", "percentunit",
               f"1 - max({busy})",
               steps=[(None, "green"), (0.3, "orange"), (0.5, "red")],
               about="The share of its time without work."),
        number("Epoch", "none", "max(sluice_gateway_epoch{$C})",
               about="Pipelines that were built: one more after each loss."),
        number("Last recovery", "s",
               "max(sluice_gateway_last_recovery_seconds{$C})",
               about="From the latest loss of the pipeline to the next one."),
    ]
    where = [
        row("Where each token's time goes"),
        graph("One step, by stage and part", "s",
              (_per_step("sluice_stage_wait_seconds", '$C,for="input"'),
               "{{stage}} queue"),
              (_per_step("sluice_stage_compute_seconds"),
               "{{stage}} compute"),
              (_per_step("sluice_stage_serialize_seconds"),
               "{{stage}} serialise"),
              (_per_step("sluice_stage_wait_seconds",
                         '$C,for="output_window"'), "{{stage}} window"),
              (mean("sluice_stage_hop_seconds", "$C", *_STAGE),
               "{{stage}} hop to the next"),
              stacked=True, size=(16, 10),
              about="Seconds of a step in a stage: in the queue, computing, "
                    "writing frames, until the successor has room, and on the "
                    "way. The sum of all is what a plan takes through the "
                    "pipeline."),
        graph("The gateway's view", "s", (step, "submitted to result"),
              ("sum(rate(sluice_gateway_step_interval_seconds_total{$C}$I))"
               " / sum(rate(sluice_gateway_steps_total{$C}$I))",
               "between results"),
              ("sum(rate(sluice_gateway_schedule_seconds_total{$C}$I)) / "
               "sum(rate(sluice_gateway_steps_total{$C}$I))", "planning"),
              (mean("vllm:inter_token_latency_seconds", "$C"),
               "between tokens, mean"), size=(8, 10)),
        graph("Busy", "percentunit", (busy, "{{stage}}"), limits=(0, 1),
              about="The share of a stage's time that is work."),
        graph("Bubble", "percentunit", (f"1 - {busy}", "{{stage}}"),
              limits=(0, 1), about="The share without work."),
        graph("Hop", "s",
              (quantile(0.5, "sluice_stage_hop_seconds", "$C", *_STAGE),
               "{{stage}} P50"),
              (quantile(0.95, "sluice_stage_hop_seconds", "$C", *_STAGE),
               "{{stage}} P95"),
              about="Sent to acknowledged, less the time at the receiver."),
    ]
    steps = [
        row("Steps"),
        graph("A step's time, P95", "s",
              (quantile(0.95, "sluice_stage_step_seconds", "$C", "stage",
                        "phase"), "{{stage}} {{phase}}")),
        graph("Sequences of a step", "none",
              (mean("sluice_stage_batch_sequences", "$C", *_STAGE),
               "{{stage}}")),
        graph("Tokens of a step", "none",
              (mean("sluice_stage_batch_tokens", "$C", *_STAGE),
               "{{stage}}")),
        graph("Tokens per second", "none",
              (f"sum {_BY}(rate(sluice_stage_tokens_total{{$C}}$I))",
               "{{stage}}")),
        graph("Waiting steps, plans in flight", "none",
              ("sluice_stage_queue_depth{$C}", "{{stage}} queue"),
              ("sum(sluice_gateway_plans_in_flight{$C})",
               "plans in flight")),
        graph("KV blocks in use", "percentunit",
              ("sluice_stage_kv_blocks_used{$C} / "
               "(sluice_stage_kv_blocks{$C} > 0)", "{{stage}}"),
              limits=(0, 1), about="Of sequences; cached prefixes besides."),
    ]
    ranks = [
        row("Tensor-parallel ranks, and steps begun ahead"),
        graph("Collectives of a step", "s",
              (mean("sluice_stage_collective_seconds", '$C,op="reduce"',
                    *_STAGE), "{{stage}} sums"),
              (mean("sluice_stage_collective_seconds", '$C,op="gather"',
                    *_STAGE), "{{stage}} logits"),
              (_per_step("sluice_stage_wait_seconds",
                         '$C,for="collective"'), "{{stage}} of it waiting"),
              about="Rank 0's time of a step in sums over ranks and in "
                    "collecting logits, which is part of the stage's compute; "
                    "on GPUs their streams' time, with the wait for the "
                    "slowest GPU, of the steps that are measured; waiting is "
                    "of all steps. With --ranks above 1."),
        graph("What ranks wait for each other", "percentunit",
              ("rate(sluice_stage_rank_wait_seconds_total{$C}$I)",
               "{{stage}} rank {{tp_rank}}"),
              about="A share of the time. The slowest rank waits least."),
        graph("Steps begun ahead", "percentunit",
              (f"sum {_BY}(rate(sluice_stage_steps_ahead_total{{$C}}$I)) / "
               f"sum {_BY}(rate(sluice_stage_steps_total{{$C}}$I))",
               "{{stage}}"), limits=(0, 1),
              about="The share that was begun before the step before was "
                    "finished: on GPUs."),
    ]
    links = [
        row("Links and states"),
        graph("Bytes per second", "Bps",
              ("sum by (stage, dir, peer) "
               "(rate(sluice_stage_wire_bytes_total{$C}$I))",
               "{{stage}} {{dir}} {{peer}}"), size=(12, 7)),
        states("Stages", _state(), "{{stage}}", _STATES),
    ]
    return board("pipeline", "Sluice: pipeline",
                 "Where each token's time goes, by stage and hop.",
                 now + where + steps + ranks + links)
