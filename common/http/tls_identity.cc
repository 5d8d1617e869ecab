#include "common/http/tls_identity.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/log.h"

namespace sluice::http {
namespace {

// OpenSSL's latest error on this thread, in words; clears them.
std::string OpenSslError() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, text, sizeof(text));
  }
  ERR_clear_error();
  return text;
}

// Of what a client offers, HTTP/1.1 alone is spoken here.
int ChooseProtocol(SSL* /*ssl*/, const unsigned char** out,
                   unsigned char* out_size, const unsigned char* in,
                   unsigned in_size, void* /*unused*/) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, out_size, kOurs,
                                          sizeof(kOurs) - 1, in, in_size);
  if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Status UseFiles(SSL_CTX* context, const TlsFiles& files) {
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) !=
      1) {
    return InvalidArgument("TLS certificate ", files.certificate, ": ",
                           OpenSslError());
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(),
                                  SSL_FILETYPE_PEM) != 1) {
    return InvalidArgument("TLS key ", files.key, ": ", OpenSslError());
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return InvalidArgument("TLS key ", files.key,
                           " does not belong to certificate ",
                           files.certificate);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<TlsIdentity>> TlsIdentity::Open(TlsFiles files) {
  auto identity =
      std::unique_ptr<TlsIdentity>(new TlsIdentity(std::move(files)));
  SLUICE_RETURN_IF_ERROR(identity->Load());
  identity->watch_ =
      std::make_unique<FileWatch>("http-tls", [watched = identity.get()] {
        if (const Status loaded = watched->Load(); !loaded.ok()) {
          LogError(Message(loaded), "; the certificate from before stays");
        }
      });
  return identity;
}

Status TlsIdentity::Load() {
  for (const std::string* path : {&files_.certificate, &files_.key}) {
    if (VersionOf(*path)) continue;
    const std::string why = std::strerror(errno);
    // Told once, not every second.
    auto& seen = path == &files_.key ? key_version_ : certificate_version_;
    if (std::exchange(seen, FileVersion()) == FileVersion()) return OkStatus();
    return InvalidArgument("TLS file ", *path, ": ", why);
  }
  const auto certificate = VersionOf(files_.certificate);
  const auto key = VersionOf(files_.key);
  if (certificate == certificate_version_ && key == key_version_) {
    return OkStatus();
  }
  certificate_version_ = certificate;
  key_version_ = key;
  auto context = std::make_shared<Context>(Context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  // An encrypted key is an error: OpenSSL would ask the terminal for a
  // password.
  SSL_CTX_set_default_passwd_cb(native,
                                [](char*, int, int, void*) { return 0; });
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                  SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(native, ChooseProtocol, nullptr);
  SLUICE_RETURN_IF_ERROR(UseFiles(native, files_));
  if (key && (key->mode & S_IROTH) != 0) {
    LogWarning("TLS key ", files_.key,
               ": everybody on this machine may read "
               "it");
  }
  LogInfo("TLS certificate read from ", files_.certificate);
  MutexLock lock(mutex_);
  context_ = std::move(context);
  return OkStatus();
}

std::shared_ptr<TlsIdentity::Context> TlsIdentity::Current() const {
  MutexLock lock(mutex_);
  return context_;
}

}  // namespace sluice::http
