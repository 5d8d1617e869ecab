#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_SERVER_CALLBACK_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_SERVER_CALLBACK_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>

#include "tests/simulation/call_end.h"

namespace grpc {

// What it is told to do before the handler has returned it waits for that.
template <typename In, typename Out>
class ServerBidiReactor : public sluice::simulation::Reactor {
 public:
  virtual void OnReadDone(bool) {}
  virtual void OnWriteDone(bool) {}
  virtual void OnCancel() {}
  virtual void OnDone() = 0;

  void StartRead(In* in) {
    in_ = in;
    end_->Read();
  }
  void StartWrite(const Out* out) { end_->Write(std::make_shared<Out>(*out)); }
  void Finish(const Status& status) { end_->Finish(status); }

 private:
  void Take(void* message) final { *in_ = *static_cast<In*>(message); }
  void TellRead(bool ok) final { OnReadDone(ok); }
  void TellWrite(bool ok) final { OnWriteDone(ok); }
  void TellCancel() final { OnCancel(); }
  void TellDone(const Status&) final {
    const auto kept = end_;
    OnDone();
  }

  // Of the call whose handler makes this object.
  const std::shared_ptr<sluice::simulation::CallEnd> end_ =
      sluice::simulation::CallEnd::Handled();
  In* in_ = nullptr;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_SERVER_CALLBACK_H_
