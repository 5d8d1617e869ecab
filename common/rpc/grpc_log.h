#ifndef SLUICE_COMMON_RPC_GRPC_LOG_H_
#define SLUICE_COMMON_RPC_GRPC_LOG_H_

namespace sluice::rpc {

// Sends gRPC's messages to the process' log, shortened and limited in rate,
// since they quote peers. Once per process.
void TakeGrpcLog();

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_GRPC_LOG_H_
