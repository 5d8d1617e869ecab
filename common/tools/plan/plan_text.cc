#include "common/tools/plan/plan_text.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/core/kv_groups.h"
#include "common/model_config/weights_mode.h"

namespace sluice::plan {
namespace {

using placement::ClusterPlan;
using placement::HostPlan;
using placement::Machine;
using placement::PlanChoice;
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

// Machines that the plan has no use for.
std::string LeftOutRows(const PlanView& view) {
  std::string text;
  for (const int32_t index : view.plan->left_out) {
    const Machine& machine = MachineAt(view, index);
    text += TextLine("%-8s %-14s %8s %51.3f\n", "left out",
                     machine.name.c_str(), "-", Gigabytes(machine.memory));
  }
  return text;
}

std::string KvRows(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  const PlanRequest& request = *view.request;
  std::string text = TextLine(
      "\nKV cache %lld blocks, %lld tokens in %s: %lld sequences of %d "
      "tokens\n",
      static_cast<long long>(plan.kv_blocks),
      static_cast<long long>(plan.kv_tokens), ToString(KvChoice(plan.kv_type)),
      static_cast<long long>(plan.sequences), request.context);
  if (request.loads.kv_blocks > 0) {
    text += TextLine("         as --kv-blocks asks");
  } else if (request.sequences > 0) {
    text += TextLine("         as --sequences asks");
  } else {
    text +=
        TextLine("         %d asked for; --streams get what the split leaves",
                 request.aim.is_prompt ? 1 : request.aim.streams);
  }
  return text + TextLine("; room for %lld\n",
                         static_cast<long long>(plan.most_sequences));
}

// Of the aim: tokens/s of all streams, or seconds to a prompt's first token.
std::string AimText(const PlanView& view, double seconds) {
  const placement::PlanAim& aim = view.request->aim;
  return aim.is_prompt ? TextLine("%.3f s", seconds)
                       : TextLine("%.2f", aim.streams / seconds);
}

std::string AimRows(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  const placement::PlanAim& aim = view.request->aim;
  const std::string figure = AimText(view, plan.seconds);
  std::string text =
      aim.is_prompt
          ? TextLine("made for a prompt of %d tokens: first token after %s; ",
                     view.request->prompt_tokens, figure.c_str())
          : TextLine("made for %d stream%s: %s tokens/s; ", aim.streams,
                     aim.streams == 1 ? "" : "s", figure.c_str());
  if (plan.is_best) {
    return text + "no other split, order or choice of machines is faster\n";
  }
  return text + TextLine(
                    "found by a search that may miss the best; that is at most "
                    "%.1f %% faster, by a bound of %s\n",
                    100 * (plan.seconds / plan.bound - 1),
                    AimText(view, plan.bound).c_str());
}

std::string ChoiceName(const PlanView& view, const PlanChoice& choice) {
  using What = PlanChoice::What;
  const auto with_machine = [&](const char* words) {
    return Cat(words, MachineAt(view, choice.machine).name);
  };
  switch (choice.what) {
    case What::kWithout:
      return with_machine("without ");
    case What::kWith:
      return with_machine("with ");
    case What::kHead:
      return with_machine("head on ");
    case What::kInOrder:
      return "in the order of the machines";
    case What::kByMemory:
      return "split by memory, all machines";
  }
  return "";
}

// Whether two choices are of equal machines, and cost the same.
bool IsLike(const PlanView& view, const PlanChoice& one,
            const PlanChoice& other) {
  if (one.what != other.what || one.seconds != other.seconds) return false;
  const Machine& a = MachineAt(view, one.machine);
  const Machine& b = MachineAt(view, other.machine);
  return a.memory == b.memory && a.rates == b.rates;
}

std::string ChoiceRows(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  if (plan.choices.empty()) return "";
  std::string text =
      TextLine("\n%-30s %12s   this plan is\n", "other choices",
               view.request->aim.is_prompt ? "first token" : "tokens/s");
  for (size_t i = 0; i < plan.choices.size();) {
    const PlanChoice& choice = plan.choices[i];
    size_t like = 0;  // choices behind it that cost the same
    for (++i; i < plan.choices.size() && IsLike(view, choice, plan.choices[i]);
         ++i) {
      ++like;
    }
    std::string name = ChoiceName(view, choice);
    if (like > 0) name += Cat(" (", like, " like it)");
    if (choice.seconds == std::numeric_limits<double>::infinity()) {
      text += TextLine("%-30s %12s\n", name.c_str(), "does not fit");
      continue;
    }
    const double times = choice.seconds / plan.seconds;
    text += TextLine("%-30s %12s   ", name.c_str(),
                     AimText(view, choice.seconds).c_str());
    text +=
        times < 1.005 ? "as fast\n" : TextLine("%.2f times as fast\n", times);
  }
  return text + "\n";
}

// Figures that are not measured.
std::string GuessRows(const PlanView& view) {
  const placement::Machines& machines = view.request->machines;
  std::string names;
  std::vector<int32_t> used;
  for (const StagePlan& stage : view.plan->stages) {
    if (std::ranges::count(used, stage.machine) == 0) {
      used.push_back(stage.machine);
    }
  }
  for (const HostPlan& host : view.plan->hosts) used.push_back(host.machine);
  for (const int32_t index : used) {
    const Machine& machine = MachineAt(view, index);
    if (machine.is_measured) continue;
    names += (names.empty() ? "" : ", ") + machine.name;
  }
  std::string text;
  if (!names.empty()) {
    text += Cat("guesses  rates of ", names,
                ": figures of a data sheet (sluice bench machine measures)\n");
  }
  bool is_usual = false;
  for (size_t i = 1; i < used.size(); ++i) {
    is_usual = is_usual || (!machines.is_link_named &&
                            !machines.HasPair(used[i - 1], used[i]));
  }
  if (is_usual) {
    text +=
        TextLine("guesses  links that are not named: %.3f ms, %.1f Gbit/s\n",
                 machines.link.latency_seconds * 1e3,
                 machines.link.bytes_per_second * 8e-9);
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
          {"step_seconds", stage.step_seconds},
          {"hop_seconds", stage.hop_seconds},
          {"is_measured", MachineAt(view, stage.machine).is_measured}};
}

Json AimJson(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  const placement::PlanAim& aim = view.request->aim;
  Json json = {{"for", aim.is_prompt ? "prompt" : "streams"},
               {"streams", aim.is_prompt ? 1 : aim.streams},
               {"seconds", plan.seconds},
               {"bound_seconds", plan.bound},
               {"is_best", plan.is_best},
               {"choices", Json::array()}};
  for (const PlanChoice& choice : plan.choices) {
    Json& row = json["choices"].emplace_back();
    row["choice"] = ChoiceName(view, choice);
    if (choice.seconds < std::numeric_limits<double>::infinity()) {
      row["seconds"] = choice.seconds;
    }
  }
  return json;
}

}  // namespace

std::string PlanText(const PlanView& view) {
  const ClusterPlan& plan = *view.plan;
  const PlanRequest& request = *view.request;
  std::string text =
      TextLine("%s: %.3f GB of %s weights\n\n", view.model.c_str(),
               Gigabytes(view.weights), view.formats.c_str());
  text += StageRows(view) + LeftOutRows(view) + KvRows(view);
  text += ProposalRow(plan);
  if (plan.price_per_hour > 0) {
    text += TextLine("price    %.3f an hour\n", plan.price_per_hour);
  }
  text += GuessRows(view) + AimRows(view) + ChoiceRows(view);
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
               {"most_sequences", plan.most_sequences},
               {"aim", AimJson(view)},
               {"left_out", Json::array()},
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
  for (const int32_t index : plan.left_out) {
    json["left_out"].push_back(MachineAt(view, index).name);
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
