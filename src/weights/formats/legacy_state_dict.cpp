#include <bit>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weights/formats/flatten.h"
#include "weights/formats/format_error.h"
#include "weights/formats/little_endian.h"
#include "weights/formats/pickle.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/torch_archive.h"
#include "weights/formats/torch_pickle.h"

/// The format before PyTorch 1.6: pickles of a magic number, a version, facts about the machine, the
/// object and the keys of its storages; then for each storage, in that order, the number of its
/// elements and its bytes. PyTorch has always written both of these little-endian, whatever the
/// facts about the machine say, and reads them so.
namespace attn::formats {
namespace {

using namespace std::string_view_literals;
using enum PickleKind;

// 0x1950a86a20f9469cfc6c, in the two spellings that `PickleValue::text` has for it.
constexpr std::string_view kMagicBytes = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::string_view kMagicDigits = "119547037146038801333356";
constexpr std::int64_t kProtocolVersion = 1001;

/// The file, pickle by pickle.
class LegacyFile {
 public:
  explicit LegacyFile(std::string_view bytes) : bytes_(bytes) {}

  Pickle pickle(std::string_view what) {
    try {
      Pickle result = read_pickle(bytes_.substr(at_));
      at_ += result.size;
      return result;
    } catch (const FormatError& error) {
      throw FormatError(std::string(what) + ", " + error.what());
    }
  }

  /// The elements of the next storage; its bytes follow.
  std::uint64_t number(const std::string& where) {
    check(sizeof(std::uint64_t), where);
    at_ += sizeof(std::uint64_t);
    return little_endian(bytes_, at_ - sizeof(std::uint64_t), sizeof(std::uint64_t));
  }

  /// Passes over `size` bytes and says where they begin.
  std::uint64_t pass(std::uint64_t size, const std::string& where) {
    check(size, where);
    at_ += size;
    return at_ - size;
  }

 private:
  void check(std::uint64_t size, const std::string& where) const {
    if (size <= bytes_.size() - at_) return;
    refuse(where, std::to_string(size) + " bytes", std::to_string(bytes_.size() - at_));
  }

  std::string_view bytes_;
  std::uint64_t at_ = 0;
};

void read_head(LegacyFile& file) {
  const Pickle magic = file.pickle("magic number");
  const PickleValue& number = magic[magic.root];
  if (number.kind != kInt || (number.text != kMagicBytes && number.text != kMagicDigits)) {
    refuse("magic number", "that of torch.save", "a pickle of another program");
  }
  const Pickle version = file.pickle("protocol version");
  if (version[version.root].kind != kInt || version[version.root].integer != kProtocolVersion) {
    refuse("protocol version", std::to_string(kProtocolVersion), "another");
  }
  const Pickle machine = file.pickle("system information");
  if (machine[machine.root].kind != kDict) {
    refuse("system information", "a dict", std::string(name_of(machine[machine.root].kind)));
  }
}

/// A storage of the pickle, and where it lies.
struct LegacyStorage {
  TorchStorage storage;
  std::optional<std::size_t> place;
};

using LegacyStorages = std::map<std::string_view, LegacyStorage>;

/// The storages that the pickle names. The first that names one has the type of its elements.
LegacyStorages named_storages(const TorchPickle& torch) {
  LegacyStorages storages;
  for (const PickleValue::Index id : torch.pickle().persistents) {
    if (!torch.is_storage(id)) continue;
    const TorchStorage storage = torch.storage(id);
    storages.try_emplace(storage.key, LegacyStorage{storage, std::nullopt});
  }
  return storages;
}

void read_places(LegacyFile& bytes, LegacyStorages& storages, StoredFile& file) {
  const Pickle keys = bytes.pickle("storage keys");
  const PickleValue& list = keys[keys.root];
  if (list.kind != kList && list.kind != kTuple) {
    refuse("storage keys", "a list", std::string(name_of(list.kind)));
  }
  for (const PickleValue::Index key : keys.items(list)) {
    const auto known = storages.find(keys[key].text);
    const std::string where = "storage " + in_quotes(keys[key].text);
    if (known == storages.end()) refuse(where, "a storage that the pickle names", "another");
    auto& [storage, place] = known->second;
    if (place) refuse(where, "its key once", "twice");
    if (const std::uint64_t elements = bytes.number(where); elements != storage.elements) {
      refuse(where, std::to_string(storage.elements) + " elements", std::to_string(elements));
    }
    Storage stored;
    stored.size = stored.stored_size = byte_size(storage, storage.elements);
    stored.begin = bytes.pass(stored.size, where);
    if (std::endian::native == std::endian::big && storage.type) {
      stored.swap = number_bytes(*storage.type);
    }
    place = file.storages.size();
    file.storages.push_back(stored);
  }
}

}  // namespace

bool begins_like_pickle(std::string_view start) {
  if (start.starts_with("L" + std::string(kMagicDigits) + "L\n")) return true;
  return start.size() > 1 && start[0] == '\x80' && start[1] >= '\2' && start[1] <= '\5';
}

bool begins_like_torch_tar(std::string_view start) {
  constexpr std::size_t kTarMagic = 257;
  return start.size() > kTarMagic && start.substr(kTarMagic).starts_with("ustar"sv);
}

StoredFile read_legacy_state_dict(std::string_view bytes, const StateDictOptions& options) {
  LegacyFile legacy(bytes);
  read_head(legacy);
  const Pickle pickle = legacy.pickle("checkpoint");
  const TorchPickle torch(pickle, options.opaque);
  StoredFile file;
  LegacyStorages storages = named_storages(torch);
  read_places(legacy, storages, file);
  flatten(
      torch,
      [&](PickleValue::Index id, ElementType) {
        const TorchStorage storage = torch.storage(id);
        const auto& [first, place] = storages.at(storage.key);
        if (!place) refuse("storage " + in_quotes(storage.key), "its bytes in the file", "none");
        if (storage.type != first.type || storage.elements != first.elements) {
          refuse("storage " + in_quotes(storage.key), "one type and size", "several");
        }
        return placed(storage, *place, storage.elements);
      },
      file);
  return file;
}

}  // namespace attn::formats
