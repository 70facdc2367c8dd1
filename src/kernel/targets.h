#pragma once

// The targets of Highway that the kernel is compiled for. Included ahead of Highway's own files.

// Highway avoids EMU128, its portable target, with early GCC 12, for a fault in how that vectorises
// products' upper halves. Dropout alone takes some, from lanes of 64 bits, which its tests see unharmed;
// and HWY_SCALAR lacks what a tile needs.
#define HWY_BROKEN_EMU128 0
// Scalable vectors have no size that a tile could be built on; AVX3_DL adds nothing that is used.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
