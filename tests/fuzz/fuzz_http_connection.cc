// Any bytes on a connection: every request gets its answer in its order, and
// the bytes that come back are well-formed HTTP/1.1, whatever came in. The
// socket is one end of a pair; all runs on this thread.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/http/connection.h"
#include "common/http/error_answer.h"
#include "common/http/ip_address.h"
#include "common/http/trusted_proxies.h"

namespace sluice::http {
namespace {

using boost::asio::ip::tcp;

struct Answered {
  bool head = false;
  int status = 0;
};

// Refuses a path whose second letter is r, of which no body is awaited. Reads
// whose request it is, as behind a proxy.
std::optional<HttpResponse> Screen(HttpRequest& request) {
  static const auto* proxies = new StatusOr<TrustedProxies>(
      TrustedProxies::Parse({"10.0.0.0/8", "fd00::/8"}));
  const std::string client = (*proxies)->ClientOf(request.headers, "10.0.0.1");
  SLUICE_CHECK(IpAddress::Parse(client).has_value());
  if (!request.path.starts_with("/r")) return std::nullopt;
  return TransportError(403, "refused");
}

// Answers with what it was asked: at once, later, or as a stream, by the
// path's second letter.
void Answer(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  SLUICE_CHECK(request.path.starts_with('/') || request.path == "*");
  const std::string text =
      Cat(request.method, " ", request.headers.size(), " ", request.body);
  const char kind = request.path.size() > 1 ? request.path[1] : 'n';
  if (kind == 's') {
    exchange->BeginStream({200, "text/plain", {}, ""});
    for (size_t i = 0; i < text.size(); i += 7) {
      exchange->SendChunk(text.substr(i, 7));
    }
    exchange->EndStream();
  } else if (kind == 'l') {
    exchange->Post([exchange, text] {
      exchange->Send({200, "text/plain", {}, text});
    });
  } else {
    exchange->Send({200, "text/plain", {}, text});
  }
}

// What one connection's server is, made once.
struct Server {
  Server() {
    auto cors = CorsPolicy::Parse({"https://a.example"});
    SLUICE_CHECK(cors.ok());
    options.cors = *std::move(cors);
    options.limits.header_bytes = 1024;
    options.limits.body_bytes = 2048;
    options.screen = Screen;
    options.handler = Answer;
    options.observer = [this](const ExchangeSummary& summary) {
      answered.push_back({summary.method == "HEAD", summary.status});
    };
  }

  HttpServerOptions options;
  HttpServerStats stats;
  std::atomic<bool> draining{false};
  AnswerMemory answers{size_t{256} << 20};
  const std::string no_memory_answer;
  std::vector<Answered> answered;  // on the connection at hand
  boost::asio::io_context io{1};
};

// The client's end of a pair of sockets.
class Peer {
 public:
  explicit Peer(std::string_view bytes) {
    SLUICE_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds_) ==
                 0);
    [[maybe_unused]] const auto sent =
        ::send(fds_[0], bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(fds_[0], SHUT_WR);
  }
  ~Peer() { ::close(fds_[0]); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int other_end() const { return fds_[1]; }
  void Receive() {
    char buffer[16384];
    ssize_t n = 0;
    while ((n = ::recv(fds_[0], buffer, sizeof(buffer), 0)) > 0) {
      received.append(buffer, static_cast<size_t>(n));
    }
  }

  std::string received;

 private:
  int fds_[2];
};

// Takes what precedes `end` off `text`, which must have it.
std::string_view Cut(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  SLUICE_CHECK(at != text.npos);
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return out;
}

size_t Number(std::string_view text, int base) {
  size_t value = 0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), value, base);
  SLUICE_CHECK(parsed.ec == std::errc() && !text.empty() &&
               parsed.ptr == text.data() + text.size());
  return value;
}

void CheckChunks(std::string_view& text) {
  while (const size_t size = Number(Cut(text, "\r\n"), 16)) {
    SLUICE_CHECK(text.size() >= size + 2);
    text.remove_prefix(size);
    SLUICE_CHECK(Cut(text, "\r\n").empty());
  }
  SLUICE_CHECK(Cut(text, "\r\n").empty());
}

void SkipInterim(std::string_view& text) {
  while (text.starts_with("HTTP/1.1 100 ")) Cut(text, "\r\n\r\n");
}

void CheckAnswer(std::string_view& text, const Answered& expected) {
  SkipInterim(text);
  std::string_view head = Cut(text, "\r\n\r\n");
  const std::string_view line = head.substr(0, head.find("\r\n"));
  SLUICE_CHECK(line.starts_with("HTTP/1.1 ") && line.size() > 13);
  SLUICE_CHECK(Number(line.substr(9, 3), 10) ==
               static_cast<size_t>(expected.status));
  for (const char c : head) {
    SLUICE_CHECK(c >= ' ' || c == '\r' || c == '\n');
  }
  if (expected.head || expected.status == 204) return;
  constexpr std::string_view kLength = "\r\nContent-Length: ";
  if (const size_t at = head.find(kLength); at != head.npos) {
    head.remove_prefix(at + kLength.size());
    const size_t length = Number(head.substr(0, head.find("\r\n")), 10);
    SLUICE_CHECK(text.size() >= length);
    text.remove_prefix(length);
  } else if (head.find("\r\nTransfer-Encoding: chunked") != head.npos) {
    CheckChunks(text);
  } else {
    text = {};  // HTTP/1.0: up to the end
  }
}

void RunOne(std::string_view input) {
  static auto* server = new Server;
  server->answered.clear();
  Peer peer(input);
  bool ended = false;
  tcp::socket socket(server->io);
  socket.assign(tcp::v4(), peer.other_end());
  auto connection = std::make_shared<Connection>(
      std::move(socket),
      ConnectionContext{server->options, server->stats, server->draining,
                        server->answers, server->no_memory_answer});
  connection->Start([&ended, &connection] {
    connection = nullptr;
    ended = true;
  });
  while (!ended) {
    server->io.restart();
    if (server->io.poll() == 0) {
      server->io.run_one_for(std::chrono::seconds(60));
    }
    peer.Receive();
  }
  server->io.restart();
  server->io.poll();
  peer.Receive();
  SLUICE_CHECK(server->stats.connections == 0);
  SLUICE_CHECK(server->stats.exchanges == 0);
  SLUICE_CHECK(server->stats.body_bytes == 0);
  SLUICE_CHECK(server->stats.backlog_bytes == 0);
  std::string_view text = peer.received;
  for (const Answered& answer : server->answered) {
    if (answer.status != 0) CheckAnswer(text, answer);
  }
  SkipInterim(text);  // of a body that ended too early
  SLUICE_CHECK(text.empty());
}

}  // namespace
}  // namespace sluice::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::http::RunOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
