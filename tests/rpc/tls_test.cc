// Both sides of a connection show a certificate that the other checks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/rpc/echo_service.h"

namespace sluice::rpc {
namespace {

using testing::Bytes;
using testing::EchoService;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::RecordingStream;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;

void AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// A key and its certificate, signed by `issuer` (itself if null).
struct Identity {
  Key key{EVP_EC_gen("P-256")};
  Certificate certificate{X509_new()};

  // `names`: alternative ones beside `hosts`. `seconds`: until the end of
  // validity.
  explicit Identity(const char* name, const Identity* issuer = nullptr,
                    const std::string& names = "", int seconds = 3600,
                    const std::string& hosts = "IP:127.0.0.1,DNS:localhost") {
    X509* x = certificate.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), issuer == nullptr ? 1 : 2);
    X509_gmtime_adj(X509_getm_notBefore(x), -7200);
    X509_gmtime_adj(X509_getm_notAfter(x), seconds);
    X509_set_pubkey(x, key.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1,
                               -1, 0);
    const Identity& signer = issuer == nullptr ? *this : *issuer;
    X509_set_issuer_name(x, X509_get_subject_name(signer.certificate.get()));
    AddExtension(x, signer.certificate.get(), NID_basic_constraints,
                 issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    AddExtension(x, signer.certificate.get(), NID_subject_alt_name,
                 (hosts + names).c_str());
    X509_sign(x, signer.key.get(), EVP_sha256());
  }
};

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Of one test: the process watches the files to its end.
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              Cat("sluice-tls-", getpid(), "-", test->name());
    std::filesystem::create_directories(folder_);
    const Identity other_ca("another authority");
    Write("ca", ca_);
    Write("other-ca", other_ca);
    Write("stage", Identity("stage", &ca_));
    Write("gateway", Identity("gateway", &ca_));
    Write("stranger", Identity("stranger", &other_ca));
    for (const char* role : {"gateway", "stage", "expert"}) {
      Write(Cat("a-", role), Identity(role, &ca_, RoleName(role)));
    }
    Write("expired", Identity("old", &ca_, RoleName("gateway"), -60));
    Write("rogue", Identity("rogue", &other_ca, RoleName("gateway")));
  }
  void TearDown() override {
    if (server_.server != nullptr) {
      service_.Drop();
      server_.server->Shutdown(std::chrono::system_clock::now());
    }
    std::filesystem::remove_all(folder_);
  }
  std::string Path(const std::string& name) const {
    return (folder_ / name).string();
  }
  void Write(const std::string& name, const Identity& identity) {
    FILE* cert = fopen(Path(name + ".pem").c_str(), "w");
    PEM_write_X509(cert, identity.certificate.get());
    fclose(cert);
    FILE* key = fopen(Path(name + ".key").c_str(), "w");
    PEM_write_PrivateKey(key, identity.key.get(), nullptr, nullptr, 0, nullptr,
                         nullptr);
    fclose(key);
  }
  TransportOptions Options(const std::string& who,
                           const std::string& ca) const {
    TransportOptions options;
    options.tls_cert = Path(who + ".pem");
    options.tls_key = Path(who + ".key");
    options.tls_ca = Path(ca + ".pem");
    return options;
  }
  static std::string RoleName(const std::string& role) {
    return Cat(",URI:", kRoleUri, role);
  }
  void Serve() { Serve(Options("stage", "ca")); }
  // With the rule that steps come from a gateway.
  void Serve(const TransportOptions& options) {
    auto server = Listen("127.0.0.1:0", options, &service_,
                         {{testing::kSteps, {"gateway"}}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // The status with which an exchange over `options` ends, whose client wants a
  // server of `role`.
  Status Exchange(const TransportOptions& options, std::string_view role = "") {
    auto channel = Connect(server_.address, options, role);
    if (!channel.ok()) return channel.status();
    auto stream = std::make_shared<RecordingStream>(*channel);
    stream->Open();
    stream->Send(Bytes("hello"));
    stream->HalfClose();
    EXPECT_TRUE(Eventually([&] { return !stream->ends().empty(); }));
    const Status end = stream->ends()[0];
    EXPECT_EQ(stream->messages().size(), end.ok() ? 1u : 0u);
    return end;
  }

  const Identity ca_{"our authority"};
  std::filesystem::path folder_;
  EchoService service_;
  ListeningServer server_;
};

TEST_F(TlsTest, PeersOfOneAuthoritySpeak) {
  Serve();
  const Status status = Exchange(Options("gateway", "ca"));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TlsTest, AClientOfAnotherAuthorityIsRefused) {
  Serve();
  EXPECT_EQ(Exchange(Options("stranger", "ca")).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(service_.received(), 0u);
}

TEST_F(TlsTest, AServerOfAnotherAuthorityIsRefused) {
  Serve();
  EXPECT_EQ(Exchange(Options("gateway", "other-ca")).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(service_.received(), 0u);
}

TEST_F(TlsTest, APlainTextClientIsRefused) {
  Serve();
  EXPECT_EQ(Exchange(TransportOptions()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(service_.received(), 0u);
}

TEST_F(TlsTest, AMissingFileIsNamed) {
  TransportOptions options = Options("stage", "ca");
  options.tls_key = Path("nowhere.key");
  const Status status = Listen("127.0.0.1:0", options, &service_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("nowhere.key"));
}

TEST_F(TlsTest, FilesThatAreNoCertificatesAreRefused) {
  TransportOptions options = Options("stage", "ca");
  options.tls_cert = options.tls_key;
  EXPECT_EQ(Listen("127.0.0.1:0", options, &service_).status().code(),
            StatusCode::kUnavailable);
}

TEST_F(TlsTest, ACallerOfAnotherRoleIsRefusedAndDisturbsNoStream) {
  Serve(Options("a-stage", "ca"));
  const auto channel = Connect(server_.address, Options("a-gateway", "ca"));
  ASSERT_TRUE(channel.ok()) << channel.status();
  auto stream = std::make_shared<RecordingStream>(*channel);
  stream->Open();
  stream->Send(Bytes("one"));
  ASSERT_TRUE(Eventually([&] { return stream->messages().size() == 1; }));
  for (const char* rogue : {"a-stage", "a-expert"}) {
    const Status status = Exchange(Options(rogue, "ca"));
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(Message(status), HasSubstr("is for a gateway"));
  }
  const Status nameless = Exchange(Options("gateway", "ca"));
  EXPECT_EQ(nameless.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(nameless), HasSubstr("names no role"));
  EXPECT_EQ(Exchange(Options("expired", "ca")).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(Exchange(Options("rogue", "ca")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Exchange(TransportOptions()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(service_.received(), 1u);
  stream->Send(Bytes("two"));
  EXPECT_TRUE(Eventually([&] { return stream->messages().size() == 2; }));
  stream->HalfClose();
  EXPECT_TRUE(Eventually([&] { return !stream->ends().empty(); }));
  EXPECT_TRUE(stream->ends()[0].ok()) << stream->ends()[0];
}

TEST_F(TlsTest, AMethodWithoutARuleIsForEveryPeer) {
  Serve(Options("a-stage", "ca"));
  const auto channel = Connect(server_.address, Options("a-expert", "ca"));
  ASSERT_TRUE(channel.ok()) << channel.status();
  auto stream =
      std::make_shared<RecordingStream>(*channel, "/sluice.v1.Stage/None");
  stream->Open();
  ASSERT_TRUE(Eventually([&] { return !stream->ends().empty(); }));
  EXPECT_EQ(stream->ends()[0].code(), StatusCode::kUnimplemented);
}

TEST_F(TlsTest, ARoleCountsWhereNoneIsRequired) {
  Serve();  // its own certificate names none
  EXPECT_TRUE(Exchange(Options("gateway", "ca")).ok());
  EXPECT_TRUE(Exchange(Options("a-gateway", "ca")).ok());
  EXPECT_EQ(Exchange(Options("a-expert", "ca")).code(),
            StatusCode::kPermissionDenied);
}

TEST_F(TlsTest, AModeGoesBeforeTheOwnCertificate) {
  TransportOptions options = Options("a-stage", "ca");
  options.roles = TlsRoles::kAllow;
  EXPECT_FALSE(*RequiresRoles(options));
  options = Options("stage", "ca");
  EXPECT_FALSE(*RequiresRoles(options));
  options.roles = TlsRoles::kRequire;
  EXPECT_TRUE(*RequiresRoles(options));
  Serve(options);
  EXPECT_EQ(Exchange(Options("gateway", "ca")).code(),
            StatusCode::kPermissionDenied);
}

TEST_F(TlsTest, RenewedFilesAreUsedWithoutARestart) {
  Write("mine", Identity("mine", &ca_, RoleName("stage")));
  Serve(Options("a-stage", "ca"));
  const TransportOptions mine = Options("mine", "ca");
  EXPECT_EQ(Exchange(mine).code(), StatusCode::kPermissionDenied);
  Write("mine", Identity("mine", &ca_, RoleName("gateway")));
  EXPECT_TRUE(Eventually([&] { return Exchange(mine).ok(); }));
}

TEST_F(TlsTest, AServerOfAnotherRoleGetsNoMessage) {
  Serve(Options("a-expert", "ca"));
  for (const TlsRoles roles :
       {TlsRoles::kAuto, TlsRoles::kRequire, TlsRoles::kAllow}) {
    TransportOptions options = Options("a-gateway", "ca");
    options.roles = roles;
    const Status status = Exchange(options, kStageRole);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  }
  // What a certificate names counts for a client without a role, too.
  EXPECT_EQ(Exchange(Options("gateway", "ca"), kStageRole).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(service_.received(), 0u);
  EXPECT_TRUE(Exchange(Options("a-gateway", "ca"), kExpertRole).ok());
  EXPECT_TRUE(Exchange(Options("a-gateway", "ca")).ok());
}

TEST_F(TlsTest, AServerWithoutARoleIsTakenWhereNoneIsRequired) {
  Serve();  // its certificate names none
  TransportOptions options = Options("a-gateway", "ca");
  EXPECT_EQ(Exchange(options, kStageRole).code(), StatusCode::kUnavailable);
  options.roles = TlsRoles::kAllow;
  EXPECT_TRUE(Exchange(options, kStageRole).ok());
  options = Options("gateway", "ca");
  EXPECT_TRUE(Exchange(options, kStageRole).ok());
  options.roles = TlsRoles::kRequire;
  EXPECT_EQ(Exchange(options, kStageRole).code(), StatusCode::kUnavailable);
}

TEST_F(TlsTest, AServerIsHeldToItsAddressBesideItsRole) {
  Write("elsewhere",
        Identity("elsewhere", &ca_, RoleName("stage"), 3600, "DNS:elsewhere"));
  Serve(Options("elsewhere", "ca"));
  EXPECT_EQ(Exchange(Options("a-gateway", "ca"), kStageRole).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(service_.received(), 0u);
}

TEST_F(TlsTest, AServersRenewedRoleCountsWithoutARestart) {
  Write("mine", Identity("mine", &ca_, RoleName("expert")));
  Serve(Options("mine", "ca"));
  const TransportOptions gateway = Options("a-gateway", "ca");
  EXPECT_EQ(Exchange(gateway, kStageRole).code(), StatusCode::kUnavailable);
  Write("mine", Identity("mine", &ca_, RoleName("stage")));
  EXPECT_TRUE(Eventually([&] { return Exchange(gateway, kStageRole).ok(); }));
  Write("mine", Identity("mine", &ca_, RoleName("gateway")));
  EXPECT_TRUE(Eventually([&] { return !Exchange(gateway, kStageRole).ok(); }));
}

TEST(PeerRolesTest, AServersRefusalNamesBothRoles) {
  const Status status = CheckServerRole(kStageRole, {"expert"}, false);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Message(status),
            "the server must be a stage; its certificate says expert");
  EXPECT_EQ(Message(CheckServerRole(kStageRole, {}, true)),
            "the server must be a stage; its certificate names no role");
  EXPECT_TRUE(CheckServerRole(kStageRole, {}, false).ok());
  EXPECT_TRUE(CheckServerRole(kStageRole, {"expert", "stage"}, true).ok());
}

}  // namespace
}  // namespace sluice::rpc
