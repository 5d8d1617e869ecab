#include "common/http/api_keys.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/http/error_answer.h"
#include "tests/http/key_file.h"
#include "tests/testing/holds_within.h"

namespace sluice::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string ErrorOf(std::string_view text) {
  const auto keys = ParseApiKeys(text);
  return keys.ok() ? "" : Message(keys.status());
}

TEST(ApiKeysTest, LinesAreNamedKeysBareKeysOrComments) {
  const auto keys = ParseApiKeys(
      "# a comment\n\nalice:sk-0123456789\n  sk-bare-key-1 \r\n"
      "alice: sk-second-of-alice\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_EQ(keys->size(), 3u);
  EXPECT_EQ((*keys)[0].name, "alice");
  // printf %s sk-bare-key-1 | sha256sum
  EXPECT_EQ((*keys)[1].name, "key-cc8c5be9b19a");
  EXPECT_EQ((*keys)[2].name, "alice");
}

// The names by key of the lines that have a key.
std::map<std::string, std::string> NamesOf(
    const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const auto keys = ApiKeys::FromText(text, "X");
  EXPECT_TRUE(keys.ok()) << text << keys.status();
  std::map<std::string, std::string> names;
  for (const std::string& line : lines) {
    const std::string key = line.substr(line.find(':') + 1);
    const auto name = (*keys)->NameOf("Bearer " + key);
    if (name) names[key] = *name;
  }
  return names;
}

// Whatever lines are added, removed or moved: a client's streams, caches,
// limits and metrics are its own, and nobody else's.
TEST(ApiKeysTest, AKeyKeepsItsNameWhateverLinesAreAroundIt) {
  std::vector<std::string> lines = {"alice:sk-0123456789", "# a comment", "",
                                    "bob:sk-of-bob-0001"};
  for (int i = 0; i < 20; ++i) lines.push_back(Cat("sk-unnamed-", 100 + i));
  const auto whole = NamesOf(lines);
  std::set<std::string> names;
  for (const auto& [key, name] : whole) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_THAT(name, Not(HasSubstr(key)));
  }
  EXPECT_EQ(names.size(), 22u);
  std::mt19937 draw(44);
  for (int round = 0; round < 200; ++round) {
    auto some = lines;
    std::shuffle(some.begin(), some.end(), draw);
    some.resize(1 + draw() % some.size());
    some.push_back("last:sk-of-the-last");
    for (const auto& [key, name] : NamesOf(some)) {
      if (key == "sk-of-the-last") continue;
      EXPECT_EQ(name, whole.at(key)) << key;
    }
  }
}

TEST(ApiKeysTest, AReloadWithoutALineGivesNobodyAnothersName) {
  const KeyFile file(
      "alice:sk-of-alice-1\nbob:sk-of-bob-0001\nsk-of-carol-1\nsk-of-dave-01");
  const auto keys = ApiKeys::Open(file.path());
  ASSERT_TRUE(keys.ok()) << keys.status();
  const auto carol = (*keys)->NameOf("Bearer sk-of-carol-1");
  const auto dave = (*keys)->NameOf("Bearer sk-of-dave-01");
  EXPECT_EQ(carol, "key-d97a9d992868");
  EXPECT_NE(carol, dave);
  file.Write("alice:sk-of-alice-1\nsk-of-carol-1\nsk-of-dave-01");
  ASSERT_TRUE(testing::HoldsWithin(std::chrono::seconds(10),
                                   [&] { return (*keys)->size() == 3; }));
  EXPECT_EQ((*keys)->NameOf("Bearer sk-of-carol-1"), carol);
  EXPECT_EQ((*keys)->NameOf("Bearer sk-of-dave-01"), dave);
  // The key that is named like another one's is refused, and nothing changes.
  file.Write(Cat(*carol, ":sk-of-mallory\nsk-of-carol-1"));
  EXPECT_EQ((*keys)->NameOf("Bearer sk-of-mallory"), std::nullopt);
  EXPECT_THAT(Message(ApiKeys::Open(file.path()).status()),
              AllOf(HasSubstr(file.path()), HasSubstr(": line 1: the name ")));
}

TEST(ApiKeysTest, NamesThatLookLikeThoseOfUnnamedKeysAreRefused) {
  for (const char* name : {"key-2", "key-0", "key-01", "key-12345678901234567",
                           "key-0123456789ab", "key-ABCDEFABCDEF"}) {
    EXPECT_THAT(ErrorOf(Cat("a:sk-0123456789\n\n", name, ":sk-abcdefghij")),
                AllOf(StartsWith(Cat("line 3: the name ", name, " looks like")),
                      Not(HasSubstr("sk-"))))
        << name;
  }
  for (const char* name :
       {"key-", "key-a", "key-dave", "key-abcdefabcde", "key-abcdefabcdefa",
        "key-2b", "KEY-2", "2", "akey-2", "key_2", "0123456789ab"}) {
    EXPECT_EQ(ErrorOf(Cat(name, ":sk-abcdefghij")), "") << name;
  }
}

TEST(ApiKeysTest, BadLinesAreToldWithoutTheKey) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("no key"));
  EXPECT_THAT(ErrorOf("# only\n"), HasSubstr("no key"));
  EXPECT_THAT(ErrorOf("good:12345678\nbad:123"), StartsWith("line 2: "));
  EXPECT_THAT(ErrorOf("a b:12345678"), HasSubstr("line 1: a name"));
  EXPECT_THAT(ErrorOf(":12345678"), HasSubstr("line 1: a name"));
  EXPECT_THAT(ErrorOf("x:1234 5678"), HasSubstr("without spaces"));
  EXPECT_THAT(ErrorOf("x:12345678\ny:12345678"), HasSubstr("same key as x's"));
  EXPECT_THAT(ErrorOf(std::string(600, 'k')), HasSubstr("has 600"));
  for (const char* text : {"bad:secret!\nx:1", "x:secret secret"}) {
    EXPECT_THAT(ErrorOf(text), Not(HasSubstr("secret")));
  }
}

TEST(ApiKeysTest, FilesThatCannotBeTrustedAreRefused) {
  EXPECT_THAT(Message(ApiKeys::Open("/no/such/file").status()),
              HasSubstr("/no/such/file: No such file"));
  EXPECT_THAT(Message(ApiKeys::Open("/tmp").status()),
              HasSubstr("not a regular file"));
  const KeyFile file("a:12345678");
  ::chmod(file.path().c_str(), 0666);
  EXPECT_THAT(Message(ApiKeys::Open(file.path()).status()),
              HasSubstr("everybody may write"));
}

TEST(ApiKeysTest, KeysAreFoundByBearerAloneAndAsAWhole) {
  const KeyFile file("a:12345678\nb:abcdefgh\n");
  const auto keys = ApiKeys::Open(file.path());
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ((*keys)->NameOf("Bearer 12345678"), "a");
  EXPECT_EQ((*keys)->NameOf("bearer  abcdefgh "), "b");
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "12345678", "Basic 12345678", "Bearer 1234567",
        "Bearer 123456789", "Bearer a:12345678"}) {
    EXPECT_FALSE((*keys)->NameOf(wrong).has_value()) << wrong;
  }
}

TEST(ApiKeysTest, AChangedFileIsReadAgainWithoutARequest) {
  const KeyFile file("a:12345678\n");
  const auto keys = ApiKeys::Open(file.path());
  ASSERT_TRUE(keys.ok()) << keys.status();
  const auto becomes = [&](size_t size) {
    return testing::HoldsWithin(std::chrono::seconds(10),
                                [&] { return (*keys)->size() == size; });
  };
  file.Write("b:abcdefgh\nc:ABCDEFGH\n");
  ASSERT_TRUE(becomes(2));
  EXPECT_EQ((*keys)->NameOf("Bearer abcdefgh"), "b");
  EXPECT_FALSE((*keys)->NameOf("Bearer 12345678").has_value());
  // A bad one is passed over; the next good one shows that it was seen.
  file.Write("short:1\n");
  EXPECT_EQ((*keys)->NameOf("Bearer abcdefgh"), "b");
  file.Write("b:abcdefgh\nc:ABCDEFGH\nd:01234567\n");
  EXPECT_TRUE(becomes(3));
}

HttpRequest RequestWith(std::string_view header, std::string_view value,
                        std::string_view path = "/v1/models") {
  HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.peer = "1.2.3.4";
  request.headers.emplace_back(header, value);
  return request;
}

TEST(ApiKeysTest, KeysComeFromTextToo) {
  const auto keys =
      ApiKeys::FromText("a:sk-0123456789,sk-abcdefghij\nb:sk-xyzxyzxyz", "X");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ((*keys)->NameOf("Bearer sk-0123456789"), "a");
  EXPECT_EQ((*keys)->NameOf("Bearer sk-abcdefghij"), "key-954f18c68776");
  EXPECT_EQ((*keys)->NameOf("Bearer sk-xyzxyzxyz"), "b");
  EXPECT_THAT(Message(ApiKeys::FromText("a:1", "X").status()),
              StartsWith("API keys of X: line 1: "));
}

TEST(ApiKeysTest, EitherHeaderBringsAKeyAndNeitherStays) {
  const auto keys = ApiKeys::FromText("a:sk-0123456789", "X");
  ASSERT_TRUE(keys.ok()) << keys.status();
  for (const auto& [header, value] :
       {std::pair("authorization", "Bearer sk-0123456789"),
        std::pair("x-api-key", " sk-0123456789 ")}) {
    HttpRequest request = RequestWith(header, value);
    EXPECT_FALSE((*keys)->Screen(request).has_value()) << header;
    EXPECT_EQ(request.tenant, "a");
    EXPECT_TRUE(request.headers.empty());
  }
  // Some clients always send the one, with nothing in it.
  HttpRequest both = RequestWith("authorization", "Bearer EMPTY");
  both.headers.emplace_back("x-api-key", "sk-0123456789");
  EXPECT_FALSE((*keys)->Screen(both).has_value());
}

TEST(ApiKeysTest, UnknownKeysBeyondTheLimitAreTold) {
  const auto keys = ApiKeys::FromText("a:sk-0123456789,b:sk-9876543210", "X");
  ASSERT_TRUE(keys.ok()) << keys.status();
  const auto ask = [&](std::string_view key, std::string_view path) {
    HttpRequest request = RequestWith("x-api-key", key, path);
    auto refused = (*keys)->Screen(request);
    EXPECT_TRUE(request.headers.empty());
    return std::pair(refused.value_or(HttpResponse{0}), request.tenant);
  };
  for (int i = 0; i < 10; ++i) {
    const auto path = i % 2 ? "/v1/models" : "/readyz";
    EXPECT_EQ(ask(Cat("sk-guess-", i), path).first.status, i % 2 ? 401 : 0)
        << "no key is needed there";
  }
  for (int i = 0; i < 100; ++i) {
    HttpResponse refusal = ask("sk-guess-more", "/v1/models").first;
    WriteError({}, {}, refusal);
    EXPECT_EQ(refusal.status, 429);
    EXPECT_EQ(refusal.error->code, "too_many_wrong_api_keys");
    EXPECT_THAT(refusal.body, Not(HasSubstr("sk-guess")));
    HttpRequest answer;
    answer.headers = refusal.headers;
    const int seconds = std::stoi(std::string(answer.Header("Retry-After")));
    EXPECT_GE(seconds, 1);
    EXPECT_LE(seconds, 10);
    EXPECT_EQ(ask("sk-guess-more", "/readyz").first.status, 0);
    // A key that was never used from here either.
    EXPECT_EQ(ask("sk-9876543210", "/v1/models").second, "b");
    EXPECT_EQ(ask("sk-0123456789", "/readyz").second, "a");
  }
  HttpRequest none = RequestWith("accept", "*/*");
  EXPECT_EQ((*keys)->Screen(none)->status, 401) << "no key is no wrong key";
}

}  // namespace
}  // namespace sluice::http
