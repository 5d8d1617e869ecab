// A server that passes requests on to another one, over real sockets.
#include "common/standby/forwarder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/http/sse.h"
#include "common/standby/feed_record.h"
#include "common/standby/forwarded_message.h"
#include "tests/http/fake_exchange.h"
#include "tests/http/server_fixture.h"

namespace sluice::standby {
namespace {

using http::AwaitThat;
using http::Client;
using http::Exchange;
using http::FakeExchange;
using http::Gone;
using http::HeldOf;
using http::HttpRequest;
using http::HttpResponse;
using http::HttpServer;
using http::HttpServerOptions;
using http::HttpServerTest;
using http::PostOf;
using http::Router;
using http::SseEvent;
using http::SseHead;
using http::TransportError;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The fixture's server leads, `standby_` passes requests on to it.
class ForwarderTest : public HttpServerTest {
 protected:
  void SetUp() override {
    more_routes_ = [this](Router& router) {
      router.Add("GET", "/readyz", [this](std::shared_ptr<Exchange> on) {
        if (silent_) return;  // as a process that stands still
        on->Send({200, "text/plain", {}, peer_leads_ ? "leader" : "standby"});
      });
      router.Add("GET", "/events", [](std::shared_ptr<Exchange> on) {
        on->BeginStream(SseHead());
        on->SendChunk(Cat("id: r-1\ndata: behind ",
                          on->request().Header("last-event-id"), "\n\n"));
        on->SendChunk("id: r-2\ndata: two\n\n");
        if (on->request().query != "breaks") return;
        if (!on->request().Header("last-event-id").empty()) return;
        on->PostAfter(std::chrono::milliseconds(20), [on] { on->Break(); });
      });
      router.Add("GET", "/feed", [this](std::shared_ptr<Exchange> on) {
        ++feeds_;
        feed_is_proved_ = PeerSecret(kSecret).Accept(on->request());
        on->OnGone([this](Gone) { feed_ended_ = true; });
        on->BeginStream({});
        const std::string bytes =
            FeedRecord("first") + FeedRecord(std::string(100000, 'x'));
        on->SendChunk(bytes.substr(0, 7));
        on->SendChunk(bytes.substr(7));
      });
      router.Add("GET", "/dies", [this](std::shared_ptr<Exchange> on) {
        const int before = deaths_++;
        if (on->request().query == "once" && before > 0) {
          return on->Send({200, "text/plain", {}, "at the second try"});
        }
        on->PostAfter(std::chrono::milliseconds(500), [on] { on->Break(); });
      });
      router.Add("POST", "/echo", [this](std::shared_ptr<Exchange> on) {
        if (declines_) {
          HttpResponse declined = TransportError(503, "not now");
          declined.headers.emplace_back(kDeclinedHeader, "1");
          return on->Send(std::move(declined));
        }
        HttpResponse response;
        response.status = 429;
        response.headers = {{"Retry-After", "7"}};
        for (const auto& [name, value] : on->request().headers) {
          response.body += Cat(name, "=", value, ";");
        }
        response.body += on->request().query + ";" + on->request().body;
        on->Send(std::move(response));
      });
    };
    HttpServerTest::SetUp();
    StartStandby();
  }
  void StartStandby() {
    ForwarderOptions options;
    options.peers = names_;
    options.peers.push_back(Cat(leader_name_, ":", port()));
    options.look_up = look_up_;
    options.secret = PeerSecret(kSecret);
    options.feed_path = feed_path_;
    options.on_feed = [this](const std::string& record) {
      MutexLock lock(mutex_);
      records_.push_back(record);
    };
    options.certificate = certificate_;
    options.ca = ca_;
    options.patience = patience_;
    options.most_at_once = most_at_once_;
    options.leads = [this] { return leads_.load(); };
    options.rank = [](const std::string& body) {
      return uint64_t{body == "leader"};
    };
    options.serve = [](std::shared_ptr<Exchange> on) {
      const std::string_view id = on->request().Header("last-event-id");
      if (id.empty()) return on->Send({200, "text/plain", {}, "served here"});
      on->BeginStream(SseHead());
      on->SendChunk(SseEvent(Cat("served here behind ", id)));
      on->EndStream();
    };
    auto forwarder = Forwarder::Start(std::move(options));
    ASSERT_TRUE(forwarder.ok()) << forwarder.status();
    forwarder_ = std::move(*forwarder);
    HttpServerOptions server;
    server.listen = "127.0.0.1:0";
    server.handler = [this](std::shared_ptr<Exchange> on) {
      forwarder_->Take(std::move(on));
    };
    auto started = HttpServer::Start(std::move(server));
    ASSERT_TRUE(started.ok()) << started.status();
    standby_ = std::move(*started);
  }
  void TearDown() override {
    held_.EndAll();
    forwarder_->Stop();
    standby_.reset();
    HttpServerTest::TearDown();
  }
  // Before a round has found the leader, one that is under way still may.
  void LoseTheLeader() {
    ASSERT_TRUE(AwaitThat([&] { return forwarder_->leader().has_value(); }));
    peer_leads_ = false;
    ASSERT_TRUE(AwaitThat([&] { return !forwarder_->leader().has_value(); }));
  }
  std::string AskStandby(std::string_view request) const {
    Client client(standby_->port());
    client.Send(request);
    return client.ReceiveAnswer();
  }

  static constexpr char kSecret[] = "of-these-servers-alone";

  Mutex mutex_;
  std::vector<std::string> records_ ABSL_GUARDED_BY(mutex_);
  std::string feed_path_;
  std::atomic<int> feeds_{0};
  std::atomic<bool> feed_is_proved_{false}, feed_ended_{false};
  std::atomic<bool> leads_{false};      // the standby
  std::atomic<bool> peer_leads_{true};  // the fixture's server
  std::atomic<bool> silent_{false}, declines_{false};
  std::atomic<int> deaths_{0};
  int most_at_once_ = 0;
  Duration patience_ = std::chrono::seconds(10);
  std::vector<std::string> names_;  // of peers before the fixture's server
  std::string leader_name_ = "127.0.0.1";
  std::function<StatusOr<std::vector<std::string>>(const std::string&)>
      look_up_;
  std::string certificate_, ca_;
  std::unique_ptr<Forwarder> forwarder_;
  std::unique_ptr<HttpServer> standby_;
};

class ImpatientForwarderTest : public ForwarderTest {
 protected:
  ImpatientForwarderTest() { patience_ = std::chrono::milliseconds(300); }
};

TEST_F(ForwarderTest, ARequestAndItsAnswerPassThrough) {
  const std::string answer = AskStandby(
      PostOf("/echo?x=1", "the body", "X-Mine: yes\r\nTE: trailers\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 429 "));
  EXPECT_THAT(answer, HasSubstr("retry-after: 7\r\n"));
  EXPECT_THAT(answer, AllOf(HasSubstr("x-mine=yes;"), HasSubstr("host=x;"),
                            HasSubstr("x-forwarded-for=127.0.0.1;"),
                            HasSubstr("x-sluice-forwarded=1;"),
                            EndsWith(";x=1;the body")));
  EXPECT_EQ(answer.find("trailers"), std::string::npos);
  EXPECT_THAT(AskStandby(PostOf("/count", std::string(300'000, 'x'))),
              HasSubstr("{\"count\":300000"));
  EXPECT_THAT(AskStandby("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
  EXPECT_EQ(forwarder_->stats().forwarded, 3u);
  EXPECT_EQ(forwarder_->leader(), Cat("127.0.0.1:", port()));
}

TEST_F(ForwarderTest, AStreamPassesPieceByPiece) {
  Client client(standby_->port());
  client.Send(HeldOf("\"stream\":true"));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Start(0);
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"),
              HasSubstr("Content-Type: text/event-stream"));
  for (const char* word : {"one", "two", "three"}) {
    held_.Text(0, word);
    EXPECT_THAT(client.ReceiveUntil("\n\n"), HasSubstr(word));
  }
  held_.End(0);
  EXPECT_THAT(client.ReceiveUntil("0\r\n\r\n"), HasSubstr("data: [DONE]"));
  EXPECT_EQ(forwarder_->stats().broken, 0u);
}

TEST_F(ForwarderTest, AClientThatLeavesIsGoneForTheLeaderToo) {
  auto client = std::make_unique<Client>(standby_->port());
  client->Send(HeldOf("\"stream\":true"));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Start(0);
  client->ReceiveUntil("\r\n\r\n");
  client->Reset();
  EXPECT_TRUE(held_.AwaitGone(1));
  EXPECT_TRUE(AwaitThat([&] { return forwarder_->stats().waiting == 0; }));
}

TEST_F(ForwarderTest, ALargeAnswerWaitsForItsReader) {
  Client client(standby_->port(), /*receive_buffer=*/16 << 10);
  client.Send("GET /burst HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(AwaitThat([&] { return forwarder_->stats().forwarded == 1; }));
  // The client reads nothing, and the leader's answer is much larger.
  ASSERT_TRUE(AwaitThat([&] { return standby_->stats().backlog_bytes > 0; }));
  size_t received = 0;
  long long most = 0;
  while (received < kLargeAnswer) {
    most = std::max<long long>(most, standby_->stats().backlog_bytes);
    const size_t more = client.Receive().size();
    ASSERT_GT(more, 0u);
    received += more;
  }
  EXPECT_LT(most, 1 << 20);
}

TEST_F(ForwarderTest, ARequestWithoutAnAnswerIsServedHereWhenThisServerLeads) {
  Client client(standby_->port());
  client.Send(HeldOf(""));
  ASSERT_TRUE(held_.AwaitHeld(1));
  silent_ = true;  // it takes requests and answers none
  leads_ = true;
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("served here"));
  EXPECT_TRUE(held_.AwaitGone(1));
  EXPECT_EQ(forwarder_->leader(), std::nullopt);
}

TEST_F(ForwarderTest, AStreamThatBreaksOffEndsWithAnError) {
  Client client(standby_->port());
  client.Send(HeldOf("\"stream\":true"));
  ASSERT_TRUE(held_.AwaitHeld(1));
  held_.Text(0, "one");
  client.ReceiveUntil("one\"}\n\n");
  leads_ = true;
  const std::string rest = client.ReceiveUntil("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("data: {\"error\":"));
  EXPECT_THAT(rest, HasSubstr("\"code\":\"no_leader\""));
  EXPECT_EQ(forwarder_->stats().broken, 1u);
}

TEST_F(ForwarderTest, AStreamWithIdsGoesOnHereBehindItsLastEvent) {
  Client client(standby_->port());
  client.Send("GET /events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: r-0\r\n\r\n");
  EXPECT_THAT(client.ReceiveUntil("two\n\n"),
              AllOf(HasSubstr("text/event-stream"), HasSubstr("behind r-0")));
  leads_ = true;
  const std::string rest = client.ReceiveUntil("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("served here behind r-2\n\n"));
  EXPECT_EQ(rest.find("HTTP/1.1"), std::string::npos);
  EXPECT_EQ(rest.find("error"), std::string::npos);
  EXPECT_EQ(forwarder_->stats().resumed, 1u);
  EXPECT_EQ(forwarder_->stats().broken, 0u);
}

TEST_F(ForwarderTest, AStreamWithIdsThatBreaksOffIsAskedForAgain) {
  Client client(standby_->port());
  client.Send("GET /events?breaks HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReceiveUntil("two\n\n"), HasSubstr("behind \n"));
  EXPECT_THAT(client.ReceiveUntil("two\n\n"), HasSubstr("behind r-2\n"));
  EXPECT_EQ(forwarder_->stats().resumed, 1u);
}

TEST_F(ForwarderTest, ARequestWaitsForALeader) {
  ASSERT_NO_FATAL_FAILURE(LoseTheLeader());
  Client client(standby_->port());
  client.Send(PostOf("/echo", "late"));
  EXPECT_FALSE(client.Readable(std::chrono::milliseconds(200)));
  peer_leads_ = true;
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith(";;late"));
}

TEST_F(ImpatientForwarderTest, TheWaitBeginsAnewWhenALeaderIsLost) {
  EXPECT_THAT(AskStandby("GET /dies?once HTTP/1.1\r\nHost: x\r\n\r\n"),
              EndsWith("at the second try"));
}

class NarrowForwarderTest : public ForwarderTest {
 protected:
  NarrowForwarderTest() { most_at_once_ = 1; }
};

TEST_F(NarrowForwarderTest, RequestsBeyondTheRoomWait) {
  Client first(standby_->port());
  first.Send(HeldOf("\"stream\":true"));
  ASSERT_TRUE(held_.AwaitHeld(1));
  Client second(standby_->port());
  second.Send(PostOf("/echo", "later"));
  EXPECT_FALSE(second.Readable(std::chrono::milliseconds(300)));
  held_.Start(0);
  held_.End(0);
  first.ReceiveUntil("0\r\n\r\n");
  EXPECT_THAT(second.ReceiveAnswer(), EndsWith(";;later"));
}

TEST_F(ImpatientForwarderTest, WithoutALeaderARequestIsRefusedInTime) {
  ASSERT_NO_FATAL_FAILURE(LoseTheLeader());
  EXPECT_THAT(
      AskStandby(PostOf("/echo", "")),
      AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Retry-After: 1\r\n"),
            HasSubstr("No gateway leads at the moment")));
}

TEST_F(ImpatientForwarderTest, ADeclinedRequestIsNotPassedOnInACircle) {
  declines_ = true;
  ASSERT_TRUE(AwaitThat([&] { return forwarder_->leader().has_value(); }));
  EXPECT_THAT(AskStandby(PostOf("/echo", "")),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("no_leader"),
                    HasSubstr("ends its streams before another one takes")));
}

TEST_F(ForwarderTest, StopEndsWhatWaits) {
  Client client(standby_->port());
  client.Send(HeldOf(""));
  ASSERT_TRUE(held_.AwaitHeld(1));
  forwarder_->Stop();
  EXPECT_THAT(client.ReceiveAnswer(), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(AskStandby(PostOf("/echo", "")), StartsWith("HTTP/1.1 503 "));
}

// Its server stops while it is told who waits for the answer's end.
class StoppingExchange : public FakeExchange {
 public:
  StoppingExchange(HttpRequest request, Forwarder& forwarder)
      : FakeExchange(std::move(request)), forwarder_(forwarder) {}
  void OnGone(std::function<void(Gone)> callback) override {
    forwarder_.Stop();
    FakeExchange::OnGone(std::move(callback));
  }

 private:
  Forwarder& forwarder_;
};

TEST_F(ForwarderTest, ARequestThatComesWhileItStopsIsAnswered) {
  for (int round = 0; round < 2; ++round) {
    HttpRequest request;
    request.method = "GET";
    request.path = "/livez";
    const auto exchange =
        std::make_shared<StoppingExchange>(std::move(request), *forwarder_);
    forwarder_->Take(exchange);
    ASSERT_EQ(exchange->responses.size(), 1u) << round;
    EXPECT_EQ(exchange->responses[0].status, 503) << round;
    EXPECT_EQ(forwarder_->stats().waiting, 0) << round;
  }
}

// Lookups that end with the test alone, of all names but some.
class HangingLookup {
 public:
  StatusOr<std::vector<std::string>> Find(const std::string& host) {
    MutexLock lock(mutex_);
    ++lookups_;
    while (!over_ && host != known_) changed_.Wait(mutex_);
    if (host != known_) return Unavailable("over");
    return std::vector<std::string>{"127.0.0.1"};
  }
  void SetKnown(const std::string& host) {
    MutexLock lock(mutex_);
    known_ = host;
  }
  int lookups() {
    MutexLock lock(mutex_);
    return lookups_;
  }
  void End() {
    MutexLock lock(mutex_);
    over_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string known_ ABSL_GUARDED_BY(mutex_);
  int lookups_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

class NamedPeersTest : public ForwarderTest {
 protected:
  NamedPeersTest() {
    look_up_ = [lookup = lookup_](const std::string& host) {
      return lookup->Find(host);
    };
  }
  void TearDown() override {
    ForwarderTest::TearDown();
    lookup_->End();
  }
  // Threads of lookups may outlive the test.
  const std::shared_ptr<HangingLookup> lookup_ =
      std::make_shared<HangingLookup>();
};

class HangingPeerTest : public NamedPeersTest {
 protected:
  HangingPeerTest() { names_ = {"hangs.example:80"}; }
};

TEST_F(HangingPeerTest, ANameWhoseLookupHangsHoldsUpNoOtherPeer) {
  EXPECT_THAT(AskStandby(PostOf("/echo", "past it")), EndsWith(";;past it"));
  EXPECT_EQ(lookup_->lookups(), 1) << "one thread for a name";
  EXPECT_THAT(forwarder_->troubles(),
              HasSubstr("hangs.example:80: no address: its lookup takes "
                        "longer than 1 s"));
}

class KnownPeerTest : public NamedPeersTest {
 protected:
  KnownPeerTest() {
    leader_name_ = "leader.example";
    lookup_->SetKnown(leader_name_);
  }
};

TEST_F(KnownPeerTest, WhileALookupHangsTheAddressBeforeIsTaken) {
  EXPECT_THAT(AskStandby(PostOf("/echo", "before")), EndsWith(";;before"));
  lookup_->SetKnown("");
  const int before = lookup_->lookups();
  ASSERT_TRUE(AwaitThat([&] { return lookup_->lookups() > before; }));
  EXPECT_THAT(AskStandby(PostOf("/echo", "meanwhile")),
              EndsWith(";;meanwhile"));
}

// A peer with a feed of two records, of which the rest comes later.
class FeedTest : public ForwarderTest {
 protected:
  void SetUp() override {
    feed_path_ = "/feed";
    ForwarderTest::SetUp();
  }
  std::vector<std::string> Records() {
    MutexLock lock(mutex_);
    return records_;
  }
};

TEST_F(FeedTest, ALeadersRecordsComeWhileItLeads) {
  ASSERT_TRUE(AwaitThat([&] { return Records().size() == 2; }));
  EXPECT_EQ(Records()[0], "first");
  EXPECT_EQ(Records()[1], std::string(100000, 'x'));
  EXPECT_EQ(feeds_, 1);
  EXPECT_TRUE(feed_is_proved_);
  leads_ = true;
  EXPECT_TRUE(AwaitThat([&] { return feed_ended_.load(); }));
  leads_ = false;
  EXPECT_TRUE(AwaitThat([&] { return Records().size() == 4; }));
}

// Peers that speak TLS, with certificates that openssl makes.
class TlsForwarderTest : public ForwarderTest {
 protected:
  void SetUp() override {
    patience_ = std::chrono::milliseconds(500);
    folder_ = Cat(::testing::TempDir(), "forwarder-", ::getpid());
    std::filesystem::create_directories(folder_);
    Make("gateway", "subjectAltName=DNS:gateway.example");
    Make("other", "subjectAltName=DNS:other.example");
    Make("loopback", "subjectAltName=IP:127.0.0.1");
  }
  void TearDown() override {
    ForwarderTest::TearDown();
    std::filesystem::remove_all(folder_);
  }
  std::string Path(std::string_view name) const {
    return Cat(folder_, "/", name);
  }
  void Make(std::string_view name, std::string_view names) const {
    const std::string command =
        Cat("openssl req -x509 -newkey ec -pkeyopt "
            "ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=",
            name, " -addext ", names, " -keyout ", Path(name), ".key -out ",
            Path(name), ".cert 2>/dev/null");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  // A certificate with its chain behind it, by that of `by`.
  void Sign(std::string_view name, std::string_view by,
            std::string_view extension) const {
    const std::string at = Path(name), ca = Path(by);
    const std::string command =
        Cat("printf '%s' '", extension, "' > ", at, ".ext && openssl req -new ",
            "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj ",
            "/CN=", name, " -keyout ", at, ".key -out ", at,
            ".req 2>/dev/null && openssl x509 -req -days 1 -in ", at,
            ".req -CA ", ca, ".cert -CAkey ", ca, ".key -CAcreateserial ",
            "-extfile ", at, ".ext -out ", at, ".leaf 2>/dev/null && cat ", at,
            ".leaf ", ca, ".cert > ", at, ".cert");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  // The answer to a request, where the peer shows `peers`, the standby's own
  // certificate is `own`, and `ca` signs, unless it is empty.
  std::string AnswerWith(const char* peers, const char* own, const char* ca) {
    if (forwarder_) ForwarderTest::TearDown();
    options_.tls = {Path(Cat(peers, ".cert")), Path(Cat(peers, ".key"))};
    certificate_ = Path(Cat(own, ".cert"));
    ca_ = *ca == 0 ? "" : Path(Cat(ca, ".cert"));
    ForwarderTest::SetUp();
    return AskStandby(PostOf("/echo", "over TLS"));
  }

  std::string folder_;
};

TEST_F(TlsForwarderTest, APeerIsKnownByTheCommonCertificateOrItsName) {
  EXPECT_THAT(AnswerWith("gateway", "gateway", ""), EndsWith(";;over TLS"));
  EXPECT_THAT(AnswerWith("loopback", "gateway", "loopback"),
              EndsWith(";;over TLS"));
  for (const char* ca : {"", "loopback", "other"}) {
    // Signed by nobody who is trusted, or for another name.
    EXPECT_THAT(AnswerWith("other", "gateway", ca),
                HasSubstr("No gateway leads at the moment"))
        << ca;
  }
}

TEST_F(TlsForwarderTest, WhatSignsTheOwnCertificateSignsForNoPeer) {
  Sign("middle", "loopback", "basicConstraints=critical,CA:TRUE");
  Sign("own", "middle", "subjectAltName=DNS:gateway.example");
  Sign("peer", "middle", "subjectAltName=IP:127.0.0.1");
  EXPECT_THAT(AnswerWith("own", "own", ""), EndsWith(";;over TLS"));
  EXPECT_THAT(AnswerWith("peer", "own", ""),
              HasSubstr("No gateway leads at the moment"));
  EXPECT_THAT(forwarder_->troubles(), HasSubstr("no TLS: "));
  EXPECT_THAT(AnswerWith("peer", "own", "loopback"), EndsWith(";;over TLS"));
}

TEST_F(TlsForwarderTest, APeerWithoutTlsIsNamed) {
  certificate_ = Path("gateway.cert");
  ForwarderTest::SetUp();
  EXPECT_THAT(AskStandby(PostOf("/echo", "")),
              HasSubstr("No gateway leads at the moment"));
  EXPECT_THAT(forwarder_->troubles(),
              HasSubstr("no TLS: that server speaks plain HTTP, this one TLS"));
}

TEST_F(TlsForwarderTest, AuthoritiesThatCannotBeReadAreRefused) {
  ForwarderTest::SetUp();
  ForwarderOptions options;
  options.peers = {"127.0.0.1:1"};
  options.certificate = Path("gateway.cert");
  options.ca = Path("absent");
  EXPECT_THAT(Message(Forwarder::Start(std::move(options)).status()),
              AllOf(HasSubstr(Path("absent")), HasSubstr("cannot be read")));
}

TEST(ForwarderOptionsTest, WhatIsNoAddressIsRefused) {
  for (const char* text : {"", "host", "host:", ":1", "a:b:1", "h:123456",
                           "h:65536", "http://h:1", "[]:1"}) {
    ForwarderOptions options;
    options.peers = {text};
    options.leads = [] { return true; };
    const Status refused = Forwarder::Start(std::move(options)).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(refused), HasSubstr("is no HOST:PORT"));
  }
}

}  // namespace
}  // namespace sluice::standby
