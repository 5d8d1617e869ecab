#include "common/http/browser_guard.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "common/http/error_answer.h"

namespace sluice::http {
namespace {

using ::testing::HasSubstr;

BrowserGuard Guard(std::vector<std::string> hosts = {},
                   std::vector<std::string> origins = {},
                   bool check_host = true) {
  auto cors = CorsPolicy::Parse(origins);
  EXPECT_TRUE(cors.ok());
  auto guard = BrowserGuard::Create({check_host, std::move(hosts), *cors});
  EXPECT_TRUE(guard.ok()) << guard.status();
  return *std::move(guard);
}

// The status that refuses the request; 0 if it may go on.
int Ask(const BrowserGuard& guard, std::string_view host,
        std::string_view origin = "", std::string_view path = "/v1/models",
        std::string_view type = "") {
  HttpRequest request;
  request.method = type.empty() ? "GET" : "POST";
  request.path = path;
  request.headers.emplace_back("host", host);
  if (!origin.empty()) request.headers.emplace_back("origin", origin);
  if (!type.empty()) request.headers.emplace_back("content-type", type);
  const auto refused = guard.Screen(request);
  return refused ? refused->status : 0;
}

TEST(BrowserGuardTest, AddressesAndLocalhostAreOursUnderAnyPort) {
  const BrowserGuard guard = Guard();
  for (const char* host :
       {"localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:8000",
        "127.8.8.8:1", "10.1.2.3:80", "[::1]", "[::1]:8000", "[fe80::1]:9",
        "[::ffff:1.2.3.4]", ""}) {
    EXPECT_EQ(Ask(guard, host), 0) << host;
  }
}

TEST(BrowserGuardTest, NamesAreNotOurs) {
  const BrowserGuard guard = Guard();
  for (const char* host :
       {"evil.example", "evil.example:8000", "127.0.0.1.evil.example",
        "localhost.evil.example", "notlocalhost", "[evil]", "[::1", "1.2.3",
        "x", "127.0.0.1:80:80"}) {
    EXPECT_EQ(Ask(guard, host), 421) << host;
  }
}

TEST(BrowserGuardTest, NamesMayBeAllowed) {
  const BrowserGuard guard = Guard({"LLM.example", ".in.example"});
  for (const char* host :
       {"llm.example", "LLM.EXAMPLE:443", "a.in.example", "a.b.in.example"}) {
    EXPECT_EQ(Ask(guard, host), 0) << host;
  }
  for (const char* host : {"in.example", "xllm.example", "llm.example.org"}) {
    EXPECT_EQ(Ask(guard, host), 421) << host;
  }
  EXPECT_EQ(Ask(Guard({"*"}), "anything"), 0);
  EXPECT_EQ(Ask(Guard({}, {}, /*check_host=*/false), "anything"), 0);
  for (const char* bad : {"a:80", "http://a", "a b", "", "*.a"}) {
    const auto guard_of_bad = BrowserGuard::Create({true, {bad}, {}});
    ASSERT_FALSE(guard_of_bad.ok()) << bad;
    EXPECT_THAT(Message(guard_of_bad.status()), HasSubstr(bad));
  }
}

TEST(BrowserGuardTest, ContainersNameTheirHost) {
  const BrowserGuard guard = Guard();
  for (const char* host :
       {"host.docker.internal", "host.docker.internal:8000",
        "HOST.Docker.Internal", "gateway.docker.internal",
        "host.containers.internal:1", "host.lima.internal"}) {
    EXPECT_EQ(Ask(guard, host), 0) << host;
  }
  for (const char* host :
       {"docker.internal", "evil.docker.internal", "host.docker.internal.evil",
        "xhost.docker.internal", "host.docker.internal.",
        "host.docker.internal:80:80", "host.docker.internal@evil.example"}) {
    EXPECT_EQ(Ask(guard, host), 421) << host;
  }
}

// Forms that one reader takes for this machine and another for another one.
TEST(BrowserGuardTest, WhatIsAlmostOursIsNot) {
  const BrowserGuard guard = Guard({"llm.example"});
  for (const char* host : {"[::1].evil.com", "[::1]x", "[::1]:80x", "[::1]:",
                           "[::1]:8000", "[::ffff:127.0.0.1]", "127.0.0.1:"}) {
    const bool ours = std::string_view(host).ends_with("]") ||
                      std::string_view(host).ends_with(":") ||
                      std::string_view(host).ends_with(":8000");
    EXPECT_EQ(Ask(guard, host), ours ? 0 : 421) << host;
  }
  for (const char* host : {"127.0.0.1.evil.com",
                           "localhost.evil.com",
                           "localhost:80:80",
                           "localhost:x",
                           "localhost:99999",
                           "localhost:-1",
                           "localhost:+80",
                           "user@localhost",
                           "localhost@evil.com",
                           "a:b@127.0.0.1",
                           "localhost.",
                           "127.0.0.1.",
                           "2130706433",
                           "0177.0.0.1",
                           "0x7f.0.0.1",
                           "127.1",
                           "%6cocalhost",
                           "localhost%00.evil.com",
                           "[fe80::1%25eth0]",
                           "[127.0.0.1]",
                           "[localhost]",
                           "[]",
                           "[",
                           "[::1",
                           "::1",
                           "::1]",
                           "localhost/",
                           "localhost evil.com",
                           "localhost,evil.com",
                           "http://localhost",
                           "llm.example.",
                           "llm.example:80:80",
                           "x@llm.example",
                           ":80",
                           ".",
                           "evil.localhost.com",
                           "host.docker.internal%",
                           "[::1]:80:80",
                           "[::1]:80@evil.com",
                           "[::1]@evil.com",
                           "\\localhost",
                           "localhost\\@evil.com"}) {
    EXPECT_EQ(Ask(guard, host), 421) << host;
  }
}

TEST(BrowserGuardTest, ProbesComeUnderAnyName) {
  const BrowserGuard guard = Guard();
  for (const char* path :
       {"/livez", "/readyz", "/health", "/ping", "/metrics"}) {
    EXPECT_EQ(Ask(guard, "gateway.pod.cluster", "", path), 0) << path;
  }
  for (const char* path : {"/livez/", "/", "/cluster", "/version"}) {
    EXPECT_EQ(Ask(guard, "gateway.pod.cluster", "", path), 421) << path;
  }
}

TEST(BrowserGuardTest, ForeignOriginsAreRefusedAndOursIsNot) {
  const BrowserGuard guard = Guard();
  const char* const ours = "127.0.0.1:8000";
  EXPECT_EQ(Ask(guard, ours, "http://127.0.0.1:8000"), 0);
  EXPECT_EQ(Ask(guard, ours, "https://127.0.0.1:8000"), 0);
  EXPECT_EQ(Ask(guard, "LocalHost:8000", "http://localhost:8000"), 0);
  for (const char* origin :
       {"null", "https://evil.example", "http://127.0.0.1:8001",
        "http://127.0.0.1", "http://localhost:8000", "file://", "ftp://a",
        "http://127.0.0.1:8000.evil.example", "127.0.0.1:8000"}) {
    EXPECT_EQ(Ask(guard, ours, origin), 403) << origin;
    EXPECT_EQ(Ask(guard, ours, origin, "/livez"), 403) << origin;
  }
  EXPECT_EQ(Ask(guard, "null", "null", "/livez"), 403);
}

TEST(BrowserGuardTest, ListedOriginsMayCall) {
  const BrowserGuard guard = Guard({}, {"https://page.example"});
  EXPECT_EQ(Ask(guard, "localhost", "https://page.example"), 0);
  EXPECT_EQ(Ask(guard, "localhost", "https://other.example"), 403);
  EXPECT_EQ(Ask(Guard({}, {"*"}), "localhost", "null"), 0);
}

TEST(BrowserGuardTest, ThisMachinesPagesMayBeAdmitted) {
  CorsPolicy cors;
  cors.AdmitLocal();
  const auto guard = BrowserGuard::Create({true, {}, cors});
  ASSERT_TRUE(guard.ok()) << guard.status();
  const auto ask = [&](std::string_view origin) {
    HttpHeaders headers;
    cors.AddTo(origin, headers);
    HttpRequest answer;
    answer.headers = headers;
    const int status = Ask(*guard, "localhost:8000", origin);
    EXPECT_EQ(answer.Header("Access-Control-Allow-Origin"),
              status == 0 ? origin : "");
    EXPECT_EQ(answer.Header("Vary"), "Origin");
    return status;
  };
  for (const char* origin :
       {"vscode-webview://1a2b3c", "vscode-file://vscode-app",
        "app://obsidian.md", "tauri://localhost", "file://", "file:///",
        "FILE://x", "http://tauri.localhost", "https://tauri.localhost",
        "http://localhost", "http://localhost:3000", "https://LOCALHOST:1",
        "http://127.0.0.1:8001", "http://127.1.2.3", "http://[::1]:5173",
        "https://[::ffff:127.0.0.1]:1"}) {
    EXPECT_EQ(ask(origin), 0) << origin;
  }
  for (const char* origin : {"null",
                             "file",
                             "file:",
                             "app:",
                             "app",
                             "://",
                             "http://",
                             "https://",
                             "https://evil.example",
                             "http://localhost.evil.example",
                             "http://127.0.0.1.evil.example",
                             "http://[::1].evil.example",
                             "http://localhost@evil.example",
                             "http://evil.example#localhost",
                             "http://evil.example?localhost",
                             "http://localhost:80:80",
                             "http://localhost/",
                             "http://localhost:3000/a",
                             "http://192.168.1.2",
                             "http://0.0.0.0",
                             "http://[::]",
                             "http://localhost.",
                             "ftp://localhost",
                             "http://tauri.localhost.evil.example",
                             "http://tauri-localhost",
                             "http://notlocalhost",
                             "xapp://a",
                             "http+app://a",
                             "app ://a",
                             "chrome-extension://abc",
                             "http://host.docker.internal:3000",
                             "app://a, http://evil.example",
                             "app://a b",
                             "https://app://localhost"}) {
    EXPECT_EQ(ask(origin), 403) << origin;
  }
}

TEST(BrowserGuardTest, DesktopProgramsMayBeListed) {
  const BrowserGuard guard = Guard({}, {"app://obsidian.md", "file://"});
  EXPECT_EQ(Ask(guard, "localhost", "app://obsidian.md"), 0);
  EXPECT_EQ(Ask(guard, "localhost", "file://"), 0);
  EXPECT_EQ(Ask(guard, "localhost", "app://other"), 403);
  for (const char* bad : {"null", "app://", "://a", "1a://b", "a b://c"}) {
    EXPECT_FALSE(CorsPolicy::Parse({bad}).ok()) << bad;
  }
}

TEST(BrowserGuardTest, AFormFromAPageIsNoRequest) {
  const BrowserGuard guard = Guard();
  const char* const origin = "http://localhost:8000";
  const auto post = [&](const char* type, const char* from) {
    return Ask(guard, "localhost:8000", from, "/tokenize", type);
  };
  for (const char* type :
       {"text/plain", "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x", " ", "application/jsonx"}) {
    EXPECT_EQ(post(type, origin), 415) << type;
    EXPECT_EQ(post(type, ""), 0) << "curl sends what it likes: " << type;
  }
  for (const char* type :
       {"application/json", "Application/JSON", "application/json ; charset=x",
        "application/json;charset=utf-8"}) {
    EXPECT_EQ(post(type, origin), 0) << type;
  }
}

TEST(BrowserGuardTest, RefusalsSayWhatToDo) {
  HttpRequest request;
  request.method = "GET";
  request.path = "/";
  request.headers = {{"host", "my.example:8000"}};
  auto refused = Guard().Screen(request);
  ASSERT_TRUE(refused.has_value());
  WriteError({}, request, *refused);
  EXPECT_THAT(refused->body, HasSubstr("my.example:8000"));
  EXPECT_THAT(refused->body, HasSubstr("--allowed-hosts"));
  EXPECT_THAT(refused->body, HasSubstr("\"code\":\"host_not_allowed\""));
  request.headers = {{"host", "localhost"}, {"origin", "http://a.example"}};
  refused = Guard().Screen(request);
  ASSERT_TRUE(refused.has_value());
  WriteError({}, request, *refused);
  EXPECT_THAT(refused->body, HasSubstr("http://a.example"));
  EXPECT_THAT(refused->body, HasSubstr("--cors-origins"));
}

}  // namespace
}  // namespace sluice::http
