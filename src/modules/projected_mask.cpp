#include "modules/projected_mask.h"

#include <c10/util/Exception.h>

#include "functional/checks.h"

namespace attn {
namespace {

/// Leading axes of size 1 until there are four: [H|1, B|1, L|1, S|1].
at::Tensor to_heads_first(at::Tensor mask) {
  while (mask.dim() < 4) mask = mask.unsqueeze(0);
  return mask;
}

}  // namespace

Mask projected_mask(std::string_view module, const at::Tensor& mask, const at::Tensor& query,
                    LogitSizes sizes, TwoDimensions two_dimensions) {
  if (!mask.defined()) return Mask::none();
  check_bool(module, "mask", mask);
  check_device(module, "mask", mask, query);

  at::Tensor blocked = mask;
  if (mask.dim() == 2) {
    TORCH_CHECK(
        two_dimensions == TwoDimensions::kKeysPerBatch, "[", module,
        "] mask: expected [B, 1, S] for keys per batch or [1, L, S] for keys per query, got ",
        shape_text(mask));
    const bool fits =
        mask.size(1) == sizes.keys && (mask.size(0) == sizes.batch || mask.size(0) == 1);
    TORCH_CHECK(fits, "[", module, "] mask: expected two dimensions to be keys per batch, [",
                sizes.batch, " or 1, ", sizes.keys,
                "] (pass a query-by-key mask as [1, L, S]), got ", shape_text(mask));
    blocked = mask.unsqueeze(1);  // [B|1, 1, S]
  }
  check_broadcasts(module, "mask", blocked, {sizes.heads, sizes.batch, sizes.queries, sizes.keys},
                   "a shape that broadcasts to [B, L, S] or, heads first, [H, B, L, S]");
  return Mask::block(to_heads_first(blocked).transpose(0, 1));  // [B|1, H|1, L|1, S|1]
}

}  // namespace attn
