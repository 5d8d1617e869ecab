#ifndef SLUICE_SERVICES_GATEWAY_PLAIN_REQUEST_H_
#define SLUICE_SERVICES_GATEWAY_PLAIN_REQUEST_H_

#include "common/http/message.h"

namespace sluice::gateway {

// Whether an answer to the request needs no grammar: its body has no schema,
// pattern, tool or other member that could ask for a grammar. What it cannot
// tell is not plain: a member it does not know, a name with an escape, a body
// that is no object, a stream by its id. One pass over the bytes.
bool IsPlainRequest(const http::HttpRequest& request);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_PLAIN_REQUEST_H_
