#ifndef SLUICE_TESTS_TOOLS_EVAL_CHAIN_ENDPOINT_H_
#define SLUICE_TESTS_TOOLS_EVAL_CHAIN_ENDPOINT_H_

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/tools/eval/reference.h"
#include "tests/http/one_answer.h"

namespace sluice::eval {

// A model whose next id depends on the last one alone: logits are a function of
// both, and of `strength`, by which two chains differ a little.
struct Chain {
  static constexpr int kVocabulary = 8;
  double strength = 0;

  std::vector<double> Row(int64_t last) const {
    std::vector<float> logits;
    for (int id = 0; id < kVocabulary; ++id) {
      const auto x = static_cast<double>(last * kVocabulary + id);
      logits.push_back(static_cast<float>(3 * std::sin(1.7 * x) +
                                          strength * std::cos(2.3 * x)));
    }
    return LogSoftmax(logits.data(), logits.size());
  }
  int64_t Next(int64_t last) const {
    const std::vector<double> row = Row(last);
    return std::max_element(row.begin(), row.end()) - row.begin();
  }
};

// Answers /v1/models and /v1/completions as an endpoint that serves a chain.
class ChainEndpoint {
 public:
  ChainEndpoint(Chain chain, int64_t context)
      : chain_(chain),
        context_(context),
        listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), length);
    listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~ChainEndpoint() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  ChainEndpoint(const ChainEndpoint&) = delete;
  ChainEndpoint& operator=(const ChainEndpoint&) = delete;

  http::BaseUrl url() const { return {"127.0.0.1", std::to_string(port_), ""}; }

 private:
  void Serve() const {
    for (;;) {
      const int peer = accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      const std::string answer =
          http::testing::HttpAnswer("200 OK", Answer(Read(peer)));
      size_t sent = 0;
      while (sent < answer.size()) {
        const ssize_t wrote =
            write(peer, answer.data() + sent, answer.size() - sent);
        if (wrote <= 0) break;
        sent += static_cast<size_t>(wrote);
      }
      close(peer);
    }
  }

  // Returns a whole request, by its Content-Length.
  static std::string Read(int peer) {
    std::string request;
    char in[4096];
    for (size_t wanted = 0;;) {
      const size_t head = request.find("\r\n\r\n");
      const size_t field = request.find("Content-Length: ");
      if (head != std::string::npos) {
        wanted = head + 4;
        if (field < head) {
          wanted += std::strtoul(request.c_str() + field + 16, nullptr, 10);
        }
        if (request.size() >= wanted) return request;
      }
      const ssize_t got = read(peer, in, sizeof(in));
      if (got <= 0) return request;
      request.append(in, static_cast<size_t>(got));
    }
  }

  std::string Answer(const std::string& request) const {
    if (request.starts_with("GET ")) {
      return DumpJson(
          {{"data", {{{"id", "chain"}, {"max_model_len", context_}}}}});
    }
    const Json body = *ParseJson(request.substr(request.find("\r\n\r\n") + 4));
    auto ids = body["prompt"].get<std::vector<int64_t>>();
    const auto made = body["max_tokens"].get<size_t>();
    for (size_t i = 0; i < made; ++i) ids.push_back(chain_.Next(ids.back()));
    const auto count = body["logprobs"].get<size_t>();
    Json tokens = Json::array(), values = Json::array(), top = Json::array();
    for (size_t t = 0; t < ids.size(); ++t) {
      tokens.push_back("token_id:" + std::to_string(ids[t]));
      values.push_back(nullptr);
      top.push_back(nullptr);
      if (t == 0) continue;
      const std::vector<double> row = chain_.Row(ids[t - 1]);
      values.back() = row[static_cast<size_t>(ids[t])];
      std::vector<double> sorted = row;
      std::sort(sorted.rbegin(), sorted.rend());
      top.back() = Json::object();
      for (size_t id = 0; id < row.size(); ++id) {
        if (count == 0 || row[id] < sorted[std::min(count, row.size()) - 1]) {
          continue;
        }
        top.back()["token_id:" + std::to_string(id)] = row[id];
      }
    }
    const Json logprobs = {
        {"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", top}};
    return DumpJson({{"choices", {{{"logprobs", logprobs}}}},
                     {"usage", {{"completion_tokens", made}}}});
  }

  const Chain chain_;
  const int64_t context_;
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

// Returns a reference of `chain`: ids, an answer, the `count` likeliest ids.
inline ReferencePrompt ChainPrompt(const Chain& chain, const std::string& name,
                                   std::vector<int64_t> ids, size_t answer,
                                   size_t count) {
  ReferencePrompt prompt;
  prompt.name = name;
  prompt.ids = ids;
  for (size_t i = 0; i < answer; ++i) ids.push_back(chain.Next(ids.back()));
  prompt.greedy_ids.assign(ids.begin() + std::ptrdiff_t(prompt.ids.size()),
                           ids.end());
  prompt.prompt_logprobs.push_back(std::nan(""));
  prompt.top.emplace_back();
  for (size_t t = 1; t < ids.size(); ++t) {
    const std::vector<double> row = chain.Row(ids[t - 1]);
    std::vector<std::pair<int64_t, double>> top;
    for (size_t id = 0; id < row.size(); ++id) top.emplace_back(id, row[id]);
    std::sort(top.begin(), top.end(),
              [](const auto& a, const auto& b) { return a.second > b.second; });
    top.resize(std::min(count, top.size()));
    auto& logprobs =
        t < prompt.ids.size() ? prompt.prompt_logprobs : prompt.greedy_logprobs;
    logprobs.push_back(row[static_cast<size_t>(ids[t])]);
    if (t >= prompt.ids.size()) {
      prompt.gaps.push_back(top[0].second - top[1].second);
    }
    prompt.top.push_back(std::move(top));
  }
  return prompt;
}

}  // namespace sluice::eval

#endif  // SLUICE_TESTS_TOOLS_EVAL_CHAIN_ENDPOINT_H_
