#include "services/gateway/handlers/cluster.h"

#include <utility>

#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/serving/served_model.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

double Millis(Duration duration) { return 1e3 * Seconds(duration); }

Json ModelPart(const serving::ServedModel& model,
               const ClusterReading& reading) {
  const std::optional<StageFacts>& joined = reading.pipeline.model;
  Json part{{"name", model.name}};
  if (!joined.has_value()) return part;
  part["num_layers"] = joined->num_layers;
  part["hidden_size"] = joined->hidden_size;
  part["weights_dtype"] = joined->weights_dtype;
  part["numerics"] = joined->numerics;
  part["digest"] = joined->model_digest;
  if (reading.max_context > 0) part["max_context"] = reading.max_context;
  return part;
}

Json EnginePart(const EngineStats& engine) {
  return {{"running", engine.running},
          {"waiting", engine.waiting},
          {"plans_in_flight", engine.plans_in_flight},
          {"blocks_total", engine.blocks_total},
          {"blocks_used", engine.blocks_used},
          {"kv_usage", engine.kv_usage()},
          {"prompt_tokens", engine.prompt_tokens},
          {"generation_tokens", engine.generation_tokens},
          {"computed_tokens", engine.computed_tokens},
          {"prefix_query_tokens", engine.prefix_query_tokens},
          {"prefix_hit_tokens", engine.prefix_hit_tokens},
          {"preemptions", engine.preemptions},
          {"steps", engine.steps},
          {"last_step_ms", Millis(engine.last_step_time)}};
}

// A socket file's path may have a user's name.
std::string OpenAddress(const std::string& address) {
  if (!address.starts_with("unix:")) return address;
  return "unix:" + address.substr(address.find_last_of("/:") + 1);
}

Json StagePart(const StageStatus& stage, size_t index, bool open) {
  Json part{{"index", index},
            {"address", open ? OpenAddress(stage.address) : stage.address},
            {"state", ToString(stage.state)},
            {"message", open ? std::string() : stage.message},
            {"first_layer", stage.first_layer},
            {"last_layer", stage.last_layer},
            {"ranks", stage.ranks},
            {"threads", stage.threads},
            {"isa", stage.isa},
            {"weights_bytes", stage.weights_bytes},
            {"kv_bytes", stage.kv_bytes},
            {"last_heard_ms", Millis(stage.last_heard)},
            {"rtt_ms", Millis(stage.rtt)},
            {"hop_ms", nullptr},
            {"steps_done", stage.load.steps_done},
            {"queue_depth", stage.load.queue_depth},
            {"busy_ms", Millis(stage.load.busy)}};
  if (stage.load.hop > Duration::zero()) {
    part["hop_ms"] = Millis(stage.load.hop);
  }
  return part;
}

}  // namespace

std::string ClusterJson(const serving::ServedModel& model,
                        const ClusterReading& reading, Audience audience) {
  const bool open = audience == Audience::kAnybody;
  Json body{{"time_ms", MonotonicNanos() / 1000000},
            {"version", std::string(BuildVersion())},
            {"ready", reading.readiness.ready},
            {"why", open ? reading.readiness.open_why : reading.readiness.why},
            {"epoch", reading.pipeline.epoch.count()},
            {"term", reading.pipeline.epoch.term()},
            {"role", ToString(reading.pipeline.role)},
            {"model", ModelPart(model, reading)},
            {"engine", EnginePart(reading.engine)},
            {"full_stages", reading.pipeline.full_count},
            {"stages", Json::array()}};
  const auto& stages = reading.pipeline.stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    body["stages"].push_back(StagePart(stages[i], i, open));
  }
  const auto& spares = reading.pipeline.spares;
  for (size_t i = 0; i < spares.size(); ++i) {
    body["spares"].push_back(StagePart(spares[i], i, open));
  }
  return DumpJson(body);
}

void AddClusterHandler(http::Router& router, const serving::ServedModel& model,
                       bool keys_asked, std::function<ClusterReading()> read) {
  router.Add("GET", "/cluster",
             [&model, keys_asked,
              read = std::move(read)](std::shared_ptr<http::Exchange> on) {
               http::HttpResponse response;
               response.headers.emplace_back("Cache-Control", "no-store");
               response.body = ClusterJson(
                   model, read(), AudienceOf(keys_asked, on->request()));
               on->Send(std::move(response));
             });
}

}  // namespace sluice::gateway
