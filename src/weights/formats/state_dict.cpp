#include "weights/formats/state_dict.h"

#include "weights/formats/flatten.h"
#include "weights/formats/limits.h"
#include "weights/formats/pickle.h"
#include "weights/formats/torch_archive.h"
#include "weights/formats/torch_pickle.h"

namespace attn::formats {

StoredFile read_state_dict(std::string_view, const ZipArchive& archive,
                           const StateDictOptions& options) {
  const TorchArchive folder(archive);
  const std::string bytes = folder.read("data.pkl", kMaxPickle);
  const Pickle pickle = read_pickle(bytes);
  const TorchPickle torch(pickle, options.opaque);
  StoredFile file;
  ArchiveStorages storages(folder, "data/", file);
  flatten(
      torch,
      [&](PickleValue::Index id, ElementType type) {
        return storages.place(torch.storage(id), type);
      },
      file);
  return file;
}

}  // namespace attn::formats
