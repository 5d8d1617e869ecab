#ifndef SLUICE_COMMON_DIALECTS_OPENAI_BODY_DIGEST_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_BODY_DIGEST_H_

#include <cstdint>

#include "common/base/json_fwd.h"

namespace sluice::openai {

// Returns a hash of what a body of chat or completions asks for. White space,
// the order of members (but within schemas and tools, where the answer or the
// prompt follows it) and the spelling of numbers and strings do not count, nor
// do members that change no answer: unknown and ignored fields, nulls,
// `model` and the fields of pings and the cache. The same in every process.
uint64_t BodyDigest(const Json& body);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_BODY_DIGEST_H_
