#pragma once

#include <cstddef>
#include <cstdint>

/// What a weight file may declare, whatever its format. Every limit is checked before memory is taken
/// for what is declared, so that a file costs no more than a small multiple of its own bytes. For the same reason what a
/// file names is looked up in ordered containers: std::hash can be made to collide.
namespace attn::formats {

/// The most tensors of a file, and the most other leaves.
inline constexpr std::size_t kMaxTensors = 1'000'000;
/// The most dimensions of a tensor.
inline constexpr std::size_t kMaxDimensions = 64;
/// The most bytes of all names together, after nested names were joined.
inline constexpr std::size_t kMaxNameBytes = 256'000'000;
/// The deepest nesting of containers in a pickle and of names in a checkpoint.
inline constexpr std::size_t kMaxDepth = 100;
/// The longest pickle, in bytes.
inline constexpr std::uint64_t kMaxPickle = 256'000'000;
/// The most values that a pickle may make.
inline constexpr std::size_t kMaxPickleValues = 16'000'000;
/// The most records of a zip archive.
inline constexpr std::size_t kMaxZipRecords = 2'000'000;
/// The longest JSON or source text inside an archive, in bytes.
inline constexpr std::uint64_t kMaxText = 100'000'000;
/// The longest header of a .npy file, in bytes, as NumPy reads unless told otherwise.
inline constexpr std::uint64_t kMaxNpyHeader = 10'000;

}  // namespace attn::formats
