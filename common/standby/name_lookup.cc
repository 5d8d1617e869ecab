#include "common/standby/name_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/exception_counts.h"

// As in common/http/connection.cc every operand of a co_await has a name.
namespace sluice::standby {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using http::Redirect;
using http::Task;

StatusOr<std::vector<std::string>> LookUpBySystem(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return Unavailable(::gai_strerror(error));
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text),
                      nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  ::freeaddrinfo(found);
  return addresses;
}

}  // namespace

NameLookup::NameLookup(std::shared_ptr<net::io_context> io, Function look_up)
    : io_(std::move(io)),
      look_up_(look_up ? std::move(look_up) : LookUpBySystem) {}

void NameLookup::Begin(const std::string& host,
                       const std::shared_ptr<Name>& name) {
  name->is_under_way = true;
  name->begun = Clock::now();
  // The thread may outlive this object, and the loop's own thread.
  auto work = [io = io_, weak = std::weak_ptr<Name>(name), look_up = look_up_,
               host] {
    ::pthread_setname_np(::pthread_self(), "lookup");
    StatusOr<std::vector<std::string>> found =
        Unavailable("the lookup broke off");
    const Status ran = CatchAndCount("lookup", [&] { found = look_up(host); });
    if (!ran.ok()) found = ran;
    // No other thread waits for this one: it tries until there is memory.
    const auto post = [&] {
      net::post(*io, [weak, found]() mutable {
        if (const auto one = weak.lock()) End(*one, std::move(found));
      });
    };
    while (!CatchAndCount("lookup", post).ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  };
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error& error) {
    End(*name, Unavailable("no thread for the lookup: ", error.what()));
  }
}

void NameLookup::End(Name& name, StatusOr<std::vector<std::string>> found) {
  name.is_under_way = false;
  name.status = found.status();
  if (found.ok()) {
    name.addresses.clear();
    for (const std::string& text : *found) {
      error_code error;
      const auto address = net::ip::make_address(text, error);
      if (!error) name.addresses.push_back(address);
    }
    if (name.addresses.empty()) name.status = Unavailable("it has no address");
  }
  for (net::steady_timer* timer : name.waiting) timer->cancel();
}

Task<StatusOr<NameLookup::Addresses>> NameLookup::Find(std::string host,
                                                       net::steady_timer& timer,
                                                       Duration limit) {
  error_code error;
  const auto address = net::ip::make_address(host, error);
  if (!error) co_return Addresses{address};
  std::shared_ptr<Name>& known = names_[host];
  if (known == nullptr) known = std::make_shared<Name>();
  const std::shared_ptr<Name> name = known;
  if (!name->is_under_way) Begin(host, name);
  const bool hangs = Clock::now() - name->begun >= limit;
  if (name->is_under_way && !hangs) {
    name->waiting.push_back(&timer);
    timer.expires_after(limit);
    auto token = Redirect(error);
    co_await timer.async_wait(token);
    std::erase(name->waiting, &timer);
  }
  if (!name->is_under_way && !name->status.ok()) co_return name->status;
  if (name->addresses.empty()) {
    co_return Unavailable("its lookup takes longer than ", Seconds(limit),
                          " s");
  }
  co_return name->addresses;
}

}  // namespace sluice::standby
