#include "modules/checks.h"

#include "functional/checks.h"

namespace attn {

void check_sequence(std::string_view module, std::string_view name, const at::Tensor& tensor,
                    int64_t features, std::string_view layout, const at::Tensor& parameter) {
  check_shape(module, name, tensor, {-1, -1, features}, layout);
  check_like(module, name, tensor, "the parameters", parameter);
}

}  // namespace attn
