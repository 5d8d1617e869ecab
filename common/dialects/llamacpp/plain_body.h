#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_PLAIN_BODY_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_PLAIN_BODY_H_

#include <string_view>

namespace sluice::llamacpp {

// Returns whether the answer to a request with `body` surely needs no grammar.
bool IsPlainBody(std::string_view body);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_PLAIN_BODY_H_
