// HTTPS on the listener, with certificates that openssl makes.
#include <gmock/gmock.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/http/server_fixture.h"

namespace sluice::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A client within TLS; every wait is bounded by its socket's.
class TlsClient {
 public:
  explicit TlsClient(int port, int highest_version = 0)
      : client_(port),
        context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    SSL_CTX_set_security_level(context_.get(), 0);
    if (highest_version != 0) {
      SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
      SSL_CTX_set_max_proto_version(context_.get(), highest_version);
      SSL_CTX_set_cipher_list(context_.get(), "ALL:@SECLEVEL=0");
    }
    ssl_.reset(SSL_new(context_.get()));
    static constexpr unsigned char kOffers[] = "\x02h2\x08http/1.1";
    SSL_set_alpn_protos(ssl_.get(), kOffers, sizeof(kOffers) - 1);
    SSL_set_fd(ssl_.get(), client_.fd());
    ERR_clear_error();
    connected_ = SSL_connect(ssl_.get()) == 1;
    const char* const why = ERR_reason_error_string(ERR_peek_error());
    if (!connected_ && why != nullptr) error_ = why;
  }

  bool connected() const { return connected_; }
  const std::string& error() const { return error_; }
  // The common name that the server's certificate has.
  std::string ServerName() const {
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        SSL_get1_peer_certificate(ssl_.get()), X509_free);
    if (!certificate) return "";
    char name[100] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()),
                              NID_commonName, name, sizeof(name));
    return name;
  }
  std::string Protocol() const {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &chosen, &size);
    return {reinterpret_cast<const char*>(chosen), size};
  }
  bool Send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) >
           0;
  }
  std::string Receive() {
    char buffer[65536];
    const int n = SSL_read(ssl_.get(), buffer, sizeof(buffer));
    return n <= 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }
  std::string ReceiveUntil(std::string_view end) {
    std::string all;
    while (all.find(end) == std::string::npos) {
      const std::string more = Receive();
      if (more.empty()) break;
      all += more;
    }
    return all;
  }
  // The server said that this is the end, and did not just cut it off.
  bool EndedCleanly() const {
    return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }
  void Shutdown() { SSL_shutdown(ssl_.get()); }
  void Reset() { client_.Reset(); }

 private:
  Client client_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  bool connected_ = false;
  std::string error_;
};

class TlsTest : public HttpServerTest {
 protected:
  void SetUp() override {
    folder_ = Cat(::testing::TempDir(), "tls-", ::getpid());
    std::filesystem::create_directories(folder_);
    MakeCertificate("first");
    Install("first", "first");
    options_.tls = {Path("cert.pem"), Path("key.pem")};
    Start({});
  }
  void TearDown() override {
    HttpServerTest::TearDown();
    std::filesystem::remove_all(folder_);
  }

  std::string Path(std::string_view name) const {
    return Cat(folder_, "/", name);
  }
  void MakeCertificate(std::string_view name) const {
    const std::string command =
        Cat("openssl req -x509 -newkey ec -pkeyopt "
            "ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=",
            name, " -keyout ", Path(name), ".key -out ", Path(name),
            ".cert 2>/dev/null");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  void Install(std::string_view certificate, std::string_view key) const {
    Put(Cat(certificate, ".cert"), "cert.pem");
    Put(Cat(key, ".key"), "key.pem");
  }
  void Put(std::string_view from, std::string_view to) const {
    std::filesystem::copy_file(Path(from), Path("draft"));
    std::filesystem::rename(Path("draft"), Path(to));
  }
  // Whether new connections come to be shown the certificate `name`.
  bool BecomesKnownAs(std::string_view name) const {
    const TimePoint end = Clock::now() + std::chrono::seconds(20);
    while (TlsClient(port()).ServerName() != name) {
      if (Clock::now() > end) return false;
    }
    return true;
  }
  static std::string Asking(std::string_view path) {
    return Cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
  }

  std::string folder_;
};

TEST_F(TlsTest, RequestsAreAnsweredOnOneConnection) {
  TlsClient client(port());
  ASSERT_TRUE(client.connected()) << client.error();
  EXPECT_EQ(client.ServerName(), "first");
  EXPECT_EQ(client.Protocol(), "http/1.1");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(Asking("/livez")));
    EXPECT_THAT(client.ReceiveUntil("ok\n"), StartsWith("HTTP/1.1 200 OK"));
  }
  ASSERT_TRUE(client.Send(PostOf("/count", std::string(2000000, ' '))));
  EXPECT_THAT(client.ReceiveUntil("}}"), StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(client.Send(Asking("/livez") + Asking("/nowhere") +
                          "GET /livez HTTP/1.1\r\nHost: x\r\n"
                          "Connection: close\r\n\r\n"));
  const std::string all = client.ReceiveUntil("never");
  EXPECT_THAT(all, HasSubstr("HTTP/1.1 404 "));
  EXPECT_THAT(all, EndsWith("ok\n"));
  EXPECT_TRUE(client.EndedCleanly());
}

TEST_F(TlsTest, AStreamIsReadAsItIsMade) {
  TlsClient client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  for (const char* text : {"a", "b", "c"}) {
    held_.Text(0, text);
    const std::string event = Cat("\"content\":\"", text, "\"");
    EXPECT_THAT(client.ReceiveUntil(event), HasSubstr(event));
  }
  held_.End(0);
  EXPECT_THAT(client.ReceiveUntil("[DONE]"), HasSubstr("[DONE]"));
}

TEST_F(TlsTest, MegabytesComeWhole) {
  for (const char* path : {"/large", "/burst"}) {
    TlsClient client(port());
    ASSERT_TRUE(client.Send(Cat("GET ", path,
                                " HTTP/1.1\r\nHost: x\r\nConnection: close"
                                "\r\n\r\n")));
    EXPECT_GE(client.ReceiveUntil("never").size(), kLargeAnswer) << path;
    EXPECT_TRUE(client.EndedCleanly());
  }
}

TEST_F(TlsTest, AClientThatLeavesCancels) {
  HttpLimits limits;
  limits.half_closed_time = std::chrono::milliseconds(20);
  Restart(limits);
  size_t cancelled = 0;
  for (const bool orderly : {true, false}) {
    for (const char* fields : {"", "\"stream\":true"}) {
      TlsClient client(port());
      ASSERT_TRUE(client.Send(HeldOf(fields)));
      ASSERT_TRUE(held_.AwaitHeld(++cancelled));
      if (orderly) client.Shutdown();
      client.Reset();
      EXPECT_TRUE(held_.AwaitGone(cancelled)) << orderly << fields;
    }
  }
}

TEST_F(TlsTest, AQuietClientKeepsItsStreamBeyondAWritesTime) {
  HttpLimits limits;
  limits.write_time = std::chrono::milliseconds(200);
  limits.body_time = std::chrono::milliseconds(200);
  Restart(limits);
  TlsClient client(port());
  ASSERT_TRUE(client.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  const TimePoint end = Clock::now() + std::chrono::milliseconds(800);
  for (size_t i = 0; Clock::now() < end; ++i) {
    held_.Text(0, "a");
    ASSERT_THAT(client.ReceiveUntil("\"content\":\"a\""),
                HasSubstr("\"content\":\"a\""));
  }
  held_.End(0);
  EXPECT_THAT(client.ReceiveUntil("[DONE]"), HasSubstr("[DONE]"));
}

TEST_F(TlsTest, ALateBodyIsToldSo) {
  HttpLimits limits;
  limits.body_time = std::chrono::milliseconds(100);
  Restart(limits);
  TlsClient client(port());
  ASSERT_TRUE(client.Send(
      "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"));
  EXPECT_THAT(client.ReceiveUntil("}}"), HasSubstr("HTTP/1.1 408 "));
}

TEST_F(TlsTest, AHandshakeHasTheHeadersTime) {
  HttpLimits limits;
  limits.header_time = std::chrono::milliseconds(100);
  Restart(limits);
  Client silent(port());
  EXPECT_EQ(silent.ReceiveAll(), "");
  Client half(port());
  ASSERT_TRUE(half.Send("\x16\x03\x01"));
  EXPECT_EQ(half.ReceiveAll(), "");
  TlsClient spoken(port());
  ASSERT_TRUE(spoken.connected());
  EXPECT_EQ(spoken.ReceiveUntil("never"), "");
}

TEST_F(TlsTest, PlainHttpIsNotAnswered) {
  Client client(port());
  client.Send(Asking("/livez"));
  EXPECT_THAT(client.ReceiveAll(), Not(HasSubstr("HTTP/1.1 200")));
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  const TlsClient old(port(), TLS1_1_VERSION);
  EXPECT_FALSE(old.connected());
  EXPECT_THAT(old.error(), HasSubstr("alert protocol version"));
  EXPECT_TRUE(TlsClient(port(), TLS1_2_VERSION).connected());
}

TEST_F(TlsTest, ChangedFilesAreShownToNewConnections) {
  TlsClient before(port());
  ASSERT_TRUE(before.connected());
  MakeCertificate("second");
  Install("second", "second");
  EXPECT_TRUE(BecomesKnownAs("second"));
  ASSERT_TRUE(before.Send(Asking("/livez")));
  EXPECT_THAT(before.ReceiveUntil("ok\n"), EndsWith("ok\n"))
      << "a connection keeps what it began with";
  // A key that does not fit changes nothing, until its certificate comes.
  MakeCertificate("third");
  Put("third.key", "key.pem");
  EXPECT_TRUE(BecomesKnownAs("second"));
  Put("third.cert", "cert.pem");
  EXPECT_TRUE(BecomesKnownAs("third"));
}

TEST_F(TlsTest, FilesThatCannotBeUsedAreNamed) {
  HttpServerOptions options;
  options.listen = "127.0.0.1:0";
  options.tls = {Path("none.pem"), Path("key.pem")};
  EXPECT_THAT(Message(HttpServer::Start(options).status()),
              HasSubstr("none.pem: No such file"));
  options.tls = {Path("key.pem"), Path("key.pem")};
  EXPECT_THAT(Message(HttpServer::Start(options).status()),
              HasSubstr("TLS certificate"));
  MakeCertificate("second");
  options.tls = {Path("cert.pem"), Path("second.key")};
  EXPECT_THAT(Message(HttpServer::Start(options).status()),
              HasSubstr("second.key"));
}

}  // namespace
}  // namespace sluice::http
