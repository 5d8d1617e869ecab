#ifndef SLUICE_COMMON_RPC_GRPC_LOG_H_
#define SLUICE_COMMON_RPC_GRPC_LOG_H_

namespace sluice::rpc {

// What gRPC has to say becomes lines of our log, short and few: it quotes
// what peers send, as often as they send it. For the whole process, once.
void TakeGrpcLog();

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_GRPC_LOG_H_
