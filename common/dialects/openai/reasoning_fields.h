#ifndef SLUICE_COMMON_DIALECTS_OPENAI_REASONING_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_REASONING_FIELDS_H_

#include "common/base/json_fwd.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::openai {

// Reads the fields that say whether and how much the model thinks, under the
// names of all servers, and sets the template's variables in `arguments`, which
// has reasoning_effort and the client's own. Two fields that contradict each
// other are refused by both names. Errors stay in `in`.
void ReadThinking(serving::FieldReader& in, Json& arguments);

// Returns whether the answer leaves the reasoning out. Errors stay in `in`.
// Reads the most tokens of reasoning, by all its names. -1 is no limit; 0 is
// ReadThinking's.
void ReadThinkingBudget(serving::FieldReader& in,
                        serving::GenerationFields& out);

bool ReadHidesReasoning(serving::FieldReader& in);

// Refuses a limit of reasoning in a request without a chat template, which no
// variable can obey.
void RefuseBudgets(serving::FieldReader& in);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_REASONING_FIELDS_H_
