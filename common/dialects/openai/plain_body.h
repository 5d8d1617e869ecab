#ifndef SLUICE_COMMON_DIALECTS_OPENAI_PLAIN_BODY_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_PLAIN_BODY_H_

#include <string_view>

namespace sluice::openai {

// Whether an answer to a request with `body` needs no grammar: the body has no
// schema, pattern, tool or other member that could ask for a grammar. What it
// cannot tell is not plain: a member it does not know, a name with an escape, a
// body that is no object. One pass over the bytes.
bool IsPlainBody(std::string_view body);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_PLAIN_BODY_H_
