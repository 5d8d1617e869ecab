#ifndef SLUICE_COMMON_STANDBY_LEADER_WATCH_H_
#define SLUICE_COMMON_STANDBY_LEADER_WATCH_H_

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/http/task.h"
#include "common/standby/forwarder.h"
#include "common/standby/upstream.h"

namespace sluice::standby {

// Asks the peers twice a second which of them leads, while this server does
// not. On the loop's thread, but for leader().
class LeaderWatch {
 public:
  // `forsake(kept)`: no request gets an answer from a peer other than `kept`
  // any more (-1: from any). All outlive it.
  LeaderWatch(boost::asio::io_context& io, const ForwarderOptions& options,
              const std::vector<ServerAddress>& peers,
              PeerConnections connections,
              std::function<void(int kept)> forsake);

  // Goes on until Stop.
  http::Task<void> Run();
  void Stop();
  // The index of the peer that leads; -1: none is known. Any thread.
  int leader() const { return leader_; }
  // See Forwarder. Any thread.
  std::string troubles() const;

 private:
  // A peer that does not answer, or does not fit.
  struct Trouble {
    Status why;
    TimePoint since{};
    bool logged = false;
  };
  struct Round {
    int leader = -1;                    // its index; -1: none leads
    std::optional<std::string> answer;  // the leader's
    bool before_answers = false;        // the leader before still answers
  };
  // Asks all peers.
  http::Task<Round> AskAll();
  bool asks() const {
    return options_.asks ? options_.asks() : !options_.leads();
  }
  // Returns the body of the peer's /readyz; nothing: it does not answer.
  http::Task<std::optional<std::string>> Ask(size_t index);
  // Waits between two rounds, or until this server's own lead changes.
  http::Task<void> Pause(Duration time);
  void NoteOwnLead();
  // OK: the peer is well.
  void Note(size_t index, const Status& why);
  void TellTroubles();

  boost::asio::io_context& io_;
  const ForwarderOptions& options_;
  const std::vector<ServerAddress>& peers_;
  const PeerConnections connections_;
  const std::function<void(int)> forsake_;
  boost::asio::steady_timer timer_;
  std::atomic<int> leader_{-1};
  bool led_ = false;  // this server, at the last look
  bool stopping_ = false;
  std::shared_ptr<Upstream> upstream_;  // null: no question is under way
  std::vector<Trouble> troubles_;       // by peer
  mutable Mutex mutex_;
  std::string told_ ABSL_GUARDED_BY(mutex_);  // of troubles_
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_LEADER_WATCH_H_
