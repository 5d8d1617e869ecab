#ifndef SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/mutex.h"
#include "services/gateway/generator.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/model_text.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {

// A vocabulary of the 256 bytes and three special tokens. A chat is <turn>,
// the role's first letter and the content, for each message; variables of the
// template come before them by name, as text, and so do the tools' names.
inline constexpr TokenId kFakeBos = 256;
inline constexpr TokenId kFakeEos = 257;
inline constexpr TokenId kFakeTurn = 258;
inline constexpr int kFakeVocab = 259;

std::vector<TokenId> Bytes(std::string_view text);

class FakeText : public ModelText {
 public:
  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        bool special) const override;
  StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, const ChatTextOptions& options) const override;
  StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                               bool skip_special) const override;
  std::unique_ptr<TextDecoder> NewDecoder(
      std::span<const TokenId> prompt,
      const DecodeOptions& options) const override;
  OutputFormat output_format() const override { return format; }
  std::vector<std::unique_ptr<OutputParser>> NewParsers(
      const OutputRequest& request, size_t count) const override {
    std::vector<std::unique_ptr<OutputParser>> parsers;
    while (parsers.size() < count) parsers.push_back(new_parser(request));
    return parsers;
  }
  bool EndsInReasoning(std::span<const TokenId> prompt) const override;
  std::string TokenText(TokenId token) const override;
  std::string TokenBytes(TokenId token) const override;
  size_t max_bytes_per_token() const override { return 4; }
  bool is_quick() const override { return quick; }
  TokenizerInfo info() const override;

  bool quick = true;
  OutputFormat format;  // of the output; with one, new_parser is needed
  std::function<std::unique_ptr<OutputParser>(const OutputRequest&)> new_parser;
};

// A served model "fake" with FakeText and a context of `positions`.
ServedModel FakeModel(int positions = 4096);

// A token with its logprob and that of token 0 ahead of it.
TokenResult WithLogprob(TokenId token, float logprob);

// A generator that a test scripts, from any thread. Cancels end a sequence at
// once.
class FakeGenerator : public Generator {
 public:
  // What every sequence does by itself when it is submitted.
  enum class Mode {
    kScripted,  // nothing: the test calls Tokens and End
    kEcho,      // gives its prompt's bytes back, then its end token
  };
  explicit FakeGenerator(Mode mode = Mode::kScripted) : mode_(mode) {}
  ~FakeGenerator() override;

  StatusOr<SequenceId> Submit(GenerateRequest request,
                              std::shared_ptr<TokenSink> sink) override;
  void Cancel(SequenceId sequence) override;
  int max_context() const override { return max_context_; }

  void set_refusal(Status status) { refusal_ = std::move(status); }
  void set_max_context(int tokens) { max_context_ = tokens; }

  // Sequences are numbered from 0 in order of Submit.
  void Tokens(size_t sequence, TokenEvent event);
  void Text(size_t sequence, std::string_view text);
  void End(size_t sequence, FinalEvent event);
  void End(size_t sequence, FinishReason reason);

  // Drops the records of ended sequences, all of them.
  void Forget();

  size_t submitted() const;
  // Waits until `count` sequences were submitted, or cancelled; false after
  // ten seconds.
  bool AwaitSubmitted(size_t count) const;
  bool AwaitCancelled(size_t count) const;
  GenerateRequest request(size_t sequence) const;

 private:
  std::shared_ptr<TokenSink> SinkOf(size_t sequence) const;

  const Mode mode_;
  Status refusal_;
  int max_context_ = 4096;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<GenerateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<TokenSink>> sinks_ ABSL_GUARDED_BY(mutex_);
  std::set<size_t> cancelled_ ABSL_GUARDED_BY(mutex_);
};

// An exchange without a socket. Posted work runs at once, or, with
// `deferred`, when the test calls RunPosted.
class FakeExchange : public Exchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  HttpRequest& request() override { return request_; }
  void Post(std::function<void()> work) override;
  void Send(HttpResponse response) override;
  void BeginStream(HttpResponse head) override;
  void SendChunk(std::string bytes) override;
  void EndStream() override;
  void OnGone(std::function<void(Gone)> callback) override;
  void set_route(std::string_view route) override { route_ = route; }

  void RunPosted();
  void Leave(Gone why);  // the client goes away

  bool deferred = false;
  std::vector<HttpResponse> responses;  // of Send, or the stream's head
  std::vector<std::string> chunks;
  bool streaming = false;
  bool ended = false;
  std::string route_;

  // The one answer's body as JSON.
  Json Body() const;
  // The chunks' JSON, without the final [DONE].
  std::vector<Json> Events() const;

 private:
  HttpRequest request_;
  std::vector<std::function<void()>> posted_;
  std::function<void(Gone)> on_gone_;
};

std::shared_ptr<FakeExchange> Post(std::string_view path, std::string body);

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_
