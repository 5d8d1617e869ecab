#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "common/base/cat.h"
#include "common/base/text_file.h"
#include "common/metrics/certificate_metrics.h"
#include "common/tools/doctor/setup_check.h"

namespace sluice::doctor {
namespace {

constexpr double kDay = 24 * 60 * 60;
constexpr double kSoonDays = 14;

template <auto Free>
struct ByFree {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using OwnBio = std::unique_ptr<BIO, ByFree<BIO_free>>;
using OwnKey = std::unique_ptr<EVP_PKEY, ByFree<EVP_PKEY_free>>;
using OwnCertificate = std::unique_ptr<X509, ByFree<X509_free>>;

OwnBio Reader(const std::string& pem) {
  return OwnBio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

OwnCertificate FirstCertificate(const std::string& pem) {
  return OwnCertificate(
      PEM_read_bio_X509(Reader(pem).get(), nullptr, nullptr, nullptr));
}

Finding JudgeExpiry(const std::string& area, const std::string& path,
                    double now) {
  const auto end = metrics::CertificateExpiry(path);
  if (!end.ok()) {
    return Problem(area, Message(end.status()), "make certificates anew");
  }
  const double days = std::floor((*end - now) / kDay);
  if (*end <= now) {
    return Problem(area, Cat(path, ": expired ", -days, " days ago"),
                   "peers refuse it: make certificates anew and restart");
  }
  const std::string what = Cat(path, ": valid for ", days, " days");
  if (days < kSoonDays) {
    return Note(area, what, "renew it, and restart the processes one by one");
  }
  return Fine(area, what);
}

Finding JudgeKey(const std::string& certificate_pem, const std::string& path) {
  const auto pem = ReadTextFile(path);
  if (!pem.ok()) {
    return Problem("TLS key", Message(pem.status()), "the user must read it");
  }
  const OwnCertificate certificate = FirstCertificate(certificate_pem);
  const OwnKey key(
      PEM_read_bio_PrivateKey(Reader(*pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return Problem("TLS key", Cat(path, ": no PEM key without a passphrase"),
                   "give the certificate's own key");
  }
  const bool fits = certificate != nullptr &&
                    X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return Problem("TLS key", Cat(path, ": is not the certificate's"),
                   "give the certificate's own key");
  }
  return Fine("TLS key", Cat(path, ": the certificate's"));
}

// Is the certificate signed by one of the authority's?
Finding JudgeSigner(const std::string& certificate_pem,
                    const std::string& authority_pem, const std::string& path) {
  const OwnCertificate certificate = FirstCertificate(certificate_pem);
  const OwnBio bio = Reader(authority_pem);
  bool signed_by = false;
  while (const OwnCertificate authority{
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    signed_by |=
        certificate != nullptr &&
        X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) == 1;
  }
  ERR_clear_error();
  if (signed_by) return Fine("TLS authority", Cat(path, ": signed it"));
  return Problem("TLS authority", Cat(path, ": has not signed the certificate"),
                 "peers refuse each other: all processes need one authority");
}

}  // namespace

Findings CheckTls(const TlsFiles& files, double now) {
  Findings findings;
  if (files.certificate.empty() && files.key.empty() &&
      files.authority.empty()) {
    return findings;
  }
  if (files.certificate.empty()) {
    return {Problem("TLS certificate", "not given",
                    "--tls-cert goes with --tls-key and --tls-ca")};
  }
  findings.push_back(JudgeExpiry("TLS certificate", files.certificate, now));
  const std::string certificate = ReadTextFile(files.certificate).value_or("");
  if (!files.key.empty()) {
    findings.push_back(JudgeKey(certificate, files.key));
  }
  if (!files.authority.empty()) {
    findings.push_back(JudgeExpiry("TLS authority", files.authority, now));
    const std::string authority = ReadTextFile(files.authority).value_or("");
    findings.push_back(JudgeSigner(certificate, authority, files.authority));
  }
  return findings;
}

}  // namespace sluice::doctor
