#include "tests/http/fake_exchange.h"

#include <gtest/gtest.h>

namespace sluice::http {

void FakeExchange::Post(std::function<void()> work) {
  if (deferred) {
    posted_.push_back(std::move(work));
  } else {
    work();
  }
}

void FakeExchange::RunPosted() {
  while (!posted_.empty()) {
    const auto work = std::exchange(posted_, {});
    for (const auto& one : work) one();
  }
}

void FakeExchange::PostAfter(Duration delay, std::function<void()> work) {
  if (ended || left_) return;
  later_delay = delay;
  later_ = std::move(work);
}

bool FakeExchange::RunLater() {
  const auto due = std::exchange(later_, nullptr);
  if (due) due();
  return due != nullptr;
}

void FakeExchange::Send(HttpResponse response) {
  EXPECT_FALSE(ended) << "a second answer";
  EXPECT_FALSE(streaming) << "an answer within a stream";
  WriteError(format, request_, response);
  responses.push_back(std::move(response));
  ended = true;
  on_gone_ = nullptr;
  later_ = nullptr;
}

void FakeExchange::BeginStream(HttpResponse head) {
  EXPECT_FALSE(ended || streaming);
  responses.push_back(std::move(head));
  streaming = true;
}

void FakeExchange::SendChunk(std::string bytes) {
  EXPECT_TRUE(streaming && !ended);
  chunks.push_back(std::move(bytes));
}

void FakeExchange::EndStream() {
  EXPECT_TRUE(streaming && !ended);
  ended = true;
  on_gone_ = nullptr;
  later_ = nullptr;
}

void FakeExchange::OnGone(std::function<void(Gone)> callback) {
  if (!ended) on_gone_ = std::move(callback);
}

void FakeExchange::Leave(Gone why) {
  left_ = true;
  later_ = nullptr;
  if (const auto callback = std::exchange(on_gone_, nullptr)) callback(why);
}

Json FakeExchange::Body() const {
  EXPECT_EQ(responses.size(), 1u);
  if (responses.empty()) return nullptr;
  auto json = ParseJson(responses[0].body);
  EXPECT_TRUE(json.ok()) << responses[0].body;
  return json.ok() ? *json : Json(nullptr);
}

std::vector<Json> FakeExchange::Events() const {
  std::vector<Json> events;
  for (const std::string& chunk : chunks) {
    if (chunk == "data: [DONE]\n\n" || chunk.starts_with(":")) continue;
    EXPECT_TRUE(chunk.starts_with("data: ") && chunk.ends_with("\n\n"))
        << chunk;
    // The JSON is one line; an id may follow.
    const std::string_view data = chunk;
    auto json = ParseJson(data.substr(6, data.find('\n') - 6));
    EXPECT_TRUE(json.ok()) << chunk;
    if (json.ok()) events.push_back(*std::move(json));
  }
  return events;
}

std::shared_ptr<FakeExchange> Post(std::string_view path, std::string body) {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.body = std::move(body);
  request.request_id = "test";
  return std::make_shared<FakeExchange>(std::move(request));
}

}  // namespace sluice::http
