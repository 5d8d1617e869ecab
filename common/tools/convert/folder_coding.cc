// Which matrices of a folder are coded, and how its config.json says so.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/tools/convert/folder_writer.h"

namespace sluice {
namespace {

using weights::Coding;
using weights::DType;
using weights::TensorInfo;

constexpr std::string_view kLinearSuffix = ".weight";
constexpr int64_t kGroups[] = {128, 64, 32};  // the first that fits counts

bool IsMatrix(const TensorInfo& info) {
  return info.shape.size() == 2 && info.name.ends_with(kLinearSuffix);
}

// Whether some group fits the matrix.
bool HasAGroup(const TensorInfo& info, Coding coding) {
  return std::any_of(
      std::begin(kGroups), std::end(kGroups), [&](int64_t group) {
        return weights::CanEncode({coding, group}, info.rows(), info.cols());
      });
}

// Returns the group of all matrices that have one.
StatusOr<int64_t> GroupOf(const ConvertOptions& options,
                          const std::vector<const TensorInfo*>& matrices) {
  for (const int64_t group : kGroups) {
    if (options.group != 0 && options.group != group) continue;
    const auto misfit = std::find_if(
        matrices.begin(), matrices.end(),
        [&](const TensorInfo* matrix) { return matrix->cols() % group != 0; });
    if (misfit == matrices.end()) return group;
    if (options.group == 0) continue;
    return InvalidArgument("tensor '", (*misfit)->name, "' has ",
                           (*misfit)->cols(), " columns, no multiple of the ",
                           "group's ", group);
  }
  return kGroups[std::size(kGroups) - 1];
}

// Returns the modules of linear layers that are not coded. lm_head is one of
// them in any model, also where its weights are the embedding's.
std::vector<std::string> PlainModules(
    const std::vector<FolderTensor>& tensors) {
  std::vector<std::string> modules = {"lm_head"};
  for (const FolderTensor& tensor : tensors) {
    const std::string& name = tensor.info.name;
    const bool is_linear = IsMatrix(tensor.info) && !tensor.is_coded() &&
                           name.find("embed") == std::string::npos;
    if (!is_linear) continue;
    std::string module = name.substr(0, name.size() - kLinearSuffix.size());
    if (module != modules.front()) modules.push_back(std::move(module));
  }
  std::sort(modules.begin() + 1, modules.end());
  return modules;
}

// Returns GPTQModel's rules for modules that are not quantised, but for the
// head, of which a key of its own tells.
Json SkippedByPattern(const std::vector<std::string>& modules) {
  Json rules = Json::object();
  for (size_t i = 1; i < modules.size(); ++i) {
    std::string pattern;
    for (const char c : modules[i]) {
      if (c == '.') pattern += '\\';
      pattern += c;
    }
    rules[Cat("-:^", pattern, "$")] = Json::object();
  }
  return rules;
}

}  // namespace

Status ChooseCodings(const ConvertOptions& options,
                     std::vector<FolderTensor>& tensors) {
  if (options.coding == Coding::kNone) return OkStatus();
  std::vector<const TensorInfo*> matrices;
  for (const FolderTensor& tensor : tensors) {
    if (!tensor.is_coded()) continue;
    if (!IsMatrix(tensor.info)) {
      return Unimplemented("tensor '", tensor.info.name, "' of shape ",
                           weights::ShapeToString(tensor.info.shape),
                           " is no matrix of its own, as ",
                           ToString(options.coding), " needs them");
    }
    if (HasAGroup(tensor.info, options.coding)) {
      matrices.push_back(&tensor.info);
    }
  }
  if (matrices.empty()) {
    return InvalidArgument(options.model, ": no matrix can be ",
                           ToString(options.coding),
                           ": rows are multiples of 8, columns of 32");
  }
  int64_t group = kGroups[0];
  if (options.coding != Coding::kFp8) {
    SLUICE_ASSIGN_OR_RETURN(group, GroupOf(options, matrices));
  }
  for (FolderTensor& tensor : tensors) {
    if (!tensor.is_coded()) continue;
    tensor.coding.group = group;
    if (weights::CanEncode(tensor.coding, tensor.info.rows(),
                           tensor.info.cols())) {
      continue;
    }
    tensor.coding = {};
    tensor.info.dtype = DType::kBF16;
  }
  return OkStatus();
}

Json CodedQuantisation(const ConvertOptions& options,
                       const std::vector<FolderTensor>& tensors) {
  const std::vector<std::string> plain = PlainModules(tensors);
  if (options.coding == Coding::kFp8) {
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size",
             Json::array({weights::kFp8Block, weights::kFp8Block})},
            {"modules_to_not_convert", plain}};
  }
  const auto coded = std::find_if(
      tensors.begin(), tensors.end(),
      [](const FolderTensor& tensor) { return tensor.is_coded(); });
  const int64_t group = coded->coding.group;
  if (options.coding == Coding::kAwq) {
    return {{"quant_method", "awq"}, {"bits", 4},
            {"group_size", group},   {"zero_point", true},
            {"version", "gemm"},     {"modules_to_not_convert", plain}};
  }
  Json said = {{"quant_method", "gptq"},
               {"checkpoint_format", "gptq"},
               {"bits", 4},
               {"group_size", group},
               {"sym", true},
               {"desc_act", false},
               {"lm_head", false}};
  if (plain.size() > 1) said["dynamic"] = SkippedByPattern(plain);
  return said;
}

}  // namespace sluice
