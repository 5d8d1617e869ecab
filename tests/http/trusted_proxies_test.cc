#include "common/http/trusted_proxies.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::http {
namespace {

using ::testing::HasSubstr;

TrustedProxies Trusting(const std::vector<std::string>& networks) {
  auto proxies = TrustedProxies::Parse(networks);
  EXPECT_TRUE(proxies.ok()) << proxies.status();
  return *std::move(proxies);
}

class TrustedProxiesTest : public ::testing::Test {
 protected:
  std::string Client(HttpHeaders headers, std::string_view peer = "10.0.0.1") {
    return proxies_.ClientOf(headers, peer);
  }
  std::string Forwarded(std::string value) {
    return Client({{"forwarded", std::move(value)}});
  }
  std::string ForwardedFor(std::string value) {
    return Client({{"x-forwarded-for", std::move(value)}});
  }

  const TrustedProxies proxies_ = Trusting({"10.0.0.0/8", "fd00::/8"});
};

TEST_F(TrustedProxiesTest, WithoutProxiesThePeerIsTheClient) {
  const HttpHeaders headers = {{"x-forwarded-for", "1.2.3.4"},
                               {"forwarded", "for=1.2.3.4"}};
  EXPECT_EQ(TrustedProxies().ClientOf(headers, "10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(Client(headers, "11.0.0.1"), "11.0.0.1") << "it is not trusted";
  EXPECT_EQ(Client(headers, "unknown"), "unknown");
  EXPECT_EQ(Client({}), "10.0.0.1");
  EXPECT_EQ(Client(headers, "::ffff:10.0.0.1"), "1.2.3.4");
  EXPECT_EQ(Client(headers, "fd00::1%eth0"), "1.2.3.4");
}

TEST_F(TrustedProxiesTest, TheRightmostThatIsNoProxyIsTheClient) {
  EXPECT_EQ(ForwardedFor("1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(ForwardedFor("9.9.9.9, 1.2.3.4 , 10.0.0.2"), "1.2.3.4");
  EXPECT_EQ(ForwardedFor("junk, 1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(ForwardedFor("1.2.3.4:5678"), "1.2.3.4") << "some write the port";
  EXPECT_EQ(ForwardedFor("2001:db8::1"), "2001:db8::1");
  EXPECT_EQ(ForwardedFor("[2001:DB8::1]:443, fd00::2"), "2001:db8::1");
  EXPECT_EQ(ForwardedFor("::ffff:1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(ForwardedFor("10.0.0.3, 10.0.0.2"), "10.0.0.3") << "all are";
  EXPECT_EQ(ForwardedFor(",1.2.3.4, ,"), "1.2.3.4");
  EXPECT_EQ(Client({{"x-forwarded-for", "9.9.9.9"},
                    {"accept", "*/*"},
                    {"x-forwarded-for", "1.2.3.4, 10.0.0.2"}}),
            "1.2.3.4");
}

TEST_F(TrustedProxiesTest, ForwardedIsReadAsItsStandardSays) {
  EXPECT_EQ(Forwarded("for=1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(Forwarded("For=\"1.2.3.4:80\"; proto=https ;by=10.0.0.1"),
            "1.2.3.4");
  EXPECT_EQ(Forwarded("for=9.9.9.9, for=1.2.3.4;host=\"a,b;c\", for=10.0.0.2"),
            "1.2.3.4");
  EXPECT_EQ(Forwarded("for=\"[2001:db8::1]:4711\""), "2001:db8::1");
  EXPECT_EQ(Forwarded("for=\"[2001:db8::1]\""), "2001:db8::1");
  EXPECT_EQ(Forwarded("for=\"1.2.3.4:_port\""), "1.2.3.4");
  EXPECT_EQ(Forwarded("for=\"\\1.2.3.4\""), "1.2.3.4");
  EXPECT_EQ(Forwarded("for=_hidden, for=1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(Forwarded(";for=1.2.3.4;, ,"), "1.2.3.4");
  // The client's own line ends nowhere; the proxy's is another one.
  EXPECT_EQ(Client({{"forwarded", "for=\""}, {"forwarded", "for=1.2.3.4"}}),
            "1.2.3.4");
}

TEST_F(TrustedProxiesTest, WhatIsHiddenOrMalformedLeavesThePeer) {
  for (const char* value : {"",
                            "for",
                            "for=",
                            "for=unknown",
                            "for=_hidden",
                            "for=1.2.3.4:80",
                            "for=2001:db8::1",
                            "for=\"2001:db8::1\"",
                            "for=\"1.2.3.4",
                            "for=\"\\",
                            "for=1.2.3.4 x",
                            "for=1.2.3.4;for=5.6.7.8",
                            "for =1.2.3.4",
                            "for=1.2.3.256",
                            "by=1.2.3.4",
                            "for=\"[::1\"",
                            "for=\"1.2.3.4:99999\"",
                            "for=1.2.3.4, for=\"",
                            "for=\", for=1.2.3.4",
                            "for=1.2.3.4, ;",
                            ",",
                            "for=localhost",
                            "for=016.2.3.4",
                            "=1.2.3.4",
                            "for=1.2.3.4 5.6.7.8"}) {
    EXPECT_EQ(Forwarded(value), "10.0.0.1") << value;
  }
  for (const char* value :
       {"", ",", "unknown", "_hidden", "1.2.3", "1.2.3.4, x", "1.2.3.4 5.6.7.8",
        "\"1.2.3.4\"", "1.2.3.4/8", "fe80::1%eth0", "[::1", "1.2.3.4:x"}) {
    EXPECT_EQ(ForwardedFor(value), "10.0.0.1") << value;
  }
}

TEST_F(TrustedProxiesTest, HeadersThatDifferLeaveThePeer) {
  const auto both = [this](const char* forwarded, const char* xff) {
    return Client({{"forwarded", forwarded}, {"x-forwarded-for", xff}});
  };
  EXPECT_EQ(both("for=1.2.3.4", "1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(both("for=9.9.9.9", "1.2.3.4"), "10.0.0.1");
  EXPECT_EQ(both("for=_x", "1.2.3.4"), "10.0.0.1");
}

TEST(TrustedProxiesParseTest, NetworksAreOfEitherFamily) {
  const auto trusts = [](const char* network, const char* address) {
    return Trusting({network}).ClientOf({{"x-forwarded-for", "1.2.3.4"}},
                                        address) == "1.2.3.4";
  };
  EXPECT_TRUE(trusts("127.0.0.1", "127.0.0.1"));
  EXPECT_FALSE(trusts("127.0.0.1", "127.0.0.2"));
  EXPECT_TRUE(trusts("192.168.5.7/20", "192.168.15.255"));
  EXPECT_FALSE(trusts("192.168.0.0/20", "192.168.16.0"));
  EXPECT_TRUE(trusts("0.0.0.0/0", "8.8.8.8"));
  EXPECT_FALSE(trusts("0.0.0.0/0", "2001:db8::1"));
  EXPECT_TRUE(trusts("::/0", "2001:db8::1"));
  EXPECT_FALSE(trusts("::/0", "8.8.8.8"));
  EXPECT_TRUE(trusts("2001:db8::/33", "2001:db8:7fff::"));
  EXPECT_FALSE(trusts("2001:db8::/33", "2001:db8:8000::"));
  EXPECT_TRUE(trusts("::ffff:10.0.0.0/104", "10.9.9.9"));
  EXPECT_TRUE(trusts("::1/128", "::1"));
}

TEST(TrustedProxiesParseTest, OtherTextIsNamed) {
  for (const char* bad :
       {"", "localhost", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1",
        "10.0.0.0/x", "10.0.0.0/8x", "::/129", "10.0.0.0/8/8", "10.0.0/8",
        "[::1]", "1.2.3.4:80", "unix", " 10.0.0.1", "/8"}) {
    const auto proxies = TrustedProxies::Parse({"127.0.0.1", bad});
    ASSERT_FALSE(proxies.ok()) << bad;
    EXPECT_THAT(Message(proxies.status()), HasSubstr(bad));
  }
}

}  // namespace
}  // namespace sluice::http
