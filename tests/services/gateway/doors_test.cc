#include "services/gateway/doors.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "common/base/cat.h"

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

// The status that refuses a request; 0 if it may go on.
int StatusOf(const GatewayOptions& options, const char* host,
             const char* origin) {
  const auto doors = Doors::Open(options);
  EXPECT_TRUE(doors.ok()) << doors.status();
  http::HttpRequest request = PageRequest(host, origin);
  const auto refused = (*doors)->Screen(request);
  return refused ? refused->status : 0;
}

TEST(DoorsTest, OnLoopbackWithoutKeysThisMachinesPagesComeIn) {
  GatewayOptions options = ListenOn("127.0.0.1:0");
  const char* const kPages[] = {"app://obsidian.md", "vscode-webview://a",
                                "http://localhost:3000", "file://"};
  for (const char* page : kPages) {
    EXPECT_EQ(StatusOf(options, "localhost:1", page), 0) << page;
  }
  EXPECT_EQ(StatusOf(options, "localhost:1", "null"), 403);
  EXPECT_EQ(StatusOf(options, "evil.example", "http://localhost:3000"), 421);
  GatewayOptions beyond = ListenOn("0.0.0.0:0");
  beyond.open = true;
  options.api_keys = "a:sk-0123456789";
  for (const char* page : kPages) {
    EXPECT_EQ(StatusOf(options, "localhost:1", page), 403) << page;
    EXPECT_EQ(StatusOf(beyond, "localhost:1", page), 403) << page;
  }
}

TEST(DoorsTest, AListenerBeyondLoopbackHasTheMachinesName) {
  char name[256] = "";
  ASSERT_EQ(::gethostname(name, sizeof(name) - 1), 0);
  GatewayOptions options = ListenOn("127.0.0.1:0");
  const bool is_localhost = std::string_view(name) == "localhost";
  EXPECT_EQ(StatusOf(options, name, ""), is_localhost ? 0 : 421);
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.1.2.3:0"}) {
    options = ListenOn(address);
    options.open = true;
    EXPECT_EQ(StatusOf(options, name, ""), 0) << name;
    EXPECT_EQ(StatusOf(options, Cat(name, ":80").c_str(), ""), 0) << name;
    EXPECT_EQ(StatusOf(options, Cat(name, ".evil.com").c_str(), ""), 421);
    EXPECT_EQ(StatusOf(options, "10.1.2.3:8000", ""), 0);
    EXPECT_EQ(StatusOf(options, "host.docker.internal", ""), 0);
  }
}

TEST(DoorsTest, ProxiesAreNamedIfTheyAreNoAddresses) {
  GatewayOptions options = ListenOn("127.0.0.1:0");
  options.trusted_proxies = {"10.0.0.0/8", "fd00::/8"};
  const auto doors = Doors::Open(options);
  ASSERT_TRUE(doors.ok()) << doors.status();
  EXPECT_EQ(
      (*doors)->proxies().ClientOf({{"forwarded", "for=1.2.3.4"}}, "10.0.0.1"),
      "1.2.3.4");
  options.trusted_proxies = {"10.0.0.0/8", "nginx"};
  EXPECT_THAT(Message(Doors::Open(options).status()),
              AllOf(HasSubstr("--trusted-proxies"), HasSubstr("'nginx'")));
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
