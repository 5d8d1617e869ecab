#include "common/metrics/certificate_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/base/log.h"

namespace sluice::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kName[] = "sluice_tls_certificate_expiry_timestamp_seconds";

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

class CertificateMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override { Remove(); }
  void TearDown() override { Remove(); }
  void Remove() { std::filesystem::remove(path_); }

  // Replaces the file by certificates that end at these Unix times.
  void Write(const std::vector<time_t>& ends) {
    FILE* file = fopen(path_.c_str(), "w");
    const std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>> key(
        EVP_EC_gen("P-256"));
    for (const time_t end : ends) {
      const std::unique_ptr<X509, Freed<X509_free>> x(X509_new());
      X509_gmtime_adj(X509_getm_notBefore(x.get()), -60);
      ASN1_TIME_set(X509_getm_notAfter(x.get()), end);
      X509_set_pubkey(x.get(), key.get());
      X509_sign(x.get(), key.get(), EVP_sha256());
      PEM_write_X509(file, x.get());
    }
    fclose(file);
  }
  static std::string Line(const char* use, const char* value) {
    return Cat(kName, "{use=\"", use, "\"} ", value, "\n");
  }

  const std::string path_ = std::filesystem::temp_directory_path() /
                            Cat("sluice-certificate-", getpid(), ".pem");
  Registry registry_;
};

TEST_F(CertificateMetricsTest, OfAChainTheEarliestEndIsTold) {
  Write({2000000000, 1900000000, 2100000000});
  const auto expiry = CertificateExpiry(path_);
  ASSERT_TRUE(expiry.ok()) << expiry.status();
  EXPECT_EQ(*expiry, 1900000000);
}

TEST_F(CertificateMetricsTest, AFileThatIsNoCertificateIsNamed) {
  const auto none = CertificateExpiry(path_);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(none.status()), HasSubstr(path_));
  Write({});
  const auto empty = CertificateExpiry(path_);
  EXPECT_EQ(empty.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(empty.status()),
              HasSubstr("no PEM certificate in 0 bytes"));
}

TEST_F(CertificateMetricsTest, ThoseForPeersAreFollowed) {
  Write({2000000000});
  AddPeerCertificates(registry_, path_, path_);
  Write({2100000000});
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(Line("peers", "2100000000")));
  EXPECT_THAT(text, HasSubstr(Line("peers_ca", "2100000000")));
}

TEST_F(CertificateMetricsTest, ARenewedFileIsFollowedAndABrokenOneIsNot) {
  Write({2000000000});
  AddCertificateExpiry(registry_, "http", path_);
  EXPECT_THAT(registry_.Text(), HasSubstr(Line("http", "2000000000")));
  Write({2100000000});
  EXPECT_THAT(registry_.Text(), HasSubstr(Line("http", "2100000000")));
  Write({});
  EXPECT_THAT(registry_.Text(), HasSubstr(Line("http", "2100000000")));
}

TEST_F(CertificateMetricsTest, WithoutAFileThereIsNoSeries) {
  AddPeerCertificates(registry_, "", "");
  AddCertificateExpiry(registry_, "http", path_);
  EXPECT_THAT(registry_.Text(), Not(HasSubstr(kName)));
}

}  // namespace
}  // namespace sluice::metrics
