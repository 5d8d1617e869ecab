#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status.h"
#include "common/rpc/transport_options.h"

namespace sluice::rpc {
namespace {

using ::testing::HasSubstr;

TEST(TransportOptionsTest, AddressesAreTakenApart) {
  const auto v4 = ParseAddress("10.0.0.1:7001");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "10.0.0.1");
  EXPECT_EQ(v4->port, 7001);
  const auto v6 = ParseAddress("[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_TRUE(ParseAddress("unix:/run/stage.sock").ok());
}

TEST(TransportOptionsTest, BadAddressesAreRefusedWithTheirText) {
  for (const char* bad :
       {"", "host", "host:", ":7001", "host:70000", "host:-1", "host:7x",
        "::1:7001", "unix:", "[]:1", "unix:/a%20b", "unix:/a?b", "unix:/a#b"}) {
    const Status status = ParseAddress(bad).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(Message(status), HasSubstr(bad));
  }
}

TEST(TransportOptionsTest, APathThatTheSystemDoesNotTakeIsRefusedWithBoth) {
  const std::string longest = "unix:/" + std::string(106, 'x');
  EXPECT_TRUE(ParseAddress(longest).ok());
  EXPECT_EQ(SocketPath(longest).size(), kMaxSocketPath);
  EXPECT_THAT(Message(ParseAddress(longest + "x").status()),
              HasSubstr("the path has 108 bytes, limit 107"));
  EXPECT_EQ(SocketPath("unix:///run/a"), "/run/a");
  EXPECT_EQ(SocketPath("unix:a"), "a");
  EXPECT_EQ(SocketPath("127.0.0.1:1"), "");
}

TEST(TransportOptionsTest, OnlyThisMachineIsLoopback) {
  for (const char* local : {"localhost:1", "127.0.0.1:1", "127.9.9.9:1",
                            "[::1]:1", "unix:/tmp/x"}) {
    EXPECT_TRUE(IsLoopback(*ParseAddress(local))) << local;
    EXPECT_TRUE(CheckAddress(local, {}).ok()) << local;
  }
  for (const char* remote : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "stage-0:1",
                             "127.example.com:1"}) {
    EXPECT_FALSE(IsLoopback(*ParseAddress(remote))) << remote;
  }
}

TEST(TransportOptionsTest, BeyondLoopbackNeedsTlsOrInsecure) {
  TransportOptions options;
  const Status refused = CheckAddress("0.0.0.0:7001", options);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), HasSubstr("0.0.0.0:7001"));
  EXPECT_THAT(Message(refused), HasSubstr("--tls-cert"));
  EXPECT_THAT(Message(refused), HasSubstr("--insecure"));
  options.insecure = true;
  EXPECT_TRUE(CheckAddress("0.0.0.0:7001", options).ok());
  options.insecure = false;
  options.tls_cert = "c";
  options.tls_key = "k";
  options.tls_ca = "a";
  EXPECT_TRUE(CheckAddress("0.0.0.0:7001", options).ok());
  options.insecure = true;
  EXPECT_THAT(Message(CheckAddress("0.0.0.0:7001", options)),
              HasSubstr("contradicts"));
}

TEST(TransportOptionsTest, HalfASetOfTlsFilesIsRefused) {
  TransportOptions options;
  options.tls_ca = "ca.pem";
  EXPECT_THAT(Message(Validate(options)), HasSubstr("belong together"));
}

TEST(TransportOptionsTest, TimeoutsAndLimitsOutOfRangeAreRefused) {
  TransportOptions options;
  options.peer_timeout = std::chrono::milliseconds(99);
  EXPECT_THAT(Message(Validate(options)), HasSubstr("0.099"));
  options.peer_timeout = std::chrono::hours(2);
  EXPECT_FALSE(Validate(options).ok());
  options = TransportOptions();
  options.max_message_bytes = int64_t{1} << 31;
  EXPECT_FALSE(Validate(options).ok());
}

TEST(RpcStatusTest, EveryCodeKeepsItsNumberBothWays) {
  for (int code = 0; code <= 16; ++code) {
    const Status status =
        MakeStatus(static_cast<StatusCode>(code), code == 0 ? "" : "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
}

TEST(RpcStatusTest, DetailsTravelBesideTheMessageUpToALimit) {
  const std::string bytes("\x08\x02\0\xff", 4);
  const Status held = WithDetails(FailedPrecondition("held"), bytes);
  EXPECT_EQ(DetailsOf(FromGrpc(ToGrpc(held))), bytes);
  EXPECT_EQ(Message(FromGrpc(ToGrpc(held))), "held");
  EXPECT_EQ(DetailsOf(FromGrpc(ToGrpc(FailedPrecondition("held")))), "");
  EXPECT_EQ(DetailsOf(WithDetails(OkStatus(), bytes)), "");
  const std::string large(1025, 'x');
  EXPECT_EQ(ToGrpc(WithDetails(Internal("x"), large)).error_details(), "");
  const grpc::Status peer(grpc::StatusCode::INTERNAL, "x", large);
  EXPECT_EQ(DetailsOf(FromGrpc(peer)), "");
}

TEST(RpcStatusTest, LongMessagesAreCutAndUnknownCodesAreUnknown) {
  const Status longest = Internal(std::string(10000, 'x'));
  EXPECT_EQ(ToGrpc(longest).error_message().size(), 4096u);
  const grpc::Status odd(grpc::StatusCode::DO_NOT_USE, "odd");
  EXPECT_EQ(FromGrpc(odd).code(), StatusCode::kUnknown);
}

}  // namespace
}  // namespace sluice::rpc
