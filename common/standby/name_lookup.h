#ifndef SLUICE_COMMON_STANDBY_NAME_LOOKUP_H_
#define SLUICE_COMMON_STANDBY_NAME_LOOKUP_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/task.h"

namespace sluice::standby {

// The addresses of hosts. The system's lookup of a name cannot be cut short, so
// each has a thread "lookup" of its own, at most one for a name at a time. Find
// waits no longer than its limit for one that hangs, which ends by itself. On
// the loop's thread.
class NameLookup {
 public:
  using Addresses = std::vector<boost::asio::ip::address>;
  // Returns the IP addresses of a name, as text. On any thread, for any time.
  using Function =
      std::function<StatusOr<std::vector<std::string>>(const std::string&)>;

  // `look_up`: null, the system's.
  NameLookup(std::shared_ptr<boost::asio::io_context> io, Function look_up);

  // Returns the addresses of `host`, a name or an IP address. Of a name whose
  // lookup takes longer than `limit`, those of the one before; UNAVAILABLE if
  // there was none, or if the lookup fails. Waits for no lookup that has taken
  // so long already. `timer` has no other use meanwhile;
  // its cancel() ends the wait.
  http::Task<StatusOr<Addresses>> Find(std::string host,
                                       boost::asio::steady_timer& timer,
                                       Duration limit);

 private:
  struct Name {
    bool is_under_way = false;
    TimePoint begun{};
    Status status;        // of the latest lookup that ended
    Addresses addresses;  // of the latest one that found some
    std::vector<boost::asio::steady_timer*> waiting;
  };

  void Begin(const std::string& host, const std::shared_ptr<Name>& name);
  static void End(Name& name, StatusOr<std::vector<std::string>> found);

  const std::shared_ptr<boost::asio::io_context> io_;
  const Function look_up_;
  std::map<std::string, std::shared_ptr<Name>> names_;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_NAME_LOOKUP_H_
