#ifndef SLUICE_COMMON_STANDBY_FORWARDED_JOB_H_
#define SLUICE_COMMON_STANDBY_FORWARDED_JOB_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/http/exchange.h"
#include "common/standby/passed_events.h"
#include "common/standby/upstream.h"

namespace sluice::standby {

// A request under way. Its exchange's loop and the thread "forward" share it:
// members are the thread's, but for `exchange` and `io`.
struct ForwardedJob : std::enable_shared_from_this<ForwardedJob> {
  ForwardedJob(std::shared_ptr<boost::asio::io_context> loop,
               std::shared_ptr<http::Exchange> on,
               std::optional<PassedEvents> events)
      : io(std::move(loop)),
        exchange(std::move(on)),
        signal(*io),
        has_begun(events.has_value()),
        is_events(has_begun),
        passed(std::move(events).value_or(PassedEvents())) {}

  // The exchange's last reference goes away on its loop.
  ~ForwardedJob() {
    exchange->Post([last = exchange] {});
  }
  ForwardedJob(const ForwardedJob&) = delete;
  ForwardedJob& operator=(const ForwardedJob&) = delete;

  // Runs `work` on the thread, unless the job has ended by then. Any thread.
  template <typename Work>
  void Post(Work work) {
    boost::asio::post(*io, [weak = weak_from_this(), work = std::move(work)] {
      if (const auto job = weak.lock()) work(*job);
    });
  }
  void Leave() {
    gone = true;
    Wake();
  }
  // Whether another server can give the rest: the latest event has an id, or no
  // event has come yet.
  bool CanGoOn() const {
    return is_events && passed.is_whole() &&
           (passed.is_last_id_latest() || passed.events() == 0);
  }
  // Ends what the job waits for.
  void Wake() {
    if (upstream) upstream->Close();
    signal.cancel();
  }

  const std::shared_ptr<boost::asio::io_context> io;
  const std::shared_ptr<http::Exchange> exchange;
  boost::asio::steady_timer signal;
  std::shared_ptr<Upstream> upstream;  // null: none now
  int peer = -1;                       // the upstream's
  TimePoint lost_at{};                 // when the latest server was lost
  TimePoint heard = Clock::now();      // the latest bytes of the answer
  bool gone = false;                   // the client has left
  bool is_declined = false;            // by the latest server: it drains
  bool is_read = true;       // the client has read most of the latest chunk
  bool has_begun;            // the client has an answer's head
  bool is_events;            // of a stream of events
  bool is_served = false;    // here, to its end
  PassedEvents passed;       // of these
  size_t events_before = 0;  // of them, those before the latest server
  std::string head;          // of the request
  std::optional<bool> is_plain = std::nullopt;  // of ForwarderOptions
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_FORWARDED_JOB_H_
