#ifndef SLUICE_COMMON_METRICS_CERTIFICATE_METRICS_H_
#define SLUICE_COMMON_METRICS_CERTIFICATE_METRICS_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/metrics/metrics.h"

namespace sluice::metrics {

// Returns the earliest end of validity, in Unix time, of the certificates in
// the PEM file at `path`. Errors: NOT_FOUND for a file that cannot be read,
// INVALID_ARGUMENT for one without a certificate; both name the file.
StatusOr<double> CertificateExpiry(const std::string& path);

// Adds sluice_tls_certificate_expiry_timestamp_seconds{use} of the PEM file at
// `path`, as each scrape finds the file; one that cannot read it changes
// nothing. An empty path adds nothing. A file that cannot be read now is
// logged, and adds nothing.
void AddCertificateExpiry(Registry& registry, std::string_view use,
                          const std::string& path);

// Adds the series of a process's own certificate and authority: use "peers" and
// "peers_ca". Empty paths add nothing.
void AddPeerCertificates(Registry& registry, const std::string& certificate,
                         const std::string& authority);

}  // namespace sluice::metrics

#endif  // SLUICE_COMMON_METRICS_CERTIFICATE_METRICS_H_
