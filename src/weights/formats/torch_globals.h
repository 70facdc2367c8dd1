#pragma once

#include <optional>
#include <string_view>

#include "weights/formats/element_type.h"

namespace attn::formats {

/// What a class or function that a pickle names means to a checkpoint.
enum class GlobalRole {
  /// Its objects are leaves.
  kInert,
  /// Its objects are dicts.
  kMapping,
  /// Its objects hold elements in order.
  kSequence,
  /// Its objects hold attributes: argparse.Namespace.
  kNamespace,
  /// Makes an object of the class that is its first argument.
  kReconstructor,
  /// torch.Tensor and its subclasses that are nothing but tensors.
  kTensorClass,
  kDtype,
  kStorage,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  /// Wraps the tensor that is its first argument.
  kRebuildParameter,
  /// Calls its first argument with its third, and gives the result the class of its second.
  kRebuildFromType,
};

struct KnownGlobal {
  GlobalRole role = GlobalRole::kInert;
  /// What its objects are called where they are skipped.
  std::string_view what;
  /// kDtype and kStorage: the type of the elements; none for untyped storages, and for dtypes that
  /// no dense tensor has.
  std::optional<ElementType> type;
};

/// The class or function of this name ("collections.OrderedDict"), or nothing where a checkpoint of
/// tensors needs none such.
std::optional<KnownGlobal> known_global(std::string_view name);

/// PyTorch's class of storages of this type, e.g. "FloatStorage"; empty where it has none.
std::string_view storage_class_of(ElementType type);

/// What PyTorch makes with a function that is not known here, e.g. "a quantized tensor"; empty for
/// any other name.
std::string_view unsupported_kind(std::string_view name);

}  // namespace attn::formats
