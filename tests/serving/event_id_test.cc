#include "common/serving/event_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "common/base/cat.h"
#include "common/http/message.h"
#include "common/serving/error.h"

namespace sluice::serving {
namespace {

using ::testing::HasSubstr;

AnswerOrigin Origin() {
  return {"0123456789abcdef00112233", true, 1785000000, 0xfedcba9876543210};
}

std::string IdOf(const EventId& id) {
  return Cat(EventIdHead(id.origin, id.fingerprint), "~",
             ProgressText(id.progress));
}

EventId RandomEventId(std::mt19937_64& random) {
  EventId id;
  id.origin.is_own_id = random() % 2 == 0;
  id.origin.request_id =
      id.origin.is_own_id ? http::RandomId() : "client.s-id_7:" + Cat(random());
  id.origin.created = static_cast<int64_t>(random() % (uint64_t{1} << 36));
  id.origin.seed = random() >> (random() % 64);
  id.fingerprint = random() % (uint64_t{1} << kFingerprintBits);
  const auto count = [&] { return random() % 3 == 0 ? random() % 100000 : 0; };
  id.progress.choices.resize(1 + random() % 5);
  for (ChoiceProgress& choice : id.progress.choices) {
    choice.begun = random() % 4 != 0;
    choice.ended = choice.begun && random() % 4 == 0;
    if (!choice.begun || choice.ended) continue;
    choice.content = count();
    choice.reasoning = count();
    choice.calls = count();
    choice.arguments = choice.calls > 0 ? count() : 0;
    choice.entries = count();
  }
  id.progress.usage = id.progress.is_whole(false) && random() % 2 == 0;
  return id;
}

TEST(EventIdTest, EveryIdIsReadAsItWasWritten) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const EventId id = RandomEventId(random);
    const std::string text = IdOf(id);
    const auto read = ParseEventId(text);
    ASSERT_TRUE(read.ok()) << text << ": " << read.status();
    EXPECT_EQ(read->origin, id.origin) << text;
    EXPECT_EQ(read->fingerprint, id.fingerprint) << text;
    EXPECT_EQ(read->progress, id.progress) << text;
  }
}

TEST(EventIdTest, AnIdIsShortAndOfSafeCharacters) {
  EventIds ids(EventIdHead(Origin(), 0xabcdef012345), {{{}}, false});
  ChoiceProgress shown;
  shown.content = 12345;
  const std::string text = ids.After(0, shown);
  EXPECT_LE(text.size(), 50u) << text;
  EXPECT_EQ(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno"
                                   "pqrstuvwxyz0123456789-_.~"),
            std::string::npos)
      << text;
}

TEST(EventIdTest, TheLongestIdFitsIntoAHeader) {
  StreamProgress progress;
  progress.choices.resize(128,
                          {true, false, 999999, 999999, 512, 99999, 131072});
  AnswerOrigin origin = Origin();
  origin.is_own_id = false;
  origin.request_id.assign(128, 'x');
  const std::string text =
      Cat(EventIdHead(origin, 1), "~", ProgressText(progress));
  EXPECT_LE(text.size(), kMaxEventIdBytes);
  EXPECT_TRUE(ParseEventId(text).ok());
}

TEST(EventIdTest, NothingElseIsTaken) {
  const std::string head = EventIdHead(Origin(), 7);
  std::string changed = head;
  changed[7] = 'Q';  // a seed of more than 64 bits
  const std::string garbage[] = {"x",
                                 "7",
                                 "~",
                                 head,
                                 Cat(head, "x~1"),
                                 Cat(head.substr(0, 20), "~1"),
                                 Cat("c", head.substr(1), "~1"),
                                 Cat(changed, "~1"),
                                 Cat(head, "~01"),
                                 Cat(head, "~-1"),
                                 Cat(head, "~+1"),
                                 Cat(head, "~1r0"),
                                 Cat(head, "~1e5r5"),
                                 Cat(head, "~1r5r5"),
                                 Cat(head, "~1a5"),
                                 Cat(head, "~1f"),
                                 Cat(head, "~ff"),
                                 Cat(head, "~1.u"),
                                 Cat(head, "~f.u.u"),
                                 Cat(head, "~u"),
                                 Cat(head, "~1 "),
                                 Cat(head, "~1\n"),
                                 Cat(head, "~1~1"),
                                 Cat(head, "~1234567890123"),
                                 Cat(head, "~99999999999999999999999"),
                                 Cat("b", head.substr(1, 25), "~1"),
                                 Cat("b", head.substr(1, 25), "a b~1"),
                                 std::string(kMaxEventIdBytes + 1, '1')};
  for (const std::string& text : garbage) {
    const auto read = ParseEventId(text);
    ASSERT_FALSE(read.ok()) << text;
    const http::ApiError error = ToApiError(read.status());
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, "Last-Event-ID");
    EXPECT_EQ(error.code, "invalid_event_id");
    EXPECT_THAT(error.message, HasSubstr("Last-Event-ID"));
  }
}

TEST(EventIdTest, AnyBytesAreReadOrRefused) {
  std::mt19937_64 random(2);
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = IdOf(RandomEventId(random));
    for (size_t changes = random() % 3; changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const auto read = ParseEventId(text);
    if (!read.ok()) continue;
    ++taken;
    EXPECT_EQ(IdOf(*read), text) << "one text per id";
  }
  EXPECT_GT(taken, 1000);
}

TEST(EventIdTest, CountsAddUpAndArgumentsAreTheLatestCalls) {
  EventIds ids("HEAD", {{{}, {}}, false});
  EXPECT_EQ(ids.After(1, {}), "HEAD~.0");
  EXPECT_EQ(ids.After(0, {false, false, 3, 0, 0, 0, 1}), "HEAD~3e1.0");
  EXPECT_EQ(ids.After(0, {false, false, 0, 0, 1, 5, 0}), "HEAD~3k1a5e1.0");
  EXPECT_EQ(ids.After(0, {false, false, 0, 0, 0, 2, 0}), "HEAD~3k1a7e1.0");
  EXPECT_EQ(ids.After(0, {false, false, 0, 0, 1, 0, 0}), "HEAD~3k2e1.0");
  EXPECT_EQ(ids.After(0, {false, true}), "HEAD~f.0");
  EXPECT_EQ(ids.After(1, {false, true, 9}), "HEAD~f.f");
  EXPECT_EQ(ids.AfterUsage(), "HEAD~f.f.u");
}

TEST(EventIdTest, UsageNamesTheLastEndBeforeIt) {
  EventIds ids("HEAD", {{{}, {}}, false}, /*usage_follows=*/true);
  EXPECT_EQ(ids.After(0, {false, true}), "HEAD~f.");
  EXPECT_EQ(ids.After(1, {false, false, 2}), "HEAD~f.2");
  EXPECT_EQ(ids.After(1, {false, true}), "");
  EXPECT_EQ(ids.AfterUsage(), "HEAD~f.f.u");
}

TEST(EventIdTest, WithoutAHeadThereAreNoIds) {
  EventIds ids("", {{{}}, false});
  EXPECT_EQ(ids.After(0, {false, false, 3}), "");
  EXPECT_EQ(ids.AfterUsage(), "");
  EXPECT_TRUE(ids.choice(0).begun);
}

}  // namespace
}  // namespace sluice::serving
