#include <openssl/evp.h>

#include <memory>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/weights/model_file.h"

namespace sluice::weights {
namespace {

// SHA-256 of a list of fields, each led by its length, so that no two lists
// give the same bytes.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    SLUICE_CHECK(context_ != nullptr);
    SLUICE_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Field(std::string_view bytes) {
    Number(bytes.size());
    Update(bytes.data(), bytes.size());
  }
  void Number(uint64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) {
      bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    }
    Update(bytes, sizeof(bytes));
  }
  ModelDigest Finish() {
    ModelDigest digest;
    unsigned int size = 0;
    SLUICE_CHECK(
        EVP_DigestFinal_ex(context_.get(), digest.bytes.data(), &size) == 1);
    SLUICE_CHECK(size == digest.bytes.size());
    return digest;
  }

 private:
  void Update(const void* data, size_t size) {
    SLUICE_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }

  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// Adds a stored tensor's name, type, shape and first bytes.
Status AddTensor(const ModelFile& model, const std::string& name, Sha256& sha) {
  const TensorInfo* tensor = model.FindStored(name);
  SLUICE_CHECK(tensor != nullptr);
  sha.Field(name);
  sha.Field(ToString(tensor->dtype));
  sha.Field(ShapeToString(tensor->shape));
  SLUICE_ASSIGN_OR_RETURN(const std::string sample,
                          model.ReadStoredPrefix(name, kIdentityBytes));
  sha.Field(sample);
  return OkStatus();
}

}  // namespace

std::string ModelDigest::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

StatusOr<ModelDigest> ComputeIdentity(const ModelFile& model) {
  if (!model.computed().has_value()) return WholeIdentity(model);
  const ComputedParts& parts = *model.computed();
  Sha256 sha;
  sha.Field("sluice model identity 2");
  sha.Field(parts.config);
  sha.Number(parts.tensors.size());
  for (const std::string& name : parts.tensors) {
    SLUICE_RETURN_IF_ERROR(AddTensor(model, name, sha));
  }
  return sha.Finish();
}

StatusOr<ModelDigest> WholeIdentity(const ModelFile& model) {
  Sha256 sha;
  sha.Field("sluice model identity 1");
  // A map sorted by key: the order in the file does not count.
  const SortedJson sorted = model.config();
  sha.Field(sorted.dump(-1, ' ', false, SortedJson::error_handler_t::replace));
  sha.Number(model.tensors().size());
  for (const TensorInfo& tensor : model.tensors()) {
    SLUICE_RETURN_IF_ERROR(AddTensor(model, tensor.name, sha));
  }
  return sha.Finish();
}

}  // namespace sluice::weights
