#ifndef SLUICE_TESTS_SIMULATION_CLIENT_H_
#define SLUICE_TESTS_SIMULATION_CLIENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/core/generate_request.h"
#include "tests/engine/fake_pipeline.h"

namespace sluice::simulation {

// A client of one sequence. Holds every event against the history that the
// sequence has alone, and fails the world at the first difference.
class Client : public TokenSink {
 public:
  explicit Client(GenerateRequest request);

  const GenerateRequest& request() const { return request_; }
  void OnTokens(TokenEvent event) override;
  void OnEnd(FinalEvent event) override;
  void OnSuspend() override { ++suspensions_; }

  // The client cancels: its history may end early.
  void OnCancelled() { cancelled_ = true; }
  // Its gateway is gone: what it hears no longer counts.
  void Leave() { left_ = true; }
  bool left() const { return left_; }
  bool ended() const { return ended_; }
  bool cancelled() const { return cancelled_; }
  // Why it ended early: a rule that allows it, or nothing.
  const std::string& excuse() const { return excuse_; }
  int64_t tokens() const { return static_cast<int64_t>(told_); }
  int64_t suspensions() const { return suspensions_; }

 private:
  void CheckPrompt(const TokenEvent& event);
  void CheckLogits(const TokenEvent& event);
  void CheckWhole(const FinalEvent& event);
  void Fail(const std::string& why) const;

  const GenerateRequest request_;
  const Expected alone_;
  std::vector<TokenId> history_;  // all of it
  size_t told_ = 0;
  size_t prompt_told_ = 0;
  size_t rows_told_ = 0;
  bool cancelled_ = false;
  bool left_ = false;
  bool ended_ = false;
  std::string excuse_;
  int64_t suspensions_ = 0;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_CLIENT_H_
