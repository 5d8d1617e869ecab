#ifndef SLUICE_COMMON_MODEL_CONFIG_TENSOR_ROWS_H_
#define SLUICE_COMMON_MODEL_CONFIG_TENSOR_ROWS_H_

#include <span>

#include "common/model_config/tensor_table.h"

// The rows that tables of families do without: those outside the layers, and
// the matrices of experts.
namespace sluice {

std::span<const TensorRow> TopRowsOf(const TensorTable* table);
std::span<const TensorRow> ExpertRowsOf(const TensorTable& table,
                                        ExpertStorage storage);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_TENSOR_ROWS_H_
