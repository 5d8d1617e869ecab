#include "common/standby/peer_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/standby/forwarded_message.h"

namespace sluice::standby {
namespace {

using http::HttpRequest;
using http::ParseTarget;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "of-these-gateways-alone";

HttpRequest FromClient() {
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/a b";
  request.query = "x=1";
  request.peer = "10.0.0.7";
  request.request_id = "one";
  request.headers = {{"x-forwarded-for", "192.0.2.1"},
                     {"x-sluice-peer", "of the client"}};
  return request;
}

// The request as the next server reads it.
HttpRequest Passed(const HttpRequest& request, const PeerSecret* secret) {
  const std::string head = ForwardedHead(request, {}, secret);
  HttpRequest passed;
  passed.peer = "10.0.0.1";
  size_t begin = head.find("\r\n") + 2;
  const size_t target = head.find(' ') + 1;
  passed.method = head.substr(0, target - 1);
  EXPECT_TRUE(ParseTarget(head.substr(target, head.find(' ', target) - target),
                          passed));
  while (head.compare(begin, 2, "\r\n") != 0) {
    const size_t colon = head.find(": ", begin), end = head.find("\r\n", begin);
    passed.headers.emplace_back(head.substr(begin, colon - begin),
                                head.substr(colon + 2, end - colon - 2));
    begin = end + 2;
  }
  passed.request_id = passed.Header("x-request-id");
  return passed;
}

TEST(PeerSecretTest, AServerWithTheSecretIsBelievedItsClient) {
  const PeerSecret secret(kSecret);
  for (const char* method : {"POST", "HEAD"}) {
    HttpRequest sent = FromClient();
    sent.method = method;
    HttpRequest passed = Passed(sent, &secret);
    EXPECT_TRUE(secret.Accept(passed)) << method;
    EXPECT_EQ(passed.peer, "10.0.0.7");
  }
  HttpRequest sent = FromClient();
  sent.peer = "fe80::1%eth0";
  HttpRequest passed = Passed(sent, &secret);
  EXPECT_TRUE(secret.Accept(passed));
  EXPECT_EQ(passed.peer, "10.0.0.1") << "no address beyond its link";
}

TEST(PeerSecretTest, NobodyElseIs) {
  const PeerSecret secret(kSecret), other("another-secret-than-that");
  HttpRequest passed = Passed(FromClient(), nullptr);
  EXPECT_FALSE(secret.Accept(passed));
  passed = Passed(FromClient(), &other);
  EXPECT_FALSE(secret.Accept(passed));
  const HttpRequest good = Passed(FromClient(), &secret);
  const auto refused = [&](auto change) {
    HttpRequest changed = good;
    change(changed);
    EXPECT_FALSE(secret.Accept(changed));
    EXPECT_EQ(changed.peer, "10.0.0.1");
  };
  refused([](HttpRequest& one) { one.method = "GET"; });
  refused([](HttpRequest& one) { one.path = "/peer/streams"; });
  refused([](HttpRequest& one) { one.query = ""; });
  refused([](HttpRequest& one) { one.request_id = "two"; });
  for (const char* name :
       {"x-forwarded-for", "x-sluice-peer", "x-sluice-forwarded"}) {
    refused([name](HttpRequest& one) {
      for (auto& header : one.headers) {
        if (header.first == name) header.second = "10.0.0.9";
        if (header.first == name && header.first == kForwardedHeader) {
          header.second = "";
        }
      }
    });
  }
}

TEST(PeerSecretTest, AFileThatIsNoSecretIsRefusedByName) {
  const std::string path = Cat(::testing::TempDir(), "secret-", ::getpid());
  const auto read = [&path](const std::string& text, mode_t mode = 0600) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    const Status status = PeerSecret::Read(path).status();
    std::filesystem::remove(path);
    return status.ok() ? "good" : Message(status);
  };
  EXPECT_EQ(read(kSecret), "good");
  EXPECT_EQ(read(Cat(kSecret, "\n")), "good");
  EXPECT_THAT(read(Cat(kSecret, "\n"), 0644),
              AllOf(HasSubstr(path), HasSubstr("everybody may read")));
  for (const std::string& text :
       {std::string(), std::string("short"), std::string(513, 'x'),
        Cat(kSecret, "\nmore"), Cat(kSecret, " with spaces")}) {
    EXPECT_THAT(read(text), AllOf(HasSubstr(path), Not(HasSubstr(kSecret))));
  }
  EXPECT_THAT(Message(PeerSecret::Read(path).status()),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace sluice::standby
