#include "modules/checks.h"

#include <ATen/ExpandUtils.h>
#include <c10/util/Exception.h>

#include "functional/checks.h"

namespace attn {

void check_sequence(std::string_view module, std::string_view name, const at::Tensor& tensor,
                    int64_t features, std::string_view layout, const at::Tensor& parameter) {
  check_shape(module, name, tensor, {-1, -1, features}, layout);
  check_like(module, name, tensor, "the parameters", parameter);
}

void check_mask_shape(std::string_view module, const at::Tensor& mask, at::IntArrayRef shape,
                      std::string_view advice) {
  TORCH_CHECK(at::is_expandable_to(mask.sizes(), shape), "[", module, "] mask: expected ", advice,
              ", got ", shape_text(mask));
}

}  // namespace attn
