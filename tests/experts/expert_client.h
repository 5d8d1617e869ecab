#ifndef SLUICE_TESTS_EXPERTS_EXPERT_CLIENT_H_
#define SLUICE_TESTS_EXPERTS_EXPERT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/hosted_experts.h"
#include "common/wire/expert.h"
#include "services/expert/expert_server.h"

namespace sluice::testing {

// Hidden size of glm4_moe-air, which the tests here serve.
inline constexpr int32_t kHidden = 64;

// One stream of Batches, as a test asks over it. All calls wait at most 30 s.
class ExpertClient {
 public:
  // The stream is opened by the first of the calls below.
  explicit ExpertClient(const std::string& address);
  ~ExpertClient();
  ExpertClient(const ExpertClient&) = delete;
  ExpertClient& operator=(const ExpertClient&) = delete;

  // Opens the stream with a hello and waits for the welcome, or for how it
  // ends. First, if at all: a stream has one hello.
  StatusOr<wire::ExpertWelcome> Hello(const v1::ExpertHello& hello);
  StatusOr<wire::ExpertWelcome> Hello(const HostedExpertsInfo& info);

  // Sends; x is copied. `batch_id` must be unused.
  void Send(const wire::ExpertBatch& batch);
  // What `batch` was answered with, or how the stream ended.
  StatusOr<wire::ExpertResult> Wait(const wire::ExpertBatch& batch);
  StatusOr<wire::ExpertResult> Ask(const wire::ExpertBatch& batch) {
    Send(batch);
    return Wait(batch);
  }
  StatusOr<v1::ExpertPong> Ping(uint64_t sequence);
  // The pong that nobody asked for.
  StatusOr<v1::ExpertPong> WaitUnaskedPong();

  // Any head and payload; any bytes.
  void SendFrame(const v1::ExpertFrame& head, const Buffer& payload);
  void SendBytes(const std::string& bytes);
  void HalfClose();
  // How the stream ended; DEADLINE_EXCEEDED if it did not.
  Status WaitEnd();

 private:
  class Stream;
  Stream& Opened(const std::string& hello = "");
  const std::shared_ptr<Stream> stream_;
  bool opened_ = false;
};

// A hello that suits a host with `info`.
wire::ExpertHello HelloFor(const HostedExpertsInfo& info);

// A server on a free port of this machine, loaded.
std::unique_ptr<expert::ExpertServer> StartExperts(const std::string& model,
                                                   const std::string& experts);
std::unique_ptr<expert::ExpertServer> StartExperts(
    expert::ExpertServerOptions options);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_EXPERTS_EXPERT_CLIENT_H_
