#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_CLIENT_CALLBACK_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_CLIENT_CALLBACK_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <utility>

#include "tests/simulation/call_end.h"

namespace grpc {

template <typename Out, typename In>
class ClientBidiReactor : public sluice::simulation::Reactor {
 public:
  virtual void OnReadDone(bool) {}
  virtual void OnWriteDone(bool) {}
  virtual void OnDone(const Status&) {}

  void StartCall() { end_->Start(); }
  void StartRead(In* in) {
    in_ = in;
    end_->Read();
  }
  void StartWrite(const Out* out) { end_->Write(std::make_shared<Out>(*out)); }
  void StartWritesDone() { end_->EndWrites(); }
  void AddHold() { end_->AddHold(); }
  void RemoveHold() { end_->RemoveHold(); }

  void Bind(std::shared_ptr<sluice::simulation::CallEnd> end) {
    end_ = std::move(end);
  }

 private:
  void Take(void* message) final { *in_ = *static_cast<In*>(message); }
  void TellRead(bool ok) final { OnReadDone(ok); }
  void TellWrite(bool ok) final { OnWriteDone(ok); }
  void TellCancel() final {}
  void TellDone(const Status& status) final {
    const auto kept = std::move(end_);
    OnDone(status);
  }

  std::shared_ptr<sluice::simulation::CallEnd> end_;
  In* in_ = nullptr;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_CLIENT_CALLBACK_H_
