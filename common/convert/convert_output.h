#ifndef SLUICE_COMMON_CONVERT_CONVERT_OUTPUT_H_
#define SLUICE_COMMON_CONVERT_CONVERT_OUTPUT_H_

#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "common/convert/convert_model.h"
#include "common/weights/model_file.h"

namespace sluice {

// The options' types, with compiled rules.
class ConvertTypes {
 public:
  // INVALID_ARGUMENT for a rule that is no regular expression.
  static StatusOr<ConvertTypes> Make(const ConvertOptions& options);

  // Returns the type of a matrix, BF16 for rows that are no whole blocks of it;
  // nothing for a matrix outside the layers that no rule finds.
  std::optional<weights::DType> Of(const std::string& name, int64_t cols,
                                   bool in_layer) const;

 private:
  weights::DType type_ = weights::DType::kBF16;
  std::vector<std::pair<std::regex, weights::DType>> rules_;
};

// RESOURCE_EXHAUSTED if the disk of `out` lacks the room.
Status CheckRoom(const std::string& out, uint64_t bytes);

Status WriteReport(const std::string& path, const ConvertReport& report);
// Writes the checksums of the model at `path`.
Status WriteSums(const std::string& path);

// As ConvertModel; `model` is the GGUF of options.model.
StatusOr<ConvertReport> ConvertGguf(const ConvertOptions& options,
                                    const weights::ModelFile& model,
                                    const ConvertProgress& progress);

}  // namespace sluice

#endif  // SLUICE_COMMON_CONVERT_CONVERT_OUTPUT_H_
