#include "common/metrics/certificate_metrics.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "common/base/log.h"
#include "common/metrics/metric_names.h"

namespace sluice::metrics {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;

std::optional<double> EndOfValidity(const X509* certificate) {
  std::tm time{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) != 1) return {};
  return static_cast<double>(timegm(&time));
}

}  // namespace

StatusOr<double> CertificateExpiry(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text.exceptions(std::ios::badbit);  // else too little memory cuts it
  if (in) text << in.rdbuf();
  if (!in) return NotFound("certificate ", path, ": ", std::strerror(errno));
  const std::string pem = std::move(text).str();
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::optional<double> earliest;
  while (const Certificate next{
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    const std::optional<double> end = EndOfValidity(next.get());
    if (!end) {
      return InvalidArgument("certificate ", path,
                             ": an end of validity is no time");
    }
    earliest = std::min(earliest.value_or(*end), *end);
  }
  ERR_clear_error();  // the file's end is one
  if (!earliest) {
    return InvalidArgument("certificate ", path, ": no PEM certificate in ",
                           pem.size(), " bytes");
  }
  return *earliest;
}

void AddCertificateExpiry(Registry& registry, std::string_view use,
                          const std::string& path) {
  if (path.empty()) return;
  const StatusOr<double> now = CertificateExpiry(path);
  if (!now.ok()) {
    LogWarning(Message(now.status()), "; no metric tells its expiry");
    return;
  }
  const Gauge expiry =
      registry.AddGauge(names::kTlsCertificateExpiry,
                        "End of a certificate's validity, Unix time",
                        {{"use", std::string(use)}});
  expiry.Set(*now);
  registry.OnScrape([expiry, path] {
    const StatusOr<double> later = CertificateExpiry(path);
    if (later.ok()) expiry.Set(*later);
  });
}

void AddPeerCertificates(Registry& registry, const std::string& certificate,
                         const std::string& authority) {
  AddCertificateExpiry(registry, "peers", certificate);
  AddCertificateExpiry(registry, "peers_ca", authority);
}

}  // namespace sluice::metrics
