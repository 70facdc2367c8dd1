#pragma once

#include <cstddef>
#include <cstdint>

/// What a weight file may declare, whatever its format. Every limit is checked before memory is taken
/// for what is declared, so that a file costs no more than a small multiple of its own bytes. For the
/// same reason what a file names is looked up in ordered containers: std::hash can be made to collide.
namespace attn::formats {

/// The most tensors of a file, and the most other leaves.
inline constexpr std::size_t kMaxTensors = 1'000'000;
/// The most dimensions of a tensor.
inline constexpr std::size_t kMaxDimensions = 64;
/// The most bytes of all names together, after nested names were joined.
inline constexpr std::size_t kMaxNameBytes = 100'000'000;
/// The deepest nesting of containers in a pickle and of names in a checkpoint.
inline constexpr std::size_t kMaxDepth = 100;
/// The longest pickle, in bytes.
inline constexpr std::uint64_t kMaxPickle = 256'000'000;
/// The most values that a pickle may make; each takes 48 bytes.
inline constexpr std::size_t kMaxPickleValues = 4'000'000;
/// The most opcodes of a pickle; each may put a few bytes on its stack, into its memo or into a list.
inline constexpr std::size_t kMaxPickleOpcodes = 32'000'000;
/// The longest key of a storage, which each of its tensors looks up. PyTorch's are numbers.
inline constexpr std::size_t kMaxStorageKey = 512;
/// The most classes that the code of a TorchScript archive may declare.
inline constexpr std::size_t kMaxClasses = 100'000;
/// The most records of a zip archive.
inline constexpr std::size_t kMaxZipRecords = 2'000'000;
/// What the deflated records of an archive may become together: so many times the archive's bytes, or
/// this many bytes.
inline constexpr std::uint64_t kMostInflatedTimes = 100;
inline constexpr std::uint64_t kMostInflatedBytes = 64'000'000;
/// What the deflated storages of all shards together may become, in bytes. Nobody deflates shards.
inline constexpr std::uint64_t kMostInflatedShards = 1'000'000'000;
/// The longest JSON or source text inside an archive, in bytes.
inline constexpr std::uint64_t kMaxText = 100'000'000;
/// The longest header of a .npy file, in bytes, as NumPy reads unless told otherwise.
inline constexpr std::uint64_t kMaxNpyHeader = 10'000;

}  // namespace attn::formats
