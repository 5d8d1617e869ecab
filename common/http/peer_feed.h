#ifndef SLUICE_COMMON_HTTP_PEER_FEED_H_
#define SLUICE_COMMON_HTTP_PEER_FEED_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/forwarder.h"
#include "common/http/leader_watch.h"
#include "common/http/task.h"
#include "common/http/upstream.h"

namespace sluice::http {

// While a peer leads: an answer without an end, GET options.feed_path, whose
// records go to options.on_feed. On the loop's thread.
class PeerFeed {
 public:
  // All outlive it.
  PeerFeed(boost::asio::io_context& io, const ForwarderOptions& options,
           const std::vector<ServerAddress>& peers, PeerConnections connections,
           const LeaderWatch& watch);

  // Goes on until Stop.
  Task<void> Run();
  void Stop();
  // The feed comes from no peer but `kept` (-1: from any) any more.
  void Forsake(int kept);

 private:
  Task<Status> Follow(int peer);
  Task<Status> Read(Upstream& upstream);

  boost::asio::io_context& io_;
  const ForwarderOptions& options_;
  const std::vector<ServerAddress>& peers_;
  const PeerConnections connections_;
  const LeaderWatch& watch_;
  boost::asio::steady_timer timer_;
  bool stopping_ = false;
  int peer_ = -1;                       // the upstream's
  std::shared_ptr<Upstream> upstream_;  // null: none
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_PEER_FEED_H_
