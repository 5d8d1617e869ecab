#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_GENERIC_GENERIC_STUB_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_GENERIC_GENERIC_STUB_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <string>
#include <utility>

namespace grpc {

struct StubOptions {};

template <typename Out, typename In>
class TemplatedGenericStub {
 public:
  explicit TemplatedGenericStub(std::shared_ptr<Channel> channel)
      : channel_(std::move(channel)) {}

  void PrepareBidiStreamingCall(ClientContext* context,
                                const std::string& method, StubOptions,
                                ClientBidiReactor<Out, In>* reactor) {
    context->end = channel_->Prepare(method, context->metadata, reactor);
    reactor->Bind(context->end);
  }

 private:
  const std::shared_ptr<Channel> channel_;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_GENERIC_GENERIC_STUB_H_
