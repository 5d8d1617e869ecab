#ifndef SLUICE_COMMON_STANDBY_PEER_FEED_H_
#define SLUICE_COMMON_STANDBY_PEER_FEED_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/task.h"
#include "common/standby/forwarder.h"
#include "common/standby/leader_watch.h"
#include "common/standby/upstream.h"

namespace sluice::standby {

// While a peer leads: an answer without an end, GET options.feed_path, whose
// records go to options.on_feed. On the loop's thread.
class PeerFeed {
 public:
  // All outlive it.
  PeerFeed(boost::asio::io_context& io, const ForwarderOptions& options,
           const std::vector<ServerAddress>& peers, PeerConnections connections,
           const LeaderWatch& watch);

  // Goes on until Stop.
  http::Task<void> Run();
  void Stop();
  // The feed comes from no peer but `kept` (-1: from any) any more.
  void Forsake(int kept);

 private:
  http::Task<Status> Follow(int peer);
  http::Task<Status> Read(Upstream& upstream);

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

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_PEER_FEED_H_
