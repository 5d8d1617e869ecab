#include "services/cli/plan_cluster.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <utility>

#include "common/base/text_file.h"
#include "common/device/cpu/available_memory.h"
#include "common/device/make_backends.h"
#include "common/model_config/described_model.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/cluster_plan.h"
#include "common/placement/known_machines.h"
#include "common/tools/measure/measure_rates.h"
#include "common/tools/plan/plan_files.h"
#include "common/tools/plan/plan_text.h"
#include "common/tools/plan/read_machines.h"
#include "common/weights/model_file.h"
#include "services/cli/command_line.h"
#include "services/cli/model_rates.h"
#include "services/cli/plan_source.h"

namespace sluice::cli {
namespace {

constexpr int32_t kMostStreams = 1 << 16;

StatusOr<std::vector<int32_t>> ParseStreams(const std::string& text) {
  std::vector<int32_t> streams;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) {
    int32_t value = 0;
    if (!CLI::detail::lexical_cast(one, value) || value < 1 ||
        value > kMostStreams) {
      return InvalidArgument("must be numbers between 1 and ", kMostStreams,
                             ", got '", one, "'");
    }
    streams.push_back(value);
  }
  return streams;
}

// Parses what a plan makes short: "one", a number of streams, or "prompt".
StatusOr<placement::PlanAim> ParseAim(const std::string& text) {
  placement::PlanAim aim;
  aim.is_prompt = text == "prompt";
  if (aim.is_prompt || text == "one") return aim;
  if (!CLI::detail::lexical_cast(text, aim.streams) || aim.streams < 1 ||
      aim.streams > kMostStreams) {
    return InvalidArgument("must be one, prompt or streams between 1 and ",
                           kMostStreams, ", got '", text, "'");
  }
  return aim;
}

StatusOr<placement::Link> ParseLink(const std::string& text) {
  double latency = 0;
  double gigabits = 0;
  const size_t comma = text.find(',');
  const bool fits = comma != std::string::npos &&
                    CLI::detail::lexical_cast(text.substr(0, comma), latency) &&
                    CLI::detail::lexical_cast(text.substr(comma + 1), gigabits);
  if (!fits || latency < 0 || !(gigabits > 0)) {
    return InvalidArgument("--link: must be LATENCY_MS,GBIT_PER_S, got '", text,
                           "'");
  }
  return placement::Link{latency * 1e-3, gigabits * 1e9 / 8};
}

// Returns this machine, measured with weights of the model's types and shape.
StatusOr<placement::Machine> MeasureHere(const ModelConfig& config,
                                         const weights::ModelFile& model,
                                         WeightsMode mode, int32_t threads) {
  measure::RateOptions rates = RatesFor(config, model, mode);
  rates.threads = threads;
  placement::Machine machine;
  machine.name = "here";
  machine.memory = AvailableMemory();
  SLUICE_ASSIGN_OR_RETURN(machine.rates, measure::MeasureRates(rates));
  placement::FillRates(machine.rates);
  machine.is_measured = true;
  return machine;
}

// Returns a machine for each GPU that the process sees: what a stage may take
// of its memory, and the rate that memory's clock and bus allow; its arithmetic
// is that of a known GPU.
StatusOr<std::vector<placement::Machine>> GpusHere() {
  SLUICE_ASSIGN_OR_RETURN(const int count, CountGpus());
  std::vector<placement::Machine> machines;
  for (int i = 0; i < count; ++i) {
    const std::string name = Cat("cuda:", i);
    SLUICE_ASSIGN_OR_RETURN(const auto found, FindDevices(name));
    if (found[0].bytes_per_second <= 0) {
      return FailedPrecondition(name,
                                ": the driver does not tell how fast its ",
                                "memory is; give --machine figures");
    }
    placement::Machine& machine = machines.emplace_back();
    machine.name = Cat("gpu-", i);
    machine.device = name;
    machine.memory = found[0].available;
    machine.rates.cpu = found[0].name;
    machine.rates.is_gpu = true;
    machine.rates.read_gb_per_s = found[0].bytes_per_second * 1e-9;
    if (const auto* known = placement::KnownGpu(found[0].name)) {
      machine.rates.f32_gop_per_s = known->tera_ops * 1e3;
    }
    placement::FillRates(machine.rates);
  }
  return machines;
}

// Returns a machine of figures, "48G,80", or a known one, "rtx4090".
StatusOr<placement::Machine> MachineNamed(const std::string& text) {
  const bool is_figures = text.find(',') != std::string::npos;
  auto machine = is_figures ? placement::ParseMachine(text)
                            : placement::FindKnownMachine(text);
  if (!machine.ok()) return Annotate(machine.status(), "--machine");
  if (is_figures) machine->name = "m";
  return machine;
}

StatusOr<placement::Machines> MachinesOf(const ClusterPlanOptions& options,
                                         const ModelConfig& config,
                                         const weights::ModelFile& model,
                                         WeightsMode mode) {
  placement::Machines machines;
  if (!options.machines_path.empty()) {
    SLUICE_ASSIGN_OR_RETURN(machines,
                            plan::ReadMachines(options.machines_path));
  } else if (options.machine == "gpus") {
    const auto gpus = GpusHere();
    if (!gpus.ok()) return Annotate(gpus.status(), "--machine gpus");
    for (int32_t i = 0; i < options.count; ++i) {
      for (placement::Machine gpu : *gpus) {
        gpu.price_per_hour = options.price;
        // GPUs of one address are in one box; the only one is this machine.
        gpu.address = "localhost";
        if (options.count > 1) {
          gpu.name += Cat("-", i);
          gpu.address = Cat("box-", i);
        }
        machines.machines.push_back(std::move(gpu));
      }
    }
  } else {
    placement::Machine machine;
    if (options.machine == "here") {
      SLUICE_ASSIGN_OR_RETURN(
          machine, MeasureHere(config, model, mode, options.threads));
    } else {
      SLUICE_ASSIGN_OR_RETURN(machine, MachineNamed(options.machine));
    }
    machine.price_per_hour = options.price;
    for (int32_t i = 0; i < options.count; ++i) {
      machines.machines.push_back(machine);
      if (options.count > 1) machines.machines.back().name += Cat("-", i);
    }
  }
  if (!options.link.empty()) {
    SLUICE_ASSIGN_OR_RETURN(machines.link, ParseLink(options.link));
    machines.is_link_named = true;
  }
  return machines;
}

// Fills what is not given: fewer tokens for a model of few positions.
void FillRequest(const ClusterPlanOptions& options, const ModelConfig& config,
                 placement::PlanRequest& request) {
  const int32_t positions = config.max_position_embeddings;
  const auto choose = [positions](int32_t given, int32_t usual) {
    return given > 0 ? given : std::min(usual, positions);
  };
  request.context = choose(options.context, request.context);
  request.prompt_tokens = choose(options.prompt, request.prompt_tokens);
  if (!options.streams.empty()) request.streams = options.streams;
  request.expert_replicas = options.expert_replicas;
  request.aim = options.aim;
  request.sequences = options.sequences;
  request.wants_choices = true;
}

// Returns the tokens of a step that stages on the machines choose.
int32_t StepTokensOf(const ClusterPlanOptions& options,
                     const std::vector<placement::Machine>& machines) {
  if (options.machine != "gpus") return LayerLoadOptions().max_step_tokens;
  const auto least =
      std::ranges::min_element(machines, {}, &placement::Machine::memory);
  return StepTokensOfGpu(least->memory);
}

std::string NameOfModel(const std::string& path) {
  std::filesystem::path of = std::filesystem::path(path).lexically_normal();
  if (of.filename() == "config.json" || !of.has_filename()) {
    of = of.parent_path();
  }
  return of.filename().empty() ? path : of.filename().string();
}

// Takes from the machines what nodes of the starter `write` do not give. What
// a GPU has is a stage's.
void LeaveToNodes(const std::string& write, placement::Machines& machines) {
  const auto starter = plan::ParseStarter(write);
  if (!starter.ok()) return;
  for (placement::Machine& machine : machines.machines) {
    const bool on_cpu = machine.device.empty() || machine.device == "cpu";
    if (on_cpu) machine.memory = plan::GivenMemory(*starter, machine.memory);
  }
}

// Returns the bytes of the machines that weights may have, beside the keys and
// values of one sequence and what the system keeps.
uint64_t RoomForWeights(const ModelConfig& config,
                        const weights::ModelFile& model,
                        const placement::PlanRequest& request) {
  uint64_t room = 0;
  for (const placement::Machine& machine : request.machines.machines) {
    room += machine.memory - machine.memory / 32;
  }
  LayerLoadOptions loads = request.loads;
  loads.max_context = request.context;
  const LayerLoads all = LoadsOf(config, model, loads);
  const uint64_t kv = all.Of({0, all.num_layers()}).kv;
  return room > kv ? room - kv : 0;
}

Status WriteFiles(const ClusterPlanOptions& options, const plan::PlanView& view,
                  const PlannedModel& model) {
  if (!options.svg_path.empty()) {
    SLUICE_RETURN_IF_ERROR(
        WriteTextFile(options.svg_path, plan::PlanSvg(view)));
  }
  if (!options.json_path.empty()) {
    SLUICE_RETURN_IF_ERROR(
        WriteTextFile(options.json_path, plan::PlanJson(view)));
  }
  if (options.write.empty()) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const plan::Starter starter,
                          plan::ParseStarter(options.write));
  plan::FilesRequest files;
  SLUICE_RETURN_IF_ERROR(SetSource(model, options.source, files));
  if (!model.stored.has_value()) files.weights = model.weights;
  files.request = view.request;
  files.plan = view.plan;
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          plan::PlanFile(starter, files));
  if (!options.to.empty()) return WriteTextFile(options.to, text);
  std::fputs(text.c_str(), stdout);
  return OkStatus();
}

}  // namespace

void AddClusterPlan(CLI::App& plan, ClusterPlanOptions& options) {
  CLI::Option* const file = plan.add_option(
      "--machines", options.machines_path,
      "TOML file of the machines to plan for: memory, rates, prices, link");
  CLI::Option* const one =
      plan.add_option("--machine", options.machine,
                      "MEMORY,READ_GB_PER_S[,BYTE_GOP[,F32_GOP]], a known one "
                      "(h100, rtx4090, m4-max-64: MACHINES.md), or \"here\": "
                      "this one, measured; \"gpus\": one for each of its GPUs")
          ->excludes(file);
  plan.add_option("--count", options.count, "such machines (1)")
      ->needs(one)
      ->check(Within(1, 1024));
  plan.add_option("--price", options.price, "of each an hour")
      ->needs(one)
      ->check(Above(0, 1e9));
  plan.add_option("--threads", options.threads, "that compute here")
      ->needs(one)
      ->check(Within(1, 1024));
  const std::vector<CLI::Option*> others = {
      plan.add_option("--link", options.link,
                      "LATENCY_MS,GBIT_PER_S between machines (0.1,10)"),
      plan.add_option("--context", options.context,
                      "tokens of a sequence, of speeds and room (4096)")
          ->check(Within(1, kMaxContext)),
      plan.add_option("--prompt", options.prompt, "tokens of a prompt (1024)")
          ->check(Within(1, kMaxContext)),
      AddParsed(plan, "--for", options.aim, ParseAim,
                "one, N or prompt: what the split makes fast: a token of one "
                "stream, of N streams, or a prompt's first token (one)"),
      plan.add_option(
              "--sequences", options.sequences,
              "of --context tokens, that the KV cache has to hold (those "
              "of --for; of memory that is left, those of --streams)")
          ->check(Within(1, kMostStreams)),
      AddParsed(plan, "--streams", options.streams, ParseStreams,
                "N,..: sequences at once (1,4,16,64)"),
      plan.add_option("--expert-replicas", options.expert_replicas,
                      "machines of role \"experts\" that have an expert (1)")
          ->check(Within(1, 1024)),
      plan.add_option("--write", options.write,
                      "up, compose, kubernetes, slurm or systemd: what starts "
                      "it"),
      plan.add_option("--source", options.source,
                      "with --write: where processes read the model, a path or "
                      "a hub's ORG/NAME[@REVISION][:QUANT] (MODEL)"),
      plan.add_option("--to", options.to, "where --write goes (stdout)"),
      plan.add_option("--svg", options.svg_path, "a drawing of the cluster"),
      plan.add_option("--json", options.json_path, "every figure"),
  };
  // The other kind of callback is taken by the options of stages.
  plan.parse_complete_callback([file, one, others] {
    if (file->count() + one->count() > 0) return;
    for (const CLI::Option* option : others) {
      if (option->count() == 0) continue;
      throw CLI::ValidationError(
          Cat(option->get_name(), " goes with --machines or --machine"));
    }
  });
}

Status RunClusterPlan(const PlannedModel& planned,
                      const ClusterPlanOptions& options,
                      const LayerLoadOptions& loads, int32_t stages) {
  if (!options.write.empty()) {
    SLUICE_RETURN_IF_ERROR(
        Annotate(plan::ParseStarter(options.write).status(), "--write"));
  } else if (!options.source.empty()) {
    return InvalidArgument("--source goes with --write");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto model,
                          DescribeModel(planned.path, planned.stored));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  placement::PlanRequest request;
  request.loads = loads;
  request.stages = stages;
  FillRequest(options, config, request);
  SLUICE_ASSIGN_OR_RETURN(request.machines,
                          MachinesOf(options, config, *model, loads.weights));
  LeaveToNodes(options.write, request.machines);
  if (loads.max_step_tokens == 0) {
    request.loads.max_step_tokens =
        loads.kv_blocks > 0 ? LayerLoadOptions().max_step_tokens
                            : StepTokensOf(options, request.machines.machines);
  }
  const std::string quants =
      QuantsText(planned, RoomForWeights(config, *model, request));
  const auto planned_cluster = placement::PlanCluster(config, *model, request);
  if (!planned_cluster.ok()) {
    std::fputs(quants.c_str(), stderr);
    return planned_cluster.status();
  }
  const placement::ClusterPlan& made = *planned_cluster;
  const LayerLoads all = LoadsOf(config, *model, request.loads);
  const plan::PlanView view = {
      planned.hub.empty() ? NameOfModel(planned.path) : planned.hub,
      all.Of({0, all.num_layers()}).weights,
      FormatsOf(config, *model, loads.weights).names(), &request, &made};
  // With --write stdout has the file.
  std::FILE* const out =
      !options.write.empty() && options.to.empty() ? stderr : stdout;
  std::fputs(plan::PlanText(view).c_str(), out);
  std::fputs("\n", out);
  std::fputs(plan::PlanPicture(view).c_str(), out);
  std::fputs(quants.c_str(), out);
  return WriteFiles(options, view, planned);
}

}  // namespace sluice::cli
