#ifndef SLUICE_COMMON_MODEL_CONFIG_GGUF_VIEW_H_
#define SLUICE_COMMON_MODEL_CONFIG_GGUF_VIEW_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_contents.h"

namespace sluice {

// Returns the double with the shortest decimal form that rounds to this float:
// 1e-05 as in config.json, which a GGUF stores as F32.
double ShortestDouble(double stored);

// Reads a vector of F32. INVALID_ARGUMENT for another tensor, or one that is
// too long for RoPE.
StatusOr<std::vector<float>> ReadRopeVector(
    const weights::LocatedTensor& tensor);

// An opened GGUF whose tensors have their own names. A key that begins with a
// dot is the architecture's: ".block_count" is "llama.block_count". `asked`
// gets the keys that are asked for. A cheap value; all it is made of must
// outlive it.
class GgufView {
 public:
  GgufView(const weights::ModelContents& contents,
           std::string_view architecture, std::set<std::string>& asked)
      : contents_(contents), architecture_(architecture), asked_(asked) {}

  // Returns the whole key, and notes that it is asked for.
  std::string Key(std::string_view key) const;
  bool Has(std::string_view key) const;
  // INVALID_ARGUMENT for another type or an absent key.
  StatusOr<int64_t> Int(std::string_view key) const;
  StatusOr<double> Float(std::string_view key) const;  // a ShortestDouble
  StatusOr<bool> Bool(std::string_view key) const;
  const weights::GgufMetadata& metadata() const { return *contents_.gguf; }
  // Returns null if absent.
  const weights::LocatedTensor* FindTensor(std::string_view name) const;

 private:
  const weights::ModelContents& contents_;
  const std::string_view architecture_;
  std::set<std::string>& asked_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_GGUF_VIEW_H_
