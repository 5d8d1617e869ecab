#ifndef SLUICE_COMMON_RPC_GRPC_LOG_H_
#define SLUICE_COMMON_RPC_GRPC_LOG_H_

namespace sluice::rpc {

// Sends gRPC's messages to the process' log, shortened and limited in rate,
// since they quote peers. GRPC_VERBOSITY may ask for more than errors, not for
// less. Once per process.
void TakeGrpcLog();

// gRPC 1.51 gives a listener up for good when accept fails, as it does without
// descriptors: who is connected is served on, and no other can connect any
// more. From then on the process is deaf. `handler` is called once: at that
// moment, on a thread of gRPC, or at once if it has come. It may not block.
void OnDeaf(void (*handler)());
bool IsDeaf();

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_GRPC_LOG_H_
