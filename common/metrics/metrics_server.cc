#include "common/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <list>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/metrics/metrics.h"

namespace sluice::metrics {
namespace {

// When so many are connected, the one that came first makes room: each gets one
// answer, which takes a moment unless the client is slow.
constexpr size_t kMaxClients = 64;
// At once, so that those that just came are served before they make room.
constexpr int kMaxAccepts = 16;
constexpr size_t kMaxRequestBytes = 8 << 10;
constexpr auto kClientTimeout = std::chrono::seconds(5);
// Without descriptors accept fails and the listener stays readable: a pause
// beats spinning.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// Closes its descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

StatusOr<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) {
    return InvalidArgument("metrics address \"", text, "\" has no port");
  }
  std::string host = text.substr(0, colon);
  unsigned port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end || port > 65535) {
    return InvalidArgument("metrics address \"", text, "\": port is not 0 to ",
                           65535);
  }
  Address address;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(*v6);
    host = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) return address;
  } else {
    if (host == "localhost") host = "127.0.0.1";
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(*v4);
    if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) return address;
  }
  return InvalidArgument("metrics address \"", text, "\": not an IP address");
}

StatusOr<Fd> Listen(const Address& address, const std::string& text) {
  Fd fd(::socket(address.storage.ss_family,
                 SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (fd.get() < 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage),
             address.size) != 0 ||
      ::listen(fd.get(), 64) != 0) {
    return Unavailable("cannot listen on ", text,
                       " for metrics: ", std::strerror(errno));
  }
  return fd;
}

int PortOf(const Fd& fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  return storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port)
             : ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
}

std::string Answer(std::string_view status, std::string_view type,
                   const std::string& body, bool with_body,
                   std::string_view extra = "") {
  return Cat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
             "\r\nContent-Length: ", body.size(), "\r\n", extra,
             "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
             with_body ? body : std::string());
}

}  // namespace

class MetricsServer::Impl {
 public:
  Impl(MetricsServerOptions options, Fd listener)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        port_(PortOf(listener_)),
        thread_([this] { Run(); }) {}

  ~Impl() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }

  int port() const { return port_; }

 private:
  // A connection reads until the header's end, then writes and is closed.
  struct Client {
    Fd fd;
    TimePoint deadline;
    std::string in;
    std::string out;
    size_t written = 0;
    bool done = false;
    bool writing() const { return !out.empty(); }
  };

  void Run() {
    pthread_setname_np(pthread_self(), "metrics");
    bool more = true;
    while (more) {
      const Status turned =
          CatchAndCount("metrics_server", [&] { more = Turn(); });
      // Memory was short: the oldest client's is given back.
      if (!turned.ok() && !clients_.empty()) clients_.pop_front();
    }
  }

  // Serves who is ready. False once the server is to end.
  bool Turn() {
    std::vector<pollfd> fds;
    fds.push_back({wake_.get(), POLLIN, 0});
    const bool deaf = Clock::now() < next_accept_;
    fds.push_back({deaf ? -1 : listener_.get(), POLLIN, 0});
    for (const Client& client : clients_) {
      const short events = client.writing() ? POLLOUT : POLLIN;
      fds.push_back({client.fd.get(), events, 0});
    }
    ::poll(fds.data(), fds.size(), deaf ? 100 : clients_.empty() ? -1 : 500);
    if (fds[0].revents != 0) return false;
    size_t i = 2;
    for (Client& client : clients_) {
      if (fds[i++].revents != 0) Serve(client);
    }
    const TimePoint now = Clock::now();
    clients_.remove_if(
        [&](const Client& c) { return c.done || c.deadline < now; });
    if (fds[1].revents != 0) Accept();
    return true;
  }

  void Accept() {
    for (int i = 0; i < kMaxAccepts; ++i) {
      Fd fd(::accept4(listener_.get(), nullptr, nullptr,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd.get() < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
          LogWarning("metrics: accept failed: ", std::strerror(errno));
          next_accept_ = Clock::now() + kAcceptPause;
        }
        return;
      }
      if (clients_.size() >= kMaxClients) clients_.pop_front();
      Client& client = clients_.emplace_back();
      client.fd = std::move(fd);
      client.deadline = Clock::now() + kClientTimeout;
    }
  }

  void Serve(Client& client) {
    const Status served = CatchAndCount("metrics_server", [&] {
      if (!client.writing()) Read(client);
      if (client.writing()) Write(client);
    });
    if (!served.ok()) client.done = true;
  }

  void Read(Client& client) {
    char buffer[4096];
    const ssize_t n = ::recv(client.fd.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      client.done = true;
      return;
    }
    client.in.append(buffer, static_cast<size_t>(n));
    if (client.in.find("\r\n\r\n") != std::string::npos) {
      client.out = Respond(client.in);
    } else if (client.in.size() > kMaxRequestBytes) {
      client.out = Answer("431 Request Header Fields Too Large", "text/plain",
                          "header too large\n", true);
    }
  }

  void Write(Client& client) {
    const ssize_t n =
        ::send(client.fd.get(), client.out.data() + client.written,
               client.out.size() - client.written, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) client.written += static_cast<size_t>(n);
    client.done = n <= 0 || client.written == client.out.size();
  }

  std::string Respond(std::string_view request) const {
    const std::string_view line = request.substr(0, request.find("\r\n"));
    const size_t space = line.find(' ');
    const std::string_view method = line.substr(0, space);
    std::string_view path =
        space == line.npos ? line.substr(line.size()) : line.substr(space + 1);
    path = path.substr(0, path.find_first_of(" ?"));
    if (method != "GET" && method != "HEAD") {
      return Answer("405 Method Not Allowed", "text/plain",
                    "method not allowed\n", true, "Allow: GET, HEAD\r\n");
    }
    const bool body = method == "GET";
    if (path == "/metrics" && options_.registry != nullptr) {
      return Answer("200 OK", kTextContentType, options_.registry->Text(),
                    body);
    }
    if (path == "/livez") {
      return Answer("200 OK", "text/plain", "ok\n", body);
    }
    if (path == "/readyz") {
      const Readiness readiness =
          options_.readiness ? options_.readiness() : Readiness{true, "{}"};
      return Answer(readiness.ready ? "200 OK" : "503 Service Unavailable",
                    "application/json", readiness.json, body);
    }
    if (const auto page = options_.pages.find(path);
        page != options_.pages.end()) {
      return Answer("200 OK", "application/json", page->second(), body);
    }
    return Answer("404 Not Found", "text/plain",
                  "not found; there are /metrics, /livez and /readyz\n", body);
  }

  const MetricsServerOptions options_;
  const Fd listener_;
  const Fd wake_;
  const int port_;
  std::list<Client> clients_;  // of the thread alone
  TimePoint next_accept_{};    // so is this
  std::thread thread_;         // last: it uses all of the above
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    MetricsServerOptions options) {
  SLUICE_ASSIGN_OR_RETURN(const Address address, ParseAddress(options.listen));
  SLUICE_ASSIGN_OR_RETURN(Fd listener, Listen(address, options.listen));
  return std::unique_ptr<MetricsServer>(new MetricsServer(
      std::make_unique<Impl>(std::move(options), std::move(listener))));
}

int MetricsServer::port() const { return impl_->port(); }

}  // namespace sluice::metrics
