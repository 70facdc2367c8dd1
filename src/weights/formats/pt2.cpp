#include "weights/formats/pt2.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/pt2_config.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/torch_archive.h"

namespace attn::formats {
namespace {

constexpr std::string_view kWeights = "data/weights/", kConstants = "data/constants/";
constexpr std::string_view kWeightsConfig = "_weights_config.json";
constexpr std::string_view kConstantsConfig = "_constants_config.json";
/// PyTorch up to 2.7: records without a folder.
constexpr std::string_view kOldStateDict = "serialized_state_dict.pt";
constexpr std::string_view kOldProgram = "serialized_exported_program.json";

/// A file of torch.save that is a record of another archive.
StoredFile read_nested(std::string_view file, const ZipRecord& record) {
  const std::string where = "record " + in_quotes(record.name);
  if (record.deflated) refuse(where, "bytes as they are", "deflated ones");
  // torch.export writes nothing where there is nothing to write.
  if (record.size == 0) return {};
  const std::string_view bytes = file.substr(record.begin, record.size);
  try {
    const ZipArchive archive(bytes);
    // torch.save deflates nothing, and many archives could inflate to more than one may.
    if (std::ranges::any_of(archive.records(), &ZipRecord::deflated))
      refuse("archive", "bytes as they are", "deflated ones");
    StoredFile nested = read_state_dict(bytes, archive);
    for (Storage& storage : nested.storages) storage.begin += record.begin;
    return nested;
  } catch (const FormatError& error) {
    throw FormatError(where + ", " + error.what());
  }
}

/// The names of the models in an archive: of records data/weights/NAME_weights_config.json or, in
/// archives of a time between, data/weights/NAME.pt.
std::vector<std::string> model_names(const TorchArchive& archive) {
  std::vector<std::string> names;
  const std::string start = archive.folder() + std::string(kWeights);
  for (const ZipRecord& record : archive.zip().records()) {
    std::string_view name = record.name;
    if (!name.starts_with(start)) continue;
    name.remove_prefix(start.size());
    for (const std::string_view end : {kWeightsConfig, std::string_view(".pt")}) {
      if (name.ends_with(end)) names.emplace_back(name.substr(0, name.size() - end.size()));
    }
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// Reads the models of an archive, one after the other.
class Pt2Reader {
 public:
  Pt2Reader(std::string_view bytes, const TorchArchive& archive)
      : bytes_(bytes), archive_(archive), storages_(archive, std::string(kWeights), file_) {}

  StoredFile run() {
    const std::vector<std::string> models = model_names(archive_);
    if (models.empty()) refuse("archive", "an exported program with its weights", "none");
    for (const std::string& model : models) {
      // torch.export.save writes one, others put several into a package.
      const std::string prefix = models.size() > 1 ? model + '.' : "";
      const std::string start = std::string(kWeights) + model;
      if (const ZipRecord* record = archive_.find(start + ".pt")) {
        append(read_nested(bytes_, *record), prefix);
      } else {
        read_weights(start + std::string(kWeightsConfig), prefix);
      }
      list_constants(std::string(kConstants) + model + std::string(kConstantsConfig), prefix);
    }
    return std::move(file_);
  }

 private:
  std::vector<Pt2Weight> config(const std::string& name) {
    const std::string text = archive_.read(name, kMaxText - read_);
    read_ += text.size();
    return read_pt2_config(text);
  }

  void read_weights(const std::string& name, const std::string& prefix) {
    for (Pt2Weight& weight : config(name)) {
      const ZipRecord* record = archive_.find(std::string(kWeights) + weight.path);
      const std::string where = "tensor " + in_quotes(prefix + weight.name);
      if (!record) refuse(where, "a record " + in_quotes(weight.path), "none");
      if (weight.pickled) {
        add_pickled(*record, prefix + weight.name);
        continue;
      }
      const TorchStorage storage{.key = weight.path,
                                 .type = weight.type,
                                 .elements = record->size / (bits_of(weight.type) / 8),
                                 .view = std::nullopt};
      const PlacedStorage place = storages_.place(storage, weight.type);
      StoredTensor tensor{prefix + weight.name,
                          weight.type,
                          place.index,
                          weight.offset,
                          std::move(weight.sizes),
                          std::move(weight.strides)};
      check_tensor(tensor, place.size);
      add(std::move(tensor));
    }
  }

  /// A weight that is a file of torch.save with one tensor, without a name.
  void add_pickled(const ZipRecord& record, const std::string& name) {
    // Each costs the reading of a file.
    if (!pickled_.insert(record.name).second) {
      refuse("tensor " + in_quotes(name), "a pickled tensor of its own", "that of another");
    }
    StoredFile nested = read_nested(bytes_, record);
    if (nested.tensors.size() != 1 || !nested.tensors[0].name.empty()) {
      refuse("tensor " + in_quotes(name), "one pickled tensor", "something else");
    }
    append(std::move(nested), name);
  }

  void append(StoredFile other, const std::string& prefix) {
    const std::size_t first = file_.storages.size();
    file_.storages.insert(file_.storages.end(), other.storages.begin(), other.storages.end());
    for (StoredTensor& tensor : other.tensors) {
      tensor.name.insert(0, prefix);
      tensor.storage += first;
      add(std::move(tensor));
    }
  }

  /// The names of models stand before many others.
  void count(std::string_view name) {
    name_bytes_ += name.size();
    if (name_bytes_ > kMaxNameBytes) {
      refuse("archive", "at most " + std::to_string(kMaxNameBytes) + " bytes of names", "more");
    }
  }

  void add(StoredTensor tensor) {
    count(tensor.name);
    if (!names_.insert(tensor.name).second) {
      refuse("tensor " + in_quotes(tensor.name), "one of this name", "two");
    }
    file_.tensors.push_back(std::move(tensor));
  }

  /// Tensors that the program has besides its state_dict.
  void list_constants(const std::string& name, const std::string& prefix) {
    if (!archive_.find(name)) return;
    for (const Pt2Weight& constant : config(name)) {
      file_.skipped.push_back({prefix + constant.name, "constant"});
      count(file_.skipped.back().name);
    }
  }

  std::string_view bytes_;
  const TorchArchive& archive_;
  StoredFile file_;
  ArchiveStorages storages_;
  std::set<std::string> names_;
  /// Records of pickled tensors.
  std::set<std::string> pickled_;
  /// Bytes of text that were read.
  std::uint64_t read_ = 0;
  std::uint64_t name_bytes_ = 0;
};

}  // namespace

bool is_pt2(const ZipArchive& archive) {
  return archive.find(kOldProgram) || find_beside_first(archive, "archive_format");
}

StoredFile read_pt2(std::string_view file, const ZipArchive& archive) {
  if (archive.find(kOldProgram)) {
    const ZipRecord* state_dict = archive.find(kOldStateDict);
    if (!state_dict) refuse("archive", "a record " + in_quotes(kOldStateDict), "none");
    return read_nested(file, *state_dict);
  }
  const TorchArchive folder(archive);
  if (folder.read("archive_format", 16) != "pt2") {
    refuse("record archive_format", "pt2", "another format");
  }
  return Pt2Reader(file, folder).run();
}

}  // namespace attn::formats
