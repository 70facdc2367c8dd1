#pragma once

#include <attn/export.h>
#include <attn/weights.h>

#include <optional>
#include <string>
#include <string_view>

namespace attn {

/// The suffixes that `format_by_suffix` knows, for errors.
inline constexpr std::string_view kWrittenSuffixes =
    ".safetensors, .pt, .pth, .bin, .ckpt, .ts, .npz or .npy";

/// The format that the end of a path names; nothing where it names none.
ATTN_API std::optional<WeightFormat> format_by_suffix(std::string_view path);

}  // namespace attn
