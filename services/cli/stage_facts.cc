#include "services/cli/stage_facts.h"

#include "common/base/cat.h"
#include "common/base/json_member.h"
#include "services/cli/format.h"

namespace sluice::cli {
namespace {

constexpr char kColumns[] = " %9s %10s %12s";

double NumberOf(const Json& json, const char* key) {
  const Json* found = FindMember(json, key);
  return found && found->is_number() ? found->get<double>() : 0;
}

// `share` is the stage's time, until all are known.
StageFacts FactsOf(const Json& stage) {
  StageFacts facts;
  facts.state = FindText(stage, "state");
  const int64_t first = FindInt(stage, "first_layer").value_or(0);
  const int64_t end = FindInt(stage, "last_layer").value_or(0);
  if (end > first) facts.layers = Cat(first, "-", end - 1);
  facts.steps = FindInt(stage, "steps_done");
  facts.share = NumberOf(stage, "busy_ms");
  if (facts.steps.value_or(0) > 0) {
    facts.step_milliseconds = facts.share / static_cast<double>(*facts.steps);
  }
  return facts;
}

}  // namespace

std::map<std::string, StageFacts> StagesOf(const Json& page) {
  std::map<std::string, StageFacts> found;
  double busy = 0;
  for (const Json& stage : FindList(page, "stages")) {
    StageFacts facts = FactsOf(stage);
    busy += facts.share;
    found[FindText(stage, "address")] = std::move(facts);
  }
  for (auto& [address, facts] : found) {
    facts.share = busy > 0 ? facts.share / busy : 0;
  }
  return found;
}

std::string FactColumns(const StageFacts* stage) {
  if (stage == nullptr) return Format(kColumns, "-", "-", "-");
  const bool computes = stage->step_milliseconds.has_value();
  return Format(
      kColumns, stage->layers.empty() ? "-" : stage->layers.c_str(),
      computes ? Format("%.3f", *stage->step_milliseconds).c_str() : "-",
      computes ? Format("%.1f %%", stage->share * 100).c_str() : "-");
}

std::string FactHeads() {
  return Format(kColumns, "layers", "ms a step", "of the time");
}

}  // namespace sluice::cli
