#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "common/base/cat.h"
#include "common/tools/doctor/setup_check.h"

namespace sluice::doctor {
namespace {

using ::testing::HasSubstr;

constexpr time_t kNow = 1'800'000'000;
constexpr time_t kDay = 24 * 60 * 60;

template <auto Free>
struct FreedBy {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;

class CheckTlsTest : public ::testing::Test {
 protected:
  CheckTlsTest()
      : folder_(
            (std::filesystem::temp_directory_path() / Cat("tls-", ::getpid()))
                .string()) {
    std::filesystem::create_directories(folder_);
    files_ = {folder_ + "/c.pem", folder_ + "/k.pem", folder_ + "/a.pem"};
    WriteCertificate(files_.authority, authority_, authority_, 400);
    WriteCertificate(files_.certificate, own_, authority_, 400);
    WriteKey(own_);
  }
  ~CheckTlsTest() override { std::filesystem::remove_all(folder_); }

  static void WriteCertificate(const std::string& path, const Key& key,
                               const Key& signer, int days) {
    const std::unique_ptr<X509, FreedBy<X509_free>> x(X509_new());
    ASN1_TIME_set(X509_getm_notBefore(x.get()), kNow - 500 * kDay);
    ASN1_TIME_set(X509_getm_notAfter(x.get()), kNow + days * kDay + 60);
    X509_set_pubkey(x.get(), key.get());
    X509_sign(x.get(), signer.get(), EVP_sha256());
    std::FILE* const file = std::fopen(path.c_str(), "w");
    PEM_write_X509(file, x.get());
    std::fclose(file);
  }
  void WriteKey(const Key& key) const {
    std::FILE* const file = std::fopen(files_.key.c_str(), "w");
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr,
                         nullptr);
    std::fclose(file);
  }
  // Returns the finding that is not fine; they must be one.
  Finding Fault() const {
    Findings faults;
    for (Finding& finding : CheckTls(files_, kNow)) {
      if (finding.level != Level::kFine) faults.push_back(std::move(finding));
    }
    EXPECT_EQ(faults.size(), 1u);
    return faults.empty() ? Finding() : faults[0];
  }

  std::string folder_;
  TlsFiles files_;
  const Key own_{EVP_EC_gen("P-256")};
  const Key authority_{EVP_EC_gen("P-256")};
  const Key stranger_{EVP_EC_gen("P-256")};
};

TEST_F(CheckTlsTest, GoodFilesAreFineAndNoFilesAreNoFinding) {
  const Findings findings = CheckTls(files_, kNow);
  EXPECT_EQ(findings.size(), 4u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.level, Level::kFine) << finding.what;
  }
  EXPECT_TRUE(CheckTls({}, kNow).empty());
  EXPECT_EQ(CheckTls({"", files_.key, ""}, kNow)[0].level, Level::kProblem);
}

TEST_F(CheckTlsTest, AnEndIsToldBeforeAndAfter) {
  WriteCertificate(files_.certificate, own_, authority_, 5);
  EXPECT_EQ(Fault().level, Level::kNote);
  EXPECT_THAT(Fault().what, HasSubstr("valid for 5 days"));
  WriteCertificate(files_.certificate, own_, authority_, -3);
  EXPECT_EQ(Fault().level, Level::kProblem);
  EXPECT_THAT(Fault().what, HasSubstr("expired 3 days ago"));
}

TEST_F(CheckTlsTest, AStrangersKeyAndAuthorityAreFound) {
  WriteKey(stranger_);
  EXPECT_THAT(Fault().what, HasSubstr("is not the certificate's"));
  WriteKey(own_);
  WriteCertificate(files_.authority, stranger_, stranger_, 400);
  EXPECT_THAT(Fault().what, HasSubstr("has not signed the certificate"));
}

TEST_F(CheckTlsTest, FilesThatAreMissingAreNamed) {
  std::filesystem::remove(files_.key);
  EXPECT_THAT(Fault().what, HasSubstr("k.pem"));
}

}  // namespace
}  // namespace sluice::doctor
