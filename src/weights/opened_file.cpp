#include "weights/opened_file.h"

#include <attn/weights.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/npy.h"
#include "weights/formats/pt2.h"
#include "weights/formats/safetensors.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/torchscript.h"
#include "weights/formats/zip.h"
#include "weights/shards.h"

namespace attn {
namespace {

using namespace std::string_view_literals;
using formats::StoredFile;

/// A kind of file: its name in `WeightFile::format` and the reader of what is in it.
struct Directory {
  std::string format;
  StoredFile stored;
};

bool begins_like_zip(std::string_view start) {
  return start.starts_with("PK\3\4"sv) || start.starts_with("PK\5\6"sv);
}

/// Text that may be JSON: a length of safetensors, which may begin so as well, has zeros in it.
bool begins_like_json(std::string_view start) {
  const std::size_t text = start.find_first_not_of(" \t\r\n"sv);
  return text != start.npos && start[text] == '{' && start.find('\0') == start.npos;
}

/// What a file that is no weight file looks like.
std::string looks_like(std::string_view start) {
  if (start.empty()) return "an empty file";
  if (start.starts_with("version https://git-lfs"sv))
    return "a Git LFS pointer (fetch the file itself with `git lfs pull`)";
  const std::size_t text = start.find_first_not_of(" \t\r\n"sv);
  if (text != start.npos && start[text] == '<') return "an HTML or XML page (a failed download?)";
  return "a file of another kind, which begins with " + formats::in_quotes(start.substr(0, 16));
}

bool has_npy(const formats::ZipArchive& archive) {
  return std::ranges::any_of(archive.records(),
                             [](const auto& record) { return record.name.ends_with(".npy"); });
}

Directory read_zip(std::string_view file, bool opaque) {
  const formats::ZipArchive archive(file);
  if (formats::is_torchscript(archive))
    return {"TorchScript", formats::read_torchscript(file, archive)};
  if (formats::is_pt2(archive)) return {"torch.export", formats::read_pt2(file, archive)};
  if (has_npy(archive) || archive.records().empty())
    return {"npz", formats::read_npz(file, archive)};
  return {"state_dict", formats::read_state_dict(file, archive, {.opaque = opaque})};
}

/// Nothing where the bytes are of no kind that stands alone.
std::optional<Directory> read_directory(std::string_view file, bool opaque) {
  // First: a length may begin like a pickle, and no pickle like a length with '{' behind it.
  if (formats::begins_like_safetensors(file))
    return Directory{"safetensors", formats::read_safetensors(file)};
  if (begins_like_zip(file)) return read_zip(file, opaque);
  if (formats::begins_like_torch_tar(file)) {
    throw formats::FormatError(
        "a tar archive (torch.save of PyTorch 0.1.9 or older wrote such: save it again with a "
        "newer one; from other tools: unpack it)");
  }
  if (formats::begins_like_npy(file)) return Directory{"npy", formats::read_npy(file)};
  if (formats::begins_like_pickle(file)) {
    return Directory{"legacy state_dict",
                     formats::read_legacy_state_dict(file, {.opaque = opaque})};
  }
  return std::nullopt;
}

OpenedFile open_mapped(std::shared_ptr<const MappedFile> mapping, const std::string& path,
                       bool opaque) {
  const std::string_view file = mapping->bytes();
  std::optional<Directory> directory;
  try {
    directory = read_directory(file, opaque);
  } catch (const formats::FormatError& error) {
    refuse_file(path, error.what());
  }
  if (!directory) refuse_file(path, looks_like(file.substr(0, 256)));
  OpenedFile opened{std::move(directory->format), {}};
  opened.parts.push_back({std::move(directory->stored), std::move(mapping), path});
  return opened;
}

}  // namespace

OpenedFile open_single_file(const std::string& path, bool opaque) {
  return open_mapped(MappedFile::open(path), path, opaque);
}

OpenedFile open_weight_file(const std::string& path, bool opaque) {
  auto mapping = MappedFile::open(path);
  return begins_like_json(mapping->bytes().substr(0, 256))
             ? open_shards(path, *mapping, opaque)
             : open_mapped(std::move(mapping), path, opaque);
}

}  // namespace attn
