#include <gtest/gtest.h>

#include "common/http/sse.h"

namespace sluice::http {
namespace {

using Events = std::vector<std::string>;

TEST(SseReaderTest, EventsComeOutAtTheirEmptyLine) {
  SseReader reader;
  EXPECT_EQ(reader.Feed("data: one\n"), Events());
  EXPECT_EQ(reader.Feed("\ndata: two\n\n"), (Events{"one", "two"}));
}

TEST(SseReaderTest, AnyCutOfTheBytesGivesTheSameEvents) {
  const std::string stream =
      ": ping\n\nevent: x\ndata: {\"a\": 1}\r\n\r\ndata:b\ndata: c\n\n";
  const Events expected = {"{\"a\": 1}", "b\nc"};
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    SseReader reader;
    Events events = reader.Feed(stream.substr(0, cut));
    for (const std::string& event : reader.Feed(stream.substr(cut))) {
      events.push_back(event);
    }
    EXPECT_EQ(events, expected) << "cut at " << cut;
  }
}

TEST(SseReaderTest, AnEventWithoutItsEndIsNotGiven) {
  SseReader reader;
  EXPECT_EQ(reader.Feed("data: half"), Events());
}

}  // namespace
}  // namespace sluice::http
