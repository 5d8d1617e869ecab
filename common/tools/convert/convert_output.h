#ifndef SLUICE_COMMON_TOOLS_CONVERT_CONVERT_OUTPUT_H_
#define SLUICE_COMMON_TOOLS_CONVERT_CONVERT_OUTPUT_H_

#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/encode_matrix.h"
#include "common/weights/model_file.h"
#include "common/weights/quantize.h"

namespace sluice {

// The options' types, with compiled rules.
class ConvertTypes {
 public:
  // INVALID_ARGUMENT for a rule that is no regular expression.
  static StatusOr<ConvertTypes> Make(const ConvertOptions& options);

  // Returns the type of a matrix, BF16 for rows that are no whole blocks of it;
  // nothing for one that stays as it is stored: without a rule, and outside the
  // layers or without the options' type.
  std::optional<weights::DType> Of(const std::string& name, int64_t cols,
                                   bool in_layer) const;
  // Whether a matrix gets the options' coding: one of a layer without a rule.
  bool IsCoded(const std::string& name, bool in_layer) const {
    return is_coded_ && in_layer && !RuleOf(name).has_value();
  }
  // Returns the type of the first rule that finds the name.
  std::optional<weights::DType> RuleOf(const std::string& name) const;

 private:
  std::optional<weights::DType> type_;  // none with a coding
  bool is_coded_ = false;
  std::vector<std::pair<std::regex, weights::DType>> rules_;
};

// A matrix that is quantised.
struct MatrixName {
  std::string name;  // the tensor's
  int64_t cols = 0;
  int64_t expert = -1;  // whose it is, of a tensor of all experts
};

// Quantises matrices with the importance and on the threads that the options
// say. Used by one thread.
class MatrixQuantizer {
 public:
  explicit MatrixQuantizer(const ConvertOptions& options);
  // As weights::Quantize, of `count` elements in whole rows; errors name the
  // matrix. INVALID_ARGUMENT for an importance of other columns.
  StatusOr<weights::QuantizedElements> Quantize(const MatrixName& matrix,
                                                weights::DType type,
                                                const float* elements,
                                                int64_t count);
  // As weights::EncodeMatrix, of all elements of the matrix.
  StatusOr<weights::QuantizedElements> Encode(
      const MatrixName& matrix, const weights::MatrixCoding& coding,
      const float* elements, int64_t count);

 private:
  const weights::Importance& importance_;
  ThreadTeam team_;
};

// The error of a matrix that is converted part by part.
class ErrorSum {
 public:
  // Adds `count` elements, of which Quantize told this error.
  void Add(const float* elements, int64_t count, double relative_error);
  // 0 without elements.
  double relative() const;

 private:
  double squares_ = 0;
  double errors_ = 0;
};

// RESOURCE_EXHAUSTED if the disk of `out` lacks the room.
Status CheckRoom(const std::string& out, uint64_t bytes);

Status WriteReport(const std::string& path, const ConvertReport& report);
// Writes the checksums of the model at `path`.
Status WriteSums(const std::string& path);

// Renames the whole file `partial` to `out`, a GGUF or a .m, with report and
// checksums.
Status FinishFile(const std::string& partial, const std::string& out,
                  const ConvertReport& report);

// Returns llama.cpp's number for a file whose matrices are mostly of `type`.
int64_t GgufFileTypeOf(weights::DType type);

// As ConvertModel; `model` is the GGUF of options.model.
StatusOr<ConvertReport> ConvertGguf(const ConvertOptions& options,
                                    const weights::ModelFile& model,
                                    const ConvertProgress& progress);
// As ConvertModel, a folder of a GGUF or of a .m.
StatusOr<ConvertReport> ConvertFromGguf(const ConvertOptions& options,
                                        const weights::ModelFile& model,
                                        const ConvertProgress& progress);
// As ConvertModel, a .m of any model.
StatusOr<ConvertReport> ConvertToDllama(const ConvertOptions& options,
                                        const weights::ModelFile& model,
                                        const ConvertProgress& progress);
// As ConvertModel, a GGUF of a folder or of a .m.
StatusOr<ConvertReport> ConvertToGguf(const ConvertOptions& options,
                                      const weights::ModelFile& model,
                                      const ConvertProgress& progress);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_CONVERT_CONVERT_OUTPUT_H_
