#ifndef SLUICE_TESTS_KERNELS_BLOCK_AVXVNNI_EMULATED_H_
#define SLUICE_TESTS_KERNELS_BLOCK_AVXVNNI_EMULATED_H_

#include "kernels/cpu/block_ops.h"

namespace sluice::kernels::cpu {

// AVX-VNNI's products, vpdpbusd made of AVX2's instructions: for machines
// without it. Defined on x86-64 only.
extern const BlockOps kEmulatedAvxVnniBlockOps;

}  // namespace sluice::kernels::cpu

#endif  // SLUICE_TESTS_KERNELS_BLOCK_AVXVNNI_EMULATED_H_
