#include "weights/formats/torch_globals.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

namespace attn::formats {
namespace {

using enum GlobalRole;

struct Row {
  std::string_view name;
  GlobalRole role;
  std::string_view what;
};

constexpr std::array kKnown = {
    Row{"_codecs.encode", kInert, "bytes"},
    Row{"argparse.Namespace", kNamespace, "argparse.Namespace"},
    Row{"builtins.bool", kInert, "bool"},
    Row{"builtins.bytearray", kInert, "bytearray"},
    Row{"builtins.bytes", kInert, "bytes"},
    Row{"builtins.complex", kInert, "complex"},
    Row{"builtins.dict", kMapping, "dict"},
    Row{"builtins.float", kInert, "float"},
    Row{"builtins.frozenset", kInert, "frozenset"},
    Row{"builtins.int", kInert, "int"},
    Row{"builtins.list", kSequence, "list"},
    Row{"builtins.long", kInert, "int"},
    Row{"builtins.object", kInert, "object"},
    Row{"builtins.range", kInert, "range"},
    Row{"builtins.set", kInert, "set"},
    Row{"builtins.slice", kInert, "slice"},
    Row{"builtins.str", kInert, "str"},
    Row{"builtins.tuple", kSequence, "tuple"},
    Row{"builtins.unicode", kInert, "str"},
    Row{"builtins.xrange", kInert, "range"},
    Row{"collections.Counter", kMapping, "collections.Counter"},
    Row{"collections.OrderedDict", kMapping, "OrderedDict"},
    Row{"collections.defaultdict", kMapping, "collections.defaultdict"},
    Row{"collections.deque", kSequence, "collections.deque"},
    Row{"copyreg._reconstructor", kReconstructor, "object"},
    Row{"numpy._core.multiarray._reconstruct", kInert, "numpy.ndarray"},
    Row{"numpy._core.multiarray.scalar", kInert, "numpy scalar"},
    Row{"numpy._core.numeric._frombuffer", kInert, "numpy.ndarray"},
    Row{"numpy.core.multiarray._reconstruct", kInert, "numpy.ndarray"},
    Row{"numpy.core.multiarray.scalar", kInert, "numpy scalar"},
    Row{"numpy.core.numeric._frombuffer", kInert, "numpy.ndarray"},
    Row{"numpy.dtype", kInert, "numpy.dtype"},
    Row{"numpy.ndarray", kInert, "numpy.ndarray"},
    Row{"torch.Size", kSequence, "torch.Size"},
    Row{"torch.Tensor", kTensorClass, "class"},
    Row{"torch._tensor._rebuild_from_type", kRebuildFromType, "tensor"},
    Row{"torch._tensor._rebuild_from_type_v2", kRebuildFromType, "tensor"},
    Row{"torch._utils._rebuild_parameter", kRebuildParameter, "tensor"},
    Row{"torch._utils._rebuild_parameter_with_state", kRebuildParameter, "tensor"},
    Row{"torch._utils._rebuild_tensor", kRebuildTensor, "tensor"},
    Row{"torch._utils._rebuild_tensor_v2", kRebuildTensorV2, "tensor"},
    Row{"torch._utils._rebuild_tensor_v3", kRebuildTensorV3, "tensor"},
    Row{"torch.device", kInert, "torch.device"},
    Row{"torch.nn.parameter.Buffer", kTensorClass, "class"},
    Row{"torch.nn.parameter.Parameter", kTensorClass, "class"},
    Row{"torch.serialization._get_layout", kInert, "torch.layout"},
    Row{"torch.storage.TypedStorage", kInert, "storage"},
    Row{"torch.storage._TypedStorage", kInert, "storage"},
};
static_assert(std::ranges::is_sorted(kKnown, {}, &Row::name));

struct StorageRow {
  std::string_view name;
  ElementType type;
};

constexpr std::array kStorages = {
    StorageRow{"BFloat16Storage", ElementType::kBFloat16},
    StorageRow{"BoolStorage", ElementType::kBool},
    StorageRow{"ByteStorage", ElementType::kUInt8},
    StorageRow{"CharStorage", ElementType::kInt8},
    StorageRow{"ComplexDoubleStorage", ElementType::kComplex128},
    StorageRow{"ComplexFloatStorage", ElementType::kComplex64},
    StorageRow{"DoubleStorage", ElementType::kFloat64},
    StorageRow{"FloatStorage", ElementType::kFloat32},
    StorageRow{"HalfStorage", ElementType::kFloat16},
    StorageRow{"IntStorage", ElementType::kInt32},
    StorageRow{"LongStorage", ElementType::kInt64},
    StorageRow{"ShortStorage", ElementType::kInt16},
};

/// Those that LibTorch writes into TorchScript archives, and Python has no class of.
constexpr std::array kLibTorchStorages = {
    StorageRow{"ComplexHalfStorage", ElementType::kComplex32},
    StorageRow{"Float8_e4m3fnStorage", ElementType::kFloat8E4M3},
    StorageRow{"Float8_e4m3fnuzStorage", ElementType::kFloat8E4M3Fnuz},
    StorageRow{"Float8_e5m2Storage", ElementType::kFloat8E5M2},
    StorageRow{"Float8_e5m2fnuzStorage", ElementType::kFloat8E5M2Fnuz},
    StorageRow{"Float8_e8m0fnuStorage", ElementType::kFloat8E8M0},
    StorageRow{"UInt16Storage", ElementType::kUInt16},
    StorageRow{"UInt32Storage", ElementType::kUInt32},
    StorageRow{"UInt64Storage", ElementType::kUInt64},
};

/// Types that dtypes of PyTorch name, of which it makes no dense tensor of whole elements.
constexpr std::array<std::string_view, 25> kOtherDtypes = {
    "bits16", "bits1x8", "bits2x4", "bits4x2",  "bits8",    "float4_e2m1fn_x2",
    "int1",   "int2",    "int3",    "int4",     "int5",     "int6",
    "int7",   "qint32",  "qint8",   "quint2x4", "quint4x2", "quint8",
    "uint1",  "uint2",   "uint3",   "uint4",    "uint5",    "uint6",
    "uint7"};

struct UnsupportedRow {
  std::string_view part;
  std::string_view kind;
};

constexpr std::array kUnsupported = {
    UnsupportedRow{"_rebuild_qtensor", "a quantized tensor"},
    UnsupportedRow{"_rebuild_sparse", "a sparse tensor"},
    UnsupportedRow{"_rebuild_nested", "a nested tensor"},
    UnsupportedRow{"_rebuild_njt", "a nested tensor"},
    UnsupportedRow{"_rebuild_meta_tensor", "a tensor without data (device meta)"},
    UnsupportedRow{"_rebuild_wrapper_subclass", "a tensor subclass"},
    UnsupportedRow{"_rebuild_device_tensor", "a tensor of a device without storages"},
    UnsupportedRow{"_rebuild_xla_tensor", "a tensor of a device without storages"},
    UnsupportedRow{"torch.distributed", "a distributed tensor"},
    UnsupportedRow{"UninitializedParameter", "a parameter without data"},
    UnsupportedRow{"UninitializedBuffer", "a buffer without data"},
    UnsupportedRow{"torch.QInt", "a quantized tensor"},
    UnsupportedRow{"torch.QUInt", "a quantized tensor"},
};

bool is_lower(std::string_view word) {
  return std::ranges::all_of(word, [](char c) { return c >= 'a' && c <= 'z'; });
}

std::optional<ElementType> type_of_storage(std::string_view name,
                                           std::span<const StorageRow> rows) {
  const auto row = std::ranges::find(rows, name, &StorageRow::name);
  return row == rows.end() ? std::nullopt : std::optional(row->type);
}

/// torch.FloatStorage, and for devices torch.cuda.FloatStorage; torch.storage.UntypedStorage.
std::optional<KnownGlobal> storage_class(std::string_view name) {
  if (!name.starts_with("torch.") || !name.ends_with("Storage")) return std::nullopt;
  name.remove_prefix(std::string_view("torch.").size());
  if (const std::size_t dot = name.find('.'); dot != name.npos) {
    if (!is_lower(name.substr(0, dot))) return std::nullopt;
    name.remove_prefix(dot + 1);
  }
  if (name == "UntypedStorage" || name == "_UntypedStorage")
    return KnownGlobal{kStorage, "class", {}};
  const auto type = type_of_storage(name, kStorages);
  const auto more = type ? type : type_of_storage(name, kLibTorchStorages);
  if (!more) return std::nullopt;
  return KnownGlobal{kStorage, "class", more};
}

std::optional<KnownGlobal> dtype(std::string_view name) {
  if (!name.starts_with("torch.")) return std::nullopt;
  name.remove_prefix(std::string_view("torch.").size());
  if (const auto type = element_type_named(name)) return KnownGlobal{kDtype, "torch.dtype", type};
  if (std::ranges::find(kOtherDtypes, name) == kOtherDtypes.end()) return std::nullopt;
  return KnownGlobal{kDtype, "torch.dtype", {}};
}

/// numpy.float32, numpy.dtypes.Float32DType: types that scalars and arrays name.
bool is_numpy_type(std::string_view name) {
  constexpr std::string_view kDtypes = "numpy.dtypes.";
  if (name.starts_with(kDtypes) && name.ends_with("DType"))
    return name.find('.', kDtypes.size()) == name.npos;
  if (!name.starts_with("numpy.")) return false;
  name.remove_prefix(std::string_view("numpy.").size());
  constexpr std::array<std::string_view, 8> kTypes = {"float", "int",  "uint",  "complex",
                                                      "bool",  "str_", "bytes", "longlong"};
  return std::ranges::any_of(kTypes, [&](std::string_view type) {
    return name.starts_with(type) && std::ranges::all_of(name.substr(type.size()), [](char c) {
             return (c >= '0' && c <= '9') || c == '_';
           });
  });
}

/// Python 2 called some modules otherwise.
std::string modern_name(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kModules = {
      {{"__builtin__.", "builtins."},
       {"copy_reg.", "copyreg."},
       {"torch.tensor.", "torch._tensor."}}};
  for (const auto& [old, modern] : kModules) {
    if (name.starts_with(old)) return std::string(modern) + std::string(name.substr(old.size()));
  }
  return std::string(name);
}

}  // namespace

std::optional<KnownGlobal> known_global(std::string_view old_name) {
  const std::string modern = modern_name(old_name);
  const std::string_view name = modern;
  const auto* row = std::ranges::lower_bound(kKnown, name, {}, &Row::name);
  if (row != kKnown.end() && row->name == name) return KnownGlobal{row->role, row->what, {}};
  if (const auto storage = storage_class(name)) return storage;
  if (is_numpy_type(name)) return KnownGlobal{kInert, "class", {}};
  return dtype(name);
}

std::string_view storage_class_of(ElementType type) {
  const auto* row = std::ranges::find(kStorages, type, &StorageRow::type);
  return row == kStorages.end() ? std::string_view() : row->name;
}

std::string_view unsupported_kind(std::string_view name) {
  if (!name.starts_with("torch.")) return {};
  const auto* row = std::ranges::find_if(kUnsupported, [&](const UnsupportedRow& candidate) {
    return name.find(candidate.part) != name.npos;
  });
  return row == kUnsupported.end() ? std::string_view() : row->kind;
}

}  // namespace attn::formats
