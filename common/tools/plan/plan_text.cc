#include "common/tools/plan/plan_text.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/core/kv_groups.h"
#include "common/model_config/weights_mode.h"

namespace sluice::plan {
namespace {

using placement::ClusterPlan;
using placement::HostPlan;
using placement::Machine;
using placement::PlanRequest;
using placement::PricePerMillion;
using placement::StagePlan;
using placement::StreamSpeed;

__attribute__((format(printf, 1, 2))) std::string TextLine(const char* format,
                                                           ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof(text), format, values);
  va_end(values);
  return text;
}

double Gigabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

const Machine& MachineAt(const PlanView& view, int32_t index) {
  return view.request->machines.machines[static_cast<size_t>(index)];
}

std::string StageRows(const PlanView& view) {
  std::string text = TextLine("%-8s %-14s %8s %11s %9s %9s %9s %8s %9s\n", "",
                              "machine", "layers", "weights GB", "KV GB",
                              "rest GB", "of GB", "memory", "ms a step");
  const auto& stages = view.plan->stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StagePlan& stage = stages[i];
    text += TextLine("%-8s %-14s %8s %11.3f %9.3f %9.3f %9.3f %6.1f %% %9.3f\n",
                     Cat("stage ", i).c_str(),
                     MachineAt(view, stage.machine).name.c_str(),
                     Cat(stage.range.first, "-", stage.range.last - 1).c_str(),
                     Gigabytes(stage.bytes.weights), Gigabytes(stage.bytes.kv),
                     Gigabytes(stage.work), Gigabytes(stage.memory),
                     100 * Gigabytes(stage.total()) / Gigabytes(stage.memory),
                     stage.step_seconds * 1e3);
  }
  for (const HostPlan& host : view.plan->hosts) {
    const Machine& machine = MachineAt(view, host.machine);
    text += TextLine("%-8s %-14s %8s %11.3f %9s %9s %9.3f %6.1f %%\n",
                     "experts", machine.name.c_str(), "",
                     Gigabytes(host.experts), "", "", Gigabytes(machine.memory),
                     100 * Gigabytes(host.experts) / Gigabytes(machine.memory));
  }
  return text;
}

// What is proposed where keys and values in F32 have too little room.
std::string ProposalRow(const ClusterPlan& plan) {
  const auto fits = [](const StreamSpeed& speed) { return speed.fits; };
  const bool is_short = !std::ranges::all_of(plan.speeds, fits);
  if (!is_short || plan.kv_type != kernels::WeightType::kF32) return "";
  uint64_t bytes = 0;
  for (const StagePlan& stage : plan.stages) {
    bytes += stage.bytes.kv - kLeastStateBlocks * stage.bytes.state;
  }
  return TextLine(
      "short    --kv-type bf16 takes %.3f GB less of the %.3f GB of keys and "
      "values, or holds twice the tokens\n",
      Gigabytes(bytes / 2), Gigabytes(bytes));
}

std::string SpeedRows(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  const bool priced = plan.price_per_hour > 0;
  std::string text =
      TextLine("%-8s %18s %14s%s\n", "streams", "tokens/s of each", "in all",
               priced ? "   price of 1 M" : "");
  for (const StreamSpeed& speed : plan.speeds) {
    if (!speed.fits) {
      text += TextLine("%-8d no room in the KV cache\n", speed.streams);
      continue;
    }
    text += TextLine("%-8d %18.2f %14.2f", speed.streams, speed.per_stream(),
                     speed.tokens_per_second);
    if (priced) {
      text += TextLine("%15.3f", PricePerMillion(plan.price_per_hour,
                                                 speed.tokens_per_second));
    }
    text += "\n";
  }
  text += TextLine(
      "prompts  %d tokens: first token after %.3f s; %.1f "
      "tokens/s in all",
      view.request->prompt_tokens, plan.ttft_seconds,
      plan.prompt_tokens_per_second);
  if (priced) {
    text += TextLine(
        ", 1 M for %.3f",
        PricePerMillion(plan.price_per_hour, plan.prompt_tokens_per_second));
  }
  return text + "\n";
}

Json StageJson(const PlanView& view, const StagePlan& stage) {
  return {{"machine", MachineAt(view, stage.machine).name},
          {"first_layer", stage.range.first},
          {"last_layer", stage.range.last - 1},
          {"weights_bytes", stage.bytes.weights},
          {"kv_bytes", stage.bytes.kv},
          {"work_bytes", stage.work},
          {"memory_bytes", stage.memory},
          {"step_seconds", stage.step_seconds}};
}

}  // namespace

std::string PlanText(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  const PlanRequest& request = *view.request;
  std::string text =
      TextLine("%s: %.3f GB of %s weights\n\n", view.model.c_str(),
               Gigabytes(view.weights), view.formats.c_str());
  text += StageRows(view);
  text += TextLine(
      "\nKV cache %lld blocks, %lld tokens in %s: %lld sequences of %d "
      "tokens\n",
      static_cast<long long>(plan.kv_blocks),
      static_cast<long long>(plan.kv_tokens), ToString(KvChoice(plan.kv_type)),
      static_cast<long long>(plan.sequences), request.context);
  text += ProposalRow(plan);
  if (plan.price_per_hour > 0) {
    text += TextLine("price    %.3f an hour\n", plan.price_per_hour);
  }
  text += TextLine("speeds   after %d tokens, expected\n\n", request.context);
  return text + SpeedRows(view);
}

std::string PlanJson(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  Json json = {{"model", view.model},
               {"weights_bytes", view.weights},
               {"formats", view.formats},
               {"stages", Json::array()},
               {"expert_hosts", Json::array()},
               {"kv_type", ToString(KvChoice(plan.kv_type))},
               {"kv_blocks", plan.kv_blocks},
               {"kv_tokens", plan.kv_tokens},
               {"context", view.request->context},
               {"sequences", plan.sequences},
               {"hop_seconds", plan.hop_seconds},
               {"speeds", Json::array()},
               {"prompt_tokens", view.request->prompt_tokens},
               {"ttft_seconds", plan.ttft_seconds},
               {"prompt_tokens_per_second", plan.prompt_tokens_per_second},
               {"price_per_hour", plan.price_per_hour}};
  for (const StagePlan& stage : plan.stages) {
    json["stages"].push_back(StageJson(view, stage));
  }
  for (const HostPlan& host : plan.hosts) {
    json["expert_hosts"].push_back(
        {{"machine", MachineAt(view, host.machine).name},
         {"experts_bytes", host.experts},
         {"share", host.share}});
  }
  for (const StreamSpeed& speed : plan.speeds) {
    json["speeds"].push_back(
        {{"streams", speed.streams},
         {"fits", speed.fits},
         {"tokens_per_second", speed.tokens_per_second},
         {"price_per_million",
          PricePerMillion(plan.price_per_hour, speed.tokens_per_second)}});
  }
  return json.dump(1) + "\n";
}

}  // namespace sluice::plan
