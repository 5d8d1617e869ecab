#include "common/standby/peer_secret.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "common/base/cat.h"
#include "common/http/file_watch.h"
#include "common/standby/forwarded_message.h"

namespace sluice::standby {
namespace {

using http::HttpRequest;
using http::VersionOf;

constexpr size_t kMinBytes = 16;
constexpr size_t kMaxBytes = 512;
constexpr std::string_view kForwardedFor = "x-forwarded-for";

bool IsAddress(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> space;
  return ::inet_pton(AF_INET, text.c_str(), space.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), space.data()) == 1;
}

// A link-local address has the name of an interface behind it.
std::string LastOf(std::string_view clients) {
  const size_t comma = clients.rfind(',');
  if (comma != clients.npos) clients.remove_prefix(comma + 1);
  while (clients.starts_with(' ')) clients.remove_prefix(1);
  return std::string(clients);
}

}  // namespace

StatusOr<PeerSecret> PeerSecret::Read(const std::string& path) {
  const auto bad = [&path](const auto&... why) {
    return InvalidArgument("the peers' secret ", path, ": ", why...);
  };
  const auto version = VersionOf(path);
  if (!version) return bad(std::strerror(errno));
  if (!S_ISREG(version->mode)) return bad("not a regular file");
  if ((version->mode & (S_IROTH | S_IWOTH)) != 0) {
    return bad("everybody may read or write it (chmod o-rw)");
  }
  std::ifstream in(path, std::ios::binary);
  std::string secret;
  std::getline(in, secret);
  if (in.bad() || (in.fail() && !in.eof())) return bad(std::strerror(errno));
  std::string rest;
  if (std::getline(in, rest)) return bad("it has more than one line");
  if (secret.size() < kMinBytes || secret.size() > kMaxBytes) {
    return bad("it has ", secret.size(), " characters, not ", kMinBytes, " to ",
               kMaxBytes);
  }
  if (!std::all_of(secret.begin(), secret.end(),
                   [](char c) { return c > ' ' && c < 0x7f; })) {
    return bad("it is not of printable ASCII without spaces");
  }
  return PeerSecret(secret);
}

std::string PeerSecret::Prove(const HttpRequest& request,
                              std::string_view forwarded_for) const {
  // No part can have a line end in it.
  const std::string text =
      Cat("sluice peer 1\n", request.method == "HEAD" ? "GET" : request.method,
          "\n", request.path, "\n", request.query, "\n", request.request_id,
          "\n", forwarded_for);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       digest.data(), &size);
  constexpr char kHex[] = "0123456789abcdef";
  std::string proof;
  for (unsigned i = 0; i < size; ++i) {
    proof += {kHex[digest[i] >> 4], kHex[digest[i] & 15]};
  }
  return proof;
}

bool PeerSecret::Accept(HttpRequest& request) const {
  const std::string_view proof = request.Header(kHeader);
  if (proof.empty() || request.Header(kForwardedHeader).empty()) return false;
  const std::string_view clients = request.Header(kForwardedFor);
  const std::string wanted = Prove(request, clients);
  if (proof.size() != wanted.size() ||
      CRYPTO_memcmp(proof.data(), wanted.data(), wanted.size()) != 0) {
    return false;
  }
  if (std::string client = LastOf(clients); IsAddress(client)) {
    request.peer = std::move(client);
  }
  return true;
}

}  // namespace sluice::standby
