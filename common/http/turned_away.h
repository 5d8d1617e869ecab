#ifndef SLUICE_COMMON_HTTP_TURNED_AWAY_H_
#define SLUICE_COMMON_HTTP_TURNED_AWAY_H_

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <string_view>

#include "common/http/http_server.h"

namespace sluice::http {

// Connections beyond the limit that may wait for their client to read the
// reason; more are closed at once.
inline constexpr int kMaxTurnedAway = 64;

// Tells a client why it gets no connection, and closes that once the client
// did, or after a second. On the socket's loop, while that runs; `waiting`
// counts those that are not closed yet, and outlives the loop.
void TurnAway(boost::asio::ip::tcp::socket socket,
              const HttpServerOptions& options, std::atomic<int>& waiting);

// Returns the answer, headers and all, to a request that finds no memory for an
// answer of its own. Its request id is the same each time.
std::string NoMemoryAnswer(const HttpServerOptions& options);

// Sends `answer`, made earlier, to the client of a plain connection that is to
// be closed. Allocates nothing; what the socket does not take is left out.
void SendNoMemoryAnswer(int socket, std::string_view answer) noexcept;

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_TURNED_AWAY_H_
