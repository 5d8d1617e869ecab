#include "common/standby/upstream.h"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace sluice::standby {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using http::Redirect;
using http::Task;
using http::VersionOf;

constexpr size_t kReadBytes = size_t{16} << 10;
constexpr size_t kWriteBytes = size_t{64} << 10;

// A server that is gone without a word is noticed after about 11 s; one whose
// process stands still is not.
void SetSocketOptions(net::ip::tcp::socket& socket) {
  error_code ignored;
  socket.set_option(net::ip::tcp::no_delay(true), ignored);
  socket.set_option(net::ip::tcp::socket::keep_alive(true), ignored);
  const int fd = socket.native_handle();
  const auto set = [fd](int option, int value) {
    ::setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
  };
  set(TCP_KEEPIDLE, 5);
  set(TCP_KEEPINTVL, 2);
  set(TCP_KEEPCNT, 3);
}

bool SpeaksNoTls(const error_code& error) {
  return error.category() == net::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) ==
             SSL_R_WRONG_VERSION_NUMBER;
}

uint16_t PortOf(const ServerAddress& address) {
  return static_cast<uint16_t>(std::strtoul(address.port.c_str(), nullptr, 10));
}

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

Certificate ReadCertificate(const std::string& path) {
  BIO* const file = BIO_new_file(path.c_str(), "r");
  if (file == nullptr) return {nullptr, &X509_free};
  X509* const read = PEM_read_bio_X509(file, nullptr, nullptr, nullptr);
  BIO_free(file);
  return {read, &X509_free};
}

}  // namespace

StatusOr<ServerAddress> ServerAddress::Parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  ServerAddress address;
  if (colon != std::string::npos) {
    address = {text.substr(0, colon), text.substr(colon + 1)};
  }
  std::string& host = address.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]/") != std::string::npos) {
    host.clear();
  }
  const bool is_port =
      !address.port.empty() && address.port.size() <= 5 &&
      address.port.find_first_not_of("0123456789") == std::string::npos &&
      std::strtoul(address.port.c_str(), nullptr, 10) <= UINT16_MAX;
  if (host.empty() || !is_port) {
    return InvalidArgument("'", text, "' is no HOST:PORT");
  }
  return address;
}

StatusOr<std::shared_ptr<PeerTrust::Context>> PeerTrust::For(
    const std::string& host) {
  if (certificate_.empty()) return std::shared_ptr<Context>();
  const auto version = VersionOf(certificate_);
  if (std::exchange(version_, version) != version) contexts_.clear();
  if (const auto found = contexts_.find(host); found != contexts_.end()) {
    return found->second;
  }
  const auto own = std::make_shared<Certificate>(ReadCertificate(certificate_));
  auto context = std::make_shared<Context>(Context::tls_client);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  // This server's certificate is trusted even if its authority is not here; the
  // authorities that its file may have behind it are not.
  if (*own) X509_STORE_add_cert(SSL_CTX_get_cert_store(native), own->get());
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(native),
                              X509_V_FLAG_PARTIAL_CHAIN);
  if (ca_.empty()) {
    SSL_CTX_set_default_verify_paths(native);
  } else if (SSL_CTX_load_verify_locations(native, ca_.c_str(), nullptr) != 1) {
    ERR_clear_error();
    return InvalidArgument("authorities ", ca_, " cannot be read");
  }
  ERR_clear_error();
  context->set_verify_mode(net::ssl::verify_peer);
  context->set_verify_callback(
      [own, named = net::ssl::host_name_verification(host)](
          bool verified, net::ssl::verify_context& chain) {
        X509_STORE_CTX* const store = chain.native_handle();
        const bool is_own =
            *own && X509_STORE_CTX_get_error_depth(store) == 0 &&
            X509_cmp(X509_STORE_CTX_get_current_cert(store), own->get()) == 0;
        return verified && (is_own || named(verified, chain));
      });
  contexts_[host] = context;
  return context;
}

Upstream::Upstream(net::io_context& io, NameLookup& names,
                   const ServerAddress& address,
                   std::shared_ptr<PeerTrust::Context> tls)
    : address_(address),
      names_(names),
      lookup_timer_(io),
      stream_(net::ip::tcp::socket(io), std::move(tls)) {}

Status Upstream::Failed(std::string_view what, std::string_view why) const {
  return Unavailable(address_.host, ":", address_.port, ": ", what, ": ",
                     closed_ ? "given up" : why);
}

Task<Status> Upstream::Connect(Duration limit) {
  auto finding = names_.Find(address_.host, lookup_timer_, limit);
  const StatusOr<NameLookup::Addresses> found = co_await std::move(finding);
  if (!found.ok() || closed_) {
    co_return Failed("no address", Message(found.status()));
  }
  std::vector<net::ip::tcp::endpoint> endpoints;
  for (const net::ip::address& one : *found) {
    endpoints.emplace_back(one, PortOf(address_));
  }
  error_code error;
  stream_.expires_after(limit);
  auto connecting = Redirect(error);
  co_await stream_.tcp().async_connect(endpoints, connecting);
  if (error || closed_) co_return Failed("no connection", error);
  SetSocketOptions(stream_.socket());
  if (stream_.tls() == nullptr) co_return OkStatus();
  SSL_set_tlsext_host_name(stream_.tls()->native_handle(),
                           address_.host.c_str());
  auto greeting = Redirect(error);
  const auto as_client = net::ssl::stream_base::client;
  co_await stream_.tls()->async_handshake(as_client, greeting);
  if (SpeaksNoTls(error)) {
    co_return Failed("no TLS", "that server speaks plain HTTP, this one TLS");
  }
  if (error) co_return Failed("no TLS", error);
  co_return OkStatus();
}

Task<Status> Upstream::Send(const std::string& head, const std::string& body,
                            Duration limit) {
  for (std::string_view rest :
       {std::string_view(head), std::string_view(body)}) {
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, kWriteBytes);
      rest.remove_prefix(part.size());
      stream_.expires_after(limit);
      error_code error;
      auto token = Redirect(error);
      const auto bytes = net::buffer(part.data(), part.size());
      co_await net::async_write(stream_, bytes, token);
      if (error || closed_) co_return Failed("the request broke off", error);
    }
  }
  co_return OkStatus();
}

Task<Status> Upstream::ReadSome() {
  std::array<char, kReadBytes> space;
  error_code error;
  auto token = Redirect(error);
  const auto into = net::buffer(space);
  const size_t size = co_await stream_.async_read_some(into, token);
  if (closed_) co_return Failed("the answer broke off", error);
  if (!error) co_return parser_.Feed(std::string_view(space.data(), size));
  const bool is_end = error == net::error::eof;
  const Status closed = parser_.Close();
  if (is_end && closed.ok() && parser_.is_done()) co_return OkStatus();
  co_return Failed("the answer broke off", error);
}

Task<Status> Upstream::ReadHead(std::optional<Duration> limit) {
  if (limit.has_value()) {
    stream_.expires_after(*limit);
  } else {
    stream_.expires_never();
  }
  while (!parser_.has_header()) {
    auto reading = ReadSome();
    Status read = co_await std::move(reading);
    if (!read.ok()) co_return Unavailable(Message(read));
  }
  co_return OkStatus();
}

Task<StatusOr<std::string>> Upstream::ReadBody() {
  while (true) {
    std::string body = parser_.TakeBody();
    if (!body.empty() || parser_.is_done()) co_return body;
    auto reading = ReadSome();
    Status read = co_await std::move(reading);
    if (!read.ok()) co_return Unavailable(Message(read));
  }
}

void Upstream::Close() {
  closed_ = true;
  lookup_timer_.cancel();
  error_code ignored;
  // Reset: a server takes an orderly end for a client that may still read.
  stream_.socket().set_option(net::socket_base::linger(true, 0), ignored);
  stream_.socket().close(ignored);
}

}  // namespace sluice::standby
