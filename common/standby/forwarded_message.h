#ifndef SLUICE_COMMON_STANDBY_FORWARDED_MESSAGE_H_
#define SLUICE_COMMON_STANDBY_FORWARDED_MESSAGE_H_

#include <string>
#include <string_view>

#include "common/http/message.h"

// Messages that one server passes on to another (RFC 9110, section 7.6).
namespace sluice::standby {

// Of a request that a server has passed on: no other server passes it on again.
inline constexpr std::string_view kForwardedHeader = "x-sluice-forwarded";
// Of the answer of a server that would pass such a request on, and does not: it
// is of this server, and none to the request.
inline constexpr std::string_view kDeclinedHeader = "x-sluice-declined";

class PeerSecret;

// Returns `request` as it is passed on, up to the empty line: method (GET for
// HEAD: Exchange drops the body), target, the client's headers without those of
// its connection, the client's address in X-Forwarded-For, the request's id,
// kForwardedHeader, and the body's length. `last_event_id`: unless empty, in
// the place of the client's Last-Event-ID. `secret`: unless null, with a proof
// of it.
std::string ForwardedHead(const http::HttpRequest& request,
                          std::string_view last_event_id = {},
                          const PeerSecret* secret = nullptr);

// Returns the headers of another server's answer that a client gets: all but
// the connection's headers and the headers that each server writes itself
// (SerializeHead, AnswerHead). Names in lower case.
http::HttpHeaders ForwardedAnswerHeaders(const http::HttpHeaders& headers);

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_FORWARDED_MESSAGE_H_
