#include "services/gateway/doors.h"

#include <gmock/gmock.h>

#include <string>

namespace sluice::gateway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

GatewayOptions ListenOn(const std::string& address) {
  GatewayOptions options;
  options.listen = address;
  return options;
}

http::HttpRequest PageRequest(const char* host, const char* origin) {
  http::HttpRequest request;
  request.method = "GET";
  request.path = "/v1/models";
  request.peer = "127.0.0.1";
  request.headers = {{"host", host}, {"origin", origin}};
  return request;
}

TEST(DoorsTest, LoopbackNeedsNoKeys) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0", "localhost:0"}) {
    const auto doors = Doors::Open(ListenOn(address));
    EXPECT_TRUE(doors.ok()) << doors.status();
  }
}

TEST(DoorsTest, BeyondLoopbackNeedsKeysOrTheirAbsenceSaid) {
  for (const char* address : {"0.0.0.0:8000", "[::]:8000", "10.1.2.3:0"}) {
    GatewayOptions options = ListenOn(address);
    const auto refused = Doors::Open(options);
    ASSERT_FALSE(refused.ok()) << address;
    EXPECT_THAT(Message(refused.status()),
                AllOf(HasSubstr(address), HasSubstr("--api-key-file"),
                      HasSubstr("SLUICE_API_KEYS"), HasSubstr("--open")));
    options.open = true;
    EXPECT_TRUE(Doors::Open(options).ok());
    options.open = false;
    options.api_keys = "a:sk-0123456789";
    EXPECT_TRUE(Doors::Open(options).ok());
  }
}

TEST(DoorsTest, WhatContradictsItselfIsRefused) {
  GatewayOptions options = ListenOn("127.0.0.1:0");
  options.http_tls.certificate = "cert.pem";
  EXPECT_THAT(Message(Doors::Open(options).status()),
              HasSubstr("--http-tls-key"));
  options.http_tls = {};
  options.api_keys = "a:sk-0123456789";
  options.api_key_file = "keys";
  EXPECT_THAT(Message(Doors::Open(options).status()), HasSubstr("take one"));
  EXPECT_FALSE(Doors::Open(ListenOn("nowhere")).ok());
}

TEST(DoorsTest, PagesOfOthersAreRefusedByDefault) {
  const auto doors = Doors::Open(ListenOn("127.0.0.1:0"));
  ASSERT_TRUE(doors.ok()) << doors.status();
  const auto status = [&](const char* host, const char* origin) {
    http::HttpRequest request = PageRequest(host, origin);
    const auto refused = (*doors)->Screen(request);
    return refused ? refused->status : 0;
  };
  EXPECT_EQ(status("127.0.0.1:8000", "http://127.0.0.1:8000"), 0);
  EXPECT_EQ(status("127.0.0.1:8000", "https://evil.example"), 403);
  EXPECT_EQ(status("evil.example", "http://evil.example"), 421);
}

TEST(DoorsTest, WithKeysAnyNameIsOurs) {
  GatewayOptions options = ListenOn("127.0.0.1:0");
  options.api_keys = "a:sk-0123456789";
  const auto doors = Doors::Open(options);
  ASSERT_TRUE(doors.ok()) << doors.status();
  http::HttpRequest request = PageRequest("llm.example", "https://llm.example");
  auto refused = (*doors)->Screen(request);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 401) << "the key is what is missing";
  request = PageRequest("llm.example", "https://evil.example");
  request.headers.emplace_back("x-api-key", "sk-0123456789");
  refused = (*doors)->Screen(request);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 403);
}

}  // namespace
}  // namespace sluice::gateway
