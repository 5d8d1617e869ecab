#include "common/http/api_keys.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <thread>

#include "common/base/clock.h"
#include "tests/http/key_file.h"

namespace sluice::gateway {
namespace {

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
  EXPECT_EQ((*keys)[1].name, "key-4");
  EXPECT_EQ((*keys)[2].name, "alice");
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
    const TimePoint end = Clock::now() + std::chrono::seconds(10);
    while ((*keys)->size() != size) {
      if (Clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
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

}  // namespace
}  // namespace sluice::gateway
