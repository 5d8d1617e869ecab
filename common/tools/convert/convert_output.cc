#include "common/tools/convert/convert_output.h"

#include <cmath>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "common/base/control_group.h"
#include "common/base/json.h"
#include "common/base/text_file.h"
#include "common/model_config/open_model.h"
#include "common/weights/weight_sums.h"

namespace sluice {

namespace fs = std::filesystem;
using weights::DType;

StatusOr<ConvertTypes> ConvertTypes::Make(const ConvertOptions& options) {
  ConvertTypes types;
  types.is_coded_ = options.coding != weights::Coding::kNone;
  if (!types.is_coded_) types.type_ = options.type;
  for (const ConvertRule& rule : options.rules) {
    try {
      types.rules_.emplace_back(std::regex(rule.pattern), rule.type);
    } catch (const std::regex_error& error) {
      return InvalidArgument(rule.pattern,
                             " is no regular expression: ", error.what());
    }
  }
  return types;
}

std::optional<DType> ConvertTypes::Of(const std::string& name, int64_t cols,
                                      bool in_layer) const {
  std::optional<DType> type = RuleOf(name);
  if (!type.has_value() && in_layer) type = type_;
  if (!type.has_value() || cols % weights::BlockSizeOf(*type).elements == 0) {
    return type;
  }
  return DType::kBF16;
}

std::optional<DType> ConvertTypes::RuleOf(const std::string& name) const {
  for (const auto& rule : rules_) {
    if (std::regex_search(name, rule.first)) return rule.second;
  }
  return std::nullopt;
}

MatrixQuantizer::MatrixQuantizer(const ConvertOptions& options)
    : importance_(options.importance),
      team_(
          {.num_threads = options.threads > 0 ? options.threads : UsableCpus(),
           .name = "convert"}) {}

StatusOr<weights::QuantizedElements> MatrixQuantizer::Quantize(
    const MatrixName& matrix, DType type, const float* elements,
    int64_t count) {
  weights::QuantizeOptions options = {.executor = &team_};
  auto found = importance_.find(
      matrix.expert < 0 ? matrix.name
                        : weights::StackedName(matrix.name, matrix.expert));
  if (found == importance_.end()) found = importance_.find(matrix.name);
  if (found != importance_.end() && weights::BlocksOf(type).has_value()) {
    options.importance = found->second;
    if (static_cast<int64_t>(found->second.size()) != matrix.cols) {
      return InvalidArgument(found->first, ": the importance has ",
                             found->second.size(), " columns, the matrix has ",
                             matrix.cols);
    }
  }
  auto made = weights::Quantize(type, elements, count, options);
  if (!made.ok()) return Annotate(made.status(), matrix.name);
  return made;
}

StatusOr<weights::QuantizedElements> MatrixQuantizer::Encode(
    const MatrixName& matrix, const weights::MatrixCoding& coding,
    const float* elements, int64_t count) {
  auto made = weights::EncodeMatrix(coding, count / matrix.cols, matrix.cols,
                                    elements, &team_);
  if (!made.ok()) return Annotate(made.status(), matrix.name);
  return made;
}

void ErrorSum::Add(const float* elements, int64_t count,
                   double relative_error) {
  const double squares =
      std::inner_product(elements, elements + count, elements, 0.0);
  squares_ += squares;
  errors_ += squares * relative_error * relative_error;
}

double ErrorSum::relative() const {
  return squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
}

Status CheckRoom(const std::string& out, uint64_t bytes) {
  std::error_code error;
  const fs::path parent = fs::absolute(out).parent_path();
  const fs::space_info space = fs::space(parent, error);
  if (error) {
    return NotFound(parent.string(), ": cannot be read: ", error.message());
  }
  if (space.available >= bytes) return OkStatus();
  return ResourceExhausted(parent.string(), ": has ", space.available,
                           " bytes free, ", out, " needs ", bytes);
}

Status WriteReport(const std::string& path, const ConvertReport& report) {
  Json all = Json::array();
  for (const ConvertedMatrix& matrix : report.matrices) {
    all.push_back({{"name", matrix.name},
                   {"type", std::string(matrix.type_name())},
                   {"bytes", matrix.bytes},
                   {"relative_error", matrix.relative_error}});
  }
  return WriteTextFile(path, DumpJson(all) + "\n");
}

Status WriteSums(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const auto written, OpenModel(path));
  SLUICE_ASSIGN_OR_RETURN(const auto digest,
                          weights::ComputeIdentity(*written));
  SLUICE_ASSIGN_OR_RETURN(const auto sums,
                          weights::ComputeWeightSums(*written, digest, {}));
  return weights::WriteWeightSums(*written, sums);
}

Status FinishFile(const std::string& partial, const std::string& out,
                  const ConvertReport& report) {
  std::error_code error;
  fs::rename(partial, out, error);
  if (error) {
    return Unavailable(out, ": cannot be made: ", error.message());
  }
  SLUICE_RETURN_IF_ERROR(WriteReport(out + ".convert_report.json", report));
  return WriteSums(out);
}

}  // namespace sluice
