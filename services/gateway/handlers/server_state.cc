#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/build_info.h"
#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/llamacpp/settings.h"
#include "common/engine/engine_loop.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

// What the engine runs and may run at once: llama.cpp's slots.
struct SlotCounts {
  int total = 0;
  int busy = 0;
};

SlotCounts CountSlots(const serving::ServingContext& context) {
  SlotCounts counts;
  const int running = context.engine.Stats().running;
  counts.total = std::max(context.engine.max_running(), running);
  counts.busy = running;
  return counts;
}

Json DefaultSettings(const serving::ServingContext& context) {
  const serving::SamplingDefaults& defaults = context.model.defaults;
  SamplingParams sampling;
  sampling.temperature = defaults.temperature;
  sampling.top_p = defaults.top_p;
  sampling.top_k = defaults.top_k;
  sampling.min_p = defaults.min_p;
  sampling.repetition_penalty = defaults.repetition_penalty;
  Json params = llamacpp::SettingsJson(sampling, llamacpp::CompletionBody(),
                                       serving::MaxContext(context));
  params["seed"] = 0xffffffffu;  // drawn
  return params;
}

http::HttpResponse Props(const serving::ServingContext& context,
                         const http::HttpRequest& request) {
  const serving::ServedModel& model = context.model;
  const serving::TokenizerInfo info = model.text->info();
  const int n_ctx = serving::MaxContext(context);
  const SlotCounts slots = CountSlots(context);
  // A path has a user's name: key holders alone see it.
  const bool known = !request.tenant.empty();
  http::HttpResponse response;
  response.body =
      DumpJson({{"default_generation_settings",
                 {{"id", 0},
                  {"id_task", -1},
                  {"n_ctx", n_ctx},
                  {"speculative", false},
                  {"is_processing", slots.busy > 0},
                  {"params", DefaultSettings(context)}}},
                {"total_slots", slots.total},
                {"model_alias", model.name},
                {"model_path", known ? model.root : model.name},
                {"modalities", {{"vision", false}, {"audio", false}}},
                {"chat_template", info.chat_template},
                {"bos_token", info.bos_token},
                {"eos_token", info.eos_token},
                {"build_info", Cat("sluice ", BuildVersion())},
                {"is_sleeping", false}});
  return response;
}

// Returns an entry for each place of the engine. No text, and no name.
Json SlotsJson(const serving::ServingContext& context,
               const SlotCounts& counts) {
  Json slots = Json::array();
  const int n_ctx = serving::MaxContext(context);
  for (int i = 0; i < counts.total; ++i) {
    slots.push_back({{"id", i},
                     {"n_ctx", n_ctx},
                     {"speculative", false},
                     {"is_processing", i < counts.busy}});
  }
  return slots;
}

void SendSlots(const serving::ServingContext& context,
               const std::shared_ptr<http::Exchange>& on) {
  const SlotCounts counts = CountSlots(context);
  const std::string& query = on->request().query;
  const bool wants_free = query.find("fail_on_no_slot=1") != query.npos;
  if (wants_free && counts.busy >= counts.total) {
    on->SendError(serving::ToApiError(
        Unavailable("no slot is free: ", counts.busy, " sequences run")));
    return;
  }
  http::HttpResponse response;
  response.headers.emplace_back("Cache-Control", "no-store");
  response.body = DumpJson(SlotsJson(context, counts));
  on->Send(std::move(response));
}

}  // namespace

void AddServerStateHandlers(http::Router& router,
                            const ServingContext& context) {
  router.Add("GET", "/props", [context](std::shared_ptr<http::Exchange> on) {
    on->Send(Props(context, on->request()));
  });
  router.Add("GET", "/slots", [context](std::shared_ptr<http::Exchange> on) {
    SendSlots(context, on);
  });
}

}  // namespace sluice::gateway
