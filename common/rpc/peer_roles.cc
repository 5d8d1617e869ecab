#include "common/rpc/peer_roles.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

namespace sluice::rpc {
namespace {

template <auto Free>
struct FreedBy {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

using BioPtr = std::unique_ptr<BIO, FreedBy<BIO_free>>;
using CertificatePtr = std::unique_ptr<X509, FreedBy<X509_free>>;

// Null for a file that is none, or cannot be read.
CertificatePtr ReadCertificate(const std::string& path) {
  const BioPtr file(BIO_new_file(path.c_str(), "r"));
  CertificatePtr certificate(
      file == nullptr
          ? nullptr
          : PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " or ") + word;
  }
  return text;
}

std::vector<std::string> UrisOf(const X509* certificate) {
  std::vector<std::string> uris;
  const std::unique_ptr<GENERAL_NAMES, FreedBy<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
          certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

}  // namespace

std::vector<std::string> RolesOf(const std::vector<std::string>& uris) {
  std::vector<std::string> roles;
  for (const std::string& uri : uris) {
    if (uri.starts_with(kRoleUri)) roles.push_back(uri.substr(kRoleUri.size()));
  }
  return roles;
}

StatusOr<std::vector<std::string>> RolesOfFile(const std::string& path) {
  const CertificatePtr certificate = ReadCertificate(path);
  if (certificate != nullptr) return RolesOf(UrisOf(certificate.get()));
  return NotFound("certificate ", path, ": no PEM certificate can be read");
}

Status CheckKeyPair(const std::string& certificate, const std::string& key) {
  const CertificatePtr shown = ReadCertificate(certificate);
  const BioPtr file(BIO_new_file(key.c_str(), "r"));
  const std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>> secret(
      file == nullptr
          ? nullptr
          : PEM_read_bio_PrivateKey(file.get(), nullptr, nullptr, nullptr));
  const bool fit = shown != nullptr && secret != nullptr &&
                   X509_check_private_key(shown.get(), secret.get()) == 1;
  ERR_clear_error();
  if (fit) return OkStatus();
  return Unavailable("the TLS files are bad: ", certificate, " and ", key,
                     " are no PEM certificate and its private key");
}

StatusOr<bool> RequiresRoles(const TransportOptions& options) {
  if (options.roles != TlsRoles::kAuto) {
    return options.roles == TlsRoles::kRequire;
  }
  if (!options.tls()) return false;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> own,
                          RolesOfFile(options.tls_cert));
  return !own.empty();
}

Status CheckServerRole(std::string_view wanted,
                       const std::vector<std::string>& roles, bool required) {
  if (roles.empty() && !required) return OkStatus();
  if (std::ranges::count(roles, wanted) > 0) return OkStatus();
  return MakeStatus(
      StatusCode::kPermissionDenied, "the server must be a ", wanted,
      "; its certificate ",
      roles.empty() ? std::string("names no role") : "says " + Joined(roles));
}

Status CheckRole(const MethodRoles& rules, std::string_view method,
                 const std::vector<std::string>& roles, bool required) {
  const auto rule = rules.find(method);
  if (rule == rules.end()) return OkStatus();
  if (roles.empty() && !required) return OkStatus();
  const std::vector<std::string>& allowed = rule->second;
  const bool has = std::any_of(
      roles.begin(), roles.end(), [&allowed](const std::string& role) {
        return std::find(allowed.begin(), allowed.end(), role) != allowed.end();
      });
  if (has) return OkStatus();
  return MakeStatus(
      StatusCode::kPermissionDenied, method, " is for a ", Joined(allowed),
      "; the caller's certificate ",
      roles.empty() ? std::string("names no role") : "says " + Joined(roles));
}

}  // namespace sluice::rpc
