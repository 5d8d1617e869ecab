#ifndef SLUICE_SERVICES_GATEWAY_GENERATOR_H_
#define SLUICE_SERVICES_GATEWAY_GENERATOR_H_

#include <memory>

#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/ids.h"

namespace sluice::gateway {

// What makes tokens: the engine on its pipeline, or a test's script. Methods
// may be called from any thread and do not block.
class Generator {
 public:
  virtual ~Generator() = default;

  // After an error the sink gets no call at all; after an id OnStart, any
  // number of OnTokens and exactly one OnEnd, from the generator's own thread,
  // possibly before this returns. RESOURCE_EXHAUSTED: the queue is full;
  // UNAVAILABLE: no pipeline, or draining; INVALID_ARGUMENT: the request does
  // not fit.
  virtual StatusOr<SequenceId> Submit(GenerateRequest request,
                                      std::shared_ptr<TokenSink> sink) = 0;

  // OnEnd(kCancelled) follows unless the sequence has ended by then.
  virtual void Cancel(SequenceId sequence) = 0;

  // Positions that one sequence may have, prompt and completion together: the
  // least of what model and pipeline allow. 0 while no pipeline was ever up.
  virtual int max_context() const = 0;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_GENERATOR_H_
