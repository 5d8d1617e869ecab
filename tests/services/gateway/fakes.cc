#include "tests/services/gateway/fakes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace sluice::gateway {
namespace {

size_t CharacterLength(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

class FakeDecoder : public TextDecoder {
 public:
  explicit FakeDecoder(bool skip_special) : skip_special_(skip_special) {}
  std::string Push(TokenId token) override {
    if (token > 255) return skip_special_ ? "" : FakeText().TokenBytes(token);
    held_ += static_cast<char>(token);
    if (held_.size() < CharacterLength(static_cast<unsigned char>(held_[0]))) {
      return "";
    }
    return std::exchange(held_, "");
  }
  std::string Finish() override {
    return std::exchange(held_, "").empty() ? "" : "\xef\xbf\xbd";
  }

 private:
  const bool skip_special_;
  std::string held_;
};

}  // namespace

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const unsigned char byte : text) tokens.push_back(byte);
  return tokens;
}

StatusOr<std::vector<TokenId>> FakeText::Encode(std::string_view text,
                                                bool special) const {
  std::vector<TokenId> tokens = Bytes(text);
  if (special) tokens.insert(tokens.begin(), kFakeBos);
  return tokens;
}

StatusOr<std::vector<TokenId>> FakeText::EncodeChat(
    const Json& messages, const ChatTextOptions& options) const {
  std::vector<TokenId> tokens{kFakeBos};
  if (options.add_special_tokens) tokens.push_back(kFakeBos);
  if (options.arguments != nullptr) {
    for (const auto& argument : options.arguments->items()) {
      const auto name = Bytes(argument.key());
      tokens.insert(tokens.end(), name.begin(), name.end());
    }
  }
  if (options.tools != nullptr) {
    for (const Json& tool : *options.tools) {
      const auto name = Bytes(tool["function"]["name"].get<std::string>());
      tokens.insert(tokens.end(), name.begin(), name.end());
    }
  }
  for (const Json& message : messages) {
    tokens.push_back(kFakeTurn);
    const auto role = message["role"].get<std::string>();
    tokens.push_back(static_cast<unsigned char>(role[0]));
    const auto content = Bytes(message["content"].get<std::string>());
    tokens.insert(tokens.end(), content.begin(), content.end());
  }
  if (tokens.size() > options.max_bytes) {
    return MakeStatus(
        StatusCode::kOutOfRange,
        Cat("the rendered messages have ", tokens.size(), " bytes"));
  }
  if (options.add_generation_prompt) tokens.push_back(kFakeTurn);
  return tokens;
}

StatusOr<std::string> FakeText::Decode(std::span<const TokenId> tokens,
                                       bool skip_special) const {
  std::string text;
  for (const TokenId token : tokens) {
    if (token < 0 || token >= kFakeVocab) {
      return InvalidArgument("token ", token, " out of range");
    }
    if (token < 256 || !skip_special) text += TokenBytes(token);
  }
  return text;
}

std::unique_ptr<TextDecoder> FakeText::NewDecoder(
    std::span<const TokenId>, const DecodeOptions& options) const {
  return std::make_unique<FakeDecoder>(options.skip_special);
}

bool FakeText::EndsInReasoning(std::span<const TokenId> prompt) const {
  return Decode(prompt, true)->ends_with("<think>");
}

TokenizerInfo FakeText::info() const {
  return {"<s>", "</s>", "", "", "{{ messages }}", true};
}

std::string FakeText::TokenText(TokenId token) const {
  if (token >= 0x80 && token < 256) return "\xef\xbf\xbd";
  return TokenBytes(token);
}

std::string FakeText::TokenBytes(TokenId token) const {
  static constexpr const char* kSpecial[] = {"<s>", "</s>", "<turn>"};
  if (token >= 256) return kSpecial[token - 256];
  return std::string(1, static_cast<char>(token));
}

ServedModel FakeModel(int positions) {
  ServedModel model;
  model.name = "fake";
  model.root = "somewhere/fake";
  model.text = std::make_unique<FakeText>();
  model.eos_ids = {kFakeEos};
  model.vocab_size = kFakeVocab;
  model.max_positions = positions;
  return model;
}

TokenResult WithLogprob(TokenId token, float logprob) {
  return {token,
          TokenLogprob{token, logprob, 1},
          {TokenLogprob{'!', logprob / 2, 0}}};
}

FakeGenerator::~FakeGenerator() = default;

StatusOr<SequenceId> FakeGenerator::Submit(GenerateRequest request,
                                           std::shared_ptr<TokenSink> sink) {
  if (!refusal_.ok()) return refusal_;
  size_t index;
  std::vector<TokenId> prompt = request.prompt_tokens;
  {
    MutexLock lock(mutex_);
    index = requests_.size();
    requests_.push_back(std::move(request));
    sinks_.push_back(std::move(sink));
  }
  changed_.NotifyAll();
  if (mode_ == Mode::kEcho) {
    TokenEvent event;
    for (const TokenId token : prompt) {
      if (token < 256) event.tokens.push_back({token, {}, {}});
    }
    Tokens(index, std::move(event));
    FinalEvent end;
    end.stop_token = kFakeEos;
    End(index, end);
  }
  return SequenceId(index + 1);
}

void FakeGenerator::Cancel(SequenceId sequence) {
  const size_t index = sequence.value() - 1;
  {
    MutexLock lock(mutex_);
    cancelled_.insert(index);
  }
  changed_.NotifyAll();
  End(index, FinishReason::kCancelled);
}

std::shared_ptr<TokenSink> FakeGenerator::SinkOf(size_t sequence) const {
  MutexLock lock(mutex_);
  return sinks_.at(sequence);
}

void FakeGenerator::Tokens(size_t sequence, TokenEvent event) {
  if (const auto sink = SinkOf(sequence)) sink->OnTokens(std::move(event));
}

void FakeGenerator::Text(size_t sequence, std::string_view text) {
  for (const TokenId token : Bytes(text)) {
    TokenEvent event;
    event.tokens = {{token, {}, {}}};
    Tokens(sequence, std::move(event));
  }
}

void FakeGenerator::End(size_t sequence, FinalEvent event) {
  std::shared_ptr<TokenSink> sink;
  {
    MutexLock lock(mutex_);
    sink = std::exchange(sinks_.at(sequence), nullptr);
  }
  if (sink) sink->OnEnd(std::move(event));
}

void FakeGenerator::End(size_t sequence, FinishReason reason) {
  FinalEvent event;
  event.reason = reason;
  End(sequence, std::move(event));
}

void FakeGenerator::Forget() {
  MutexLock lock(mutex_);
  requests_.clear();
  sinks_.clear();
  cancelled_.clear();
}

size_t FakeGenerator::submitted() const {
  MutexLock lock(mutex_);
  return requests_.size();
}

bool FakeGenerator::AwaitSubmitted(size_t count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  MutexLock lock(mutex_);
  while (requests_.size() < count) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return true;
}

bool FakeGenerator::AwaitCancelled(size_t count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  MutexLock lock(mutex_);
  while (cancelled_.size() < count) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return true;
}

GenerateRequest FakeGenerator::request(size_t sequence) const {
  MutexLock lock(mutex_);
  return requests_.at(sequence);
}

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

void FakeExchange::Send(HttpResponse response) {
  EXPECT_FALSE(ended) << "a second answer";
  EXPECT_FALSE(streaming) << "an answer within a stream";
  responses.push_back(std::move(response));
  ended = true;
  on_gone_ = nullptr;
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
}

void FakeExchange::OnGone(std::function<void(Gone)> callback) {
  if (!ended) on_gone_ = std::move(callback);
}

void FakeExchange::Leave(Gone why) {
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
    if (chunk == "data: [DONE]\n\n") continue;
    EXPECT_TRUE(chunk.starts_with("data: ") && chunk.ends_with("\n\n"))
        << chunk;
    auto json = ParseJson(std::string_view(chunk).substr(6));
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

}  // namespace sluice::gateway
