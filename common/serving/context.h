#ifndef SLUICE_COMMON_SERVING_CONTEXT_H_
#define SLUICE_COMMON_SERVING_CONTEXT_H_

#include <functional>
#include <string>

#include "common/serving/readiness.h"
#include "common/serving/request_cost.h"
#include "common/serving/request_rules.h"

namespace sluice::trace {
class TraceStore;
}  // namespace sluice::trace

namespace sluice {
class EngineLoop;
class TurnQueue;
}  // namespace sluice

namespace sluice::serving {

class AnswerStore;
class RequestMetrics;
class StreamJournal;
struct ServedModel;

// What answering a request needs. All objects outlive the server.
struct ServingContext {
  const ServedModel& model;
  EngineLoop& engine;
  RequestMetrics& metrics;
  // Parses and tokenizes large prompts and writes large answers; null: on the
  // loop.
  TurnQueue* work = nullptr;
  // Any thread; must not block.
  std::function<Readiness()> readiness;
  trace::TraceStore* traces = nullptr;  // null: no request is traced
  bool keys_asked = false;  // API keys: clients without one see no addresses
  // Refuses unknown fields of a body instead of ignoring them.
  bool strict_fields = false;
  CostLimits limits = {};  // per request
  RequestRules rules = {};
  StreamJournal* streams = nullptr;  // null: no request is kept
  // Returns what of the stages decides over tokens beside the model: numerics
  // and weights' type of the pipeline that was joined; empty: none was yet. Any
  // thread; must not block.
  std::function<std::string()> arithmetic = nullptr;
  // Compiles grammars; null: `work` does.
  TurnQueue* compiles = nullptr;
  AnswerStore* answers = nullptr;  // null: no answer is kept
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_CONTEXT_H_
