#include "weights/save_format.h"

#include <algorithm>
#include <array>
#include <utility>

namespace attn {
namespace {

constexpr std::array kSuffixes = {
    std::pair{std::string_view(".safetensors"), WeightFormat::kSafetensors},
    std::pair{std::string_view(".pt"), WeightFormat::kStateDict},
    std::pair{std::string_view(".pth"), WeightFormat::kStateDict},
    std::pair{std::string_view(".bin"), WeightFormat::kStateDict},
    std::pair{std::string_view(".ckpt"), WeightFormat::kStateDict},
    std::pair{std::string_view(".ts"), WeightFormat::kTorchScript},
    std::pair{std::string_view(".npz"), WeightFormat::kNpz},
    std::pair{std::string_view(".npy"), WeightFormat::kNpy},
};

}  // namespace

std::optional<WeightFormat> format_by_suffix(std::string_view path) {
  const auto* found = std::ranges::find_if(
      kSuffixes, [&](const auto& suffix) { return path.ends_with(suffix.first); });
  return found == kSuffixes.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace attn
