#include "weights/formats/state_dict.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/pickle_bytes.h"
#include "support/refusal.h"
#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using attn::testing::pickled::archive;
using attn::testing::pickled::boolean;
using attn::testing::pickled::call;
using attn::testing::pickled::dict;
using attn::testing::pickled::float_storage;
using attn::testing::pickled::global;
using attn::testing::pickled::integer;
using attn::testing::pickled::integers;
using attn::testing::pickled::list;
using attn::testing::pickled::long_integer;
using attn::testing::pickled::none;
using attn::testing::pickled::ordered_dict;
using attn::testing::pickled::storage_id;
using attn::testing::pickled::tensor;
using attn::testing::pickled::text;
using attn::testing::pickled::tuple;
using attn::testing::pickled::Values;
using namespace std::string_literals;
using Entries = std::vector<std::pair<std::string, std::string>>;
using Sizes = std::vector<std::uint64_t>;

StoredFile read(const std::string& file, const StateDictOptions& options = {}) {
  return read_state_dict(file, ZipArchive(file), options);
}

/// A record of so many bytes for the storage "0".
Entries record(std::size_t bytes = 24) { return {{"data/0", std::string(bytes, 'x')}}; }

StoredFile read_value(const std::string& value, const StateDictOptions& options = {}) {
  return read(archive(value, record()), options);
}

void refused(const std::string& value, std::string_view place, std::string_view rule) {
  expect_refused([&] { read_value(value); }, place, rule);
}

/// A float32 [2, 3] in the storage "0".
std::string plain_tensor() { return tensor(float_storage("0", 6), 0, {2, 3}, {3, 1}); }

std::vector<std::string> names(const StoredFile& file) {
  std::vector<std::string> result;
  for (const StoredTensor& tensor : file.tensors) result.push_back(tensor.name);
  return result;
}

Entries skipped(const StoredFile& file) {
  Entries result;
  for (const SkippedValue& value : file.skipped) result.emplace_back(value.name, value.what);
  return result;
}

/// A call of `_rebuild_tensor_v2` with one argument replaced.
std::string with_argument(std::size_t index, const std::string& value) {
  Values arguments = {float_storage("0", 6), integer(0),     integers({2, 3}),
                      integers({3, 1}),      boolean(false), ordered_dict()};
  arguments[index] = value;
  return call(global("torch._utils", "_rebuild_tensor_v2"), arguments);
}

/// A persistent id with one element replaced.
std::string with_id(std::size_t index, const std::string& value) {
  Values items = {text("storage"), global("torch", "FloatStorage"), text("0"), text("cpu"),
                  integer(6)};
  items[index] = value;
  return tensor(storage_id(items), 0, {2, 3}, {3, 1});
}

TEST(StateDict, ReadsATensorWithItsPlace) {
  const std::string file =
      archive(dict({{text("w"), tensor(float_storage("0", 6), 1, {2, 2}, {1, 3})}}), record());
  const StoredFile result = read(file);
  ASSERT_EQ(result.tensors.size(), 1u);
  const StoredTensor& tensor = result.tensors[0];
  EXPECT_EQ(tensor.name, "w");
  EXPECT_EQ(tensor.type, ElementType::kFloat32);
  EXPECT_EQ(tensor.offset, 1u);
  EXPECT_EQ(tensor.sizes, Sizes({2, 2}));
  EXPECT_EQ(tensor.strides, Sizes({1, 3}));
  const Storage& storage = result.storages.at(tensor.storage);
  EXPECT_EQ(storage.size, 24u);
  EXPECT_EQ(file.substr(storage.begin, storage.size), std::string(24, 'x'));
}

TEST(StateDict, JoinsNestedNamesAndSkipsWhatIsNoTensor) {
  const StoredFile file = read_value(dict({
      {text("model"), dict({{text("w"), plain_tensor()}, {integer(-3), plain_tensor()}})},
      {text("list"), list({plain_tensor(), none()})},
      {text("epoch"), integer(3)},
      {text("betas"), tuple({integer(1), integer(2)})},
      {text("empty"), dict({})},
      {boolean(true), text("x")},
      {tuple({text("a")}), plain_tensor()},
  }));
  EXPECT_EQ(names(file), std::vector<std::string>({"model.w", "model.-3", "list.0"}));
  EXPECT_EQ(skipped(file), Entries({{"list.1", "None"},
                                    {"epoch", "int"},
                                    {"betas", "tuple"},
                                    {"empty", "dict"},
                                    {"True", "str"},
                                    {"(tuple)", "tensor"}}));
}

TEST(StateDict, KnowsTheContainersOfPython) {
  const std::string a = text("a");
  const Entries containers = {
      {"OrderedDict", ordered_dict() + a + plain_tensor() + "s"},
      {"OrderedDict with state", ordered_dict() + "(" + a + plain_tensor() + "u" +
                                     dict({{text("_metadata"), ordered_dict()}}) + "b"},
      {"OrderedDict of Python 2",
       call(global("collections", "OrderedDict"), {list({list({a, plain_tensor()})})})},
      {"defaultdict", call(global("collections", "defaultdict"), {global("builtins", "list")}) + a +
                          plain_tensor() + "s"},
      {"Namespace", global("argparse", "Namespace") + ")\x81" + dict({{a, plain_tensor()}}) + "b"},
      {"Namespace of protocol 1",
       call(global("copy_reg", "_reconstructor"),
            {global("argparse", "Namespace"), global("__builtin__", "object"), none()}) +
           dict({{a, plain_tensor()}}) + "b"},
  };
  for (const auto& [what, container] : containers) {
    EXPECT_EQ(names(read_value(container)), std::vector<std::string>({"a"})) << what;
  }
}

TEST(StateDict, KnowsTheLeavesOfPython) {
  const Entries leaves = {
      {"torch.dtype", global("torch", "float32")},
      {"torch.device", call(global("torch", "device"), {text("cuda"), integer(0)})},
      {"torch.Size", call(global("torch", "Size"), {integers({2, 3})})},
      {"storage", float_storage("0", 6)},
      {"set", "\x8f(K\1\x90"},
      {"frozenset", call(global("builtins", "frozenset"), {list({integer(1)})})},
      {"bytes", call(global("_codecs", "encode"), {text("a"), text("latin1")})},
      {"complex", call(global("builtins", "complex"), {integer(1), integer(2)})},
      {"int", "\x8a\x0a" + std::string(10, '\1')},
      {"numpy scalar",
       call(global("numpy._core.multiarray", "scalar"),
            {call(global("numpy", "dtype"), {text("f4"), boolean(false), boolean(true)}),
             text("abcd")})},
      {"numpy.ndarray", call(global("numpy.core.multiarray", "_reconstruct"),
                             {global("numpy", "ndarray"), tuple({integer(0)}), text("b")})},
  };
  for (const auto& [what, leaf] : leaves) {
    const StoredFile file = read_value(dict({{text("x"), leaf}}));
    EXPECT_EQ(skipped(file), Entries({{"x", what}}));
  }
}

TEST(StateDict, GivesATopLevelTensorTheEmptyName) {
  EXPECT_EQ(names(read_value(plain_tensor())), std::vector<std::string>({""}));
}

TEST(StateDict, ReadsParametersAndTensorsWithAttributes) {
  const std::string utils = "torch._utils";
  const std::string parameter =
      call(global(utils, "_rebuild_parameter"), {plain_tensor(), boolean(true), ordered_dict()});
  const std::string with_state =
      call(global(utils, "_rebuild_parameter_with_state"),
           {plain_tensor(), boolean(true), ordered_dict(), dict({{text("a"), integer(1)}})});
  const std::string typed = call(global("torch._tensor", "_rebuild_from_type_v2"),
                                 {global(utils, "_rebuild_tensor_v2"), global("torch", "Tensor"),
                                  tuple({float_storage("0", 6), integer(0), integers({2, 3}),
                                         integers({3, 1}), boolean(false), ordered_dict()}),
                                  dict({})});
  const std::string v3 =
      call(global(utils, "_rebuild_tensor_v3"),
           {storage_id({text("storage"), global("torch.storage", "UntypedStorage"), text("0"),
                        text("cpu"), integer(24)}),
            integer(0), integers({2, 3}), integers({3, 1}), boolean(false), ordered_dict(),
            global("torch", "uint16")});
  const std::string oldest =
      call(global(utils, "_rebuild_tensor"),
           {float_storage("0", 6), integer(0), integers({6}), integers({1})});
  for (const std::string& value : {parameter, with_state, typed, v3, oldest}) {
    EXPECT_EQ(read_value(value).tensors.size(), 1u);
  }
  EXPECT_EQ(read_value(v3).tensors[0].type, ElementType::kUInt16);
}

TEST(StateDict, SharesStoragesThatTensorsShare) {
  const StoredFile file =
      read(archive(dict({{text("a"), plain_tensor()},
                         {text("b"), tensor(float_storage("1", 1), 0, {}, {})},
                         {text("c"), tensor(float_storage("0", 6), 3, {3}, {1})}}),
                   {{"data/0", std::string(24, 'x')}, {"data/1", "abcd"}}));
  EXPECT_EQ(file.storages.size(), 2u);
  EXPECT_EQ(file.tensors[0].storage, file.tensors[2].storage);
  EXPECT_NE(file.tensors[0].storage, file.tensors[1].storage);
}

TEST(StateDict, DoesNotLookAtStoragesThatNoTensorUses) {
  EXPECT_EQ(read(archive(dict({{text("s"), float_storage("missing", 6)}}), {})).tensors.size(), 0u);
}

TEST(StateDict, HonoursTheByteOrderOfTheFile) {
  const auto swap_of = [](const std::string& order, const std::string& storage_class) {
    const std::string value = tensor(storage_id({text("storage"), global("torch", storage_class),
                                                 text("0"), text("cuda:0"), integer(1)}),
                                     0, {1}, {1});
    return read(archive(value, {{"byteorder", order}, {"data/0", std::string(16, 'x')}}))
        .storages[0]
        .swap;
  };
  // The machines of today; `swap` is relative to them.
  ASSERT_EQ(std::endian::native, std::endian::little);
  EXPECT_EQ(swap_of("little", "DoubleStorage"), 1u);
  EXPECT_EQ(swap_of("big", "DoubleStorage"), 8u);
  EXPECT_EQ(swap_of("big", "HalfStorage"), 2u);
  EXPECT_EQ(swap_of("big", "BoolStorage"), 1u);
  EXPECT_EQ(swap_of("big", "ComplexDoubleStorage"), 8u);
  EXPECT_NE(refusal([&] { swap_of("middle", "BoolStorage"); }), "");
}

TEST(StateDict, HonoursTheByteOrderOfUntypedStorages) {
  const auto swap_of = [](const std::string& dtype) {
    const std::string storage =
        storage_id({text("storage"), global("torch.storage", "UntypedStorage"), text("0"),
                    text("cpu"), integer(16)});
    const std::string value =
        call(global("torch._utils", "_rebuild_tensor_v3"),
             {storage, integer(0), integers({2}), integers({1}), boolean(false),
              call(global("collections", "OrderedDict"), {}), global("torch", dtype)});
    return read(archive(value, {{"byteorder", "big"}, {"data/0", std::string(16, 'x')}}))
        .storages[0]
        .swap;
  };
  ASSERT_EQ(std::endian::native, std::endian::little);
  EXPECT_EQ(swap_of("uint16"), 2u);
  EXPECT_EQ(swap_of("uint64"), 8u);
  EXPECT_EQ(swap_of("complex32"), 2u);
  EXPECT_EQ(swap_of("float8_e5m2"), 1u);
}

TEST(StateDict, RefusesClassesByNameWhereverTheyAre) {
  const std::string system = call(global("posix", "system"), {text("true")});
  refused(system, "\"posix.system\"", "not known");
  refused(dict({{text("a"), plain_tensor()}, {text("b"), list({system})}}), "posix.system", "");
  // Taken from the stack again, or in an argument that nothing reads: still refused.
  refused(system + "0" + plain_tensor(), "posix.system", "nothing of it was run");
  refused(global("builtins", "eval") + "0" + plain_tensor(), "builtins.eval", "not known");
  refused(global("__builtin__", "getattr"), "__builtin__.getattr", "not known");
  refused(global("torch._utils", "_rebuild_qtensor"), "_rebuild_qtensor", "a quantized tensor");
  refused(global("torch._utils", "_rebuild_sparse_tensor"), "_sparse_", "a sparse tensor");
  refused(global("torch._utils", "_rebuild_meta_tensor_no_storage"), "_meta_", "without data");
  refused(global("torch", "QInt8Storage"), "torch.QInt8Storage", "a quantized tensor");
  refused(global("torch.storage", "_load_from_bytes"), "torch.storage._load_from_bytes", "");
  refused(global("torch.FloatStorage", "__class__"), "torch.FloatStorage.__class__", "not known");
  refused(call(ordered_dict(), {}), "pickle", "one that the pickle makes itself");
}

TEST(StateDict, TakesNoClassOfAnotherModuleForATypeOfNumpy) {
  refused(global("numpy.dtypes", "os.DType"), "\"numpy.dtypes.os.DType\"", "not known");
  EXPECT_EQ(read_value(global("numpy.dtypes", "Float64DType")).skipped.size(), 1u);
}

TEST(StateDict, KeepsUnknownClassesAsInertValuesWhenAsked) {
  const std::string object = call(global("m", "C"), {plain_tensor()});
  const std::string value = dict({{text("a"), object},
                                  {text("b"), list({object, plain_tensor()})},
                                  {text("c"), global("m", "D")}});
  const StoredFile file = read_value(value, {.opaque = true});
  EXPECT_EQ(file.opaque, std::vector<std::string>({"m.C", "m.D"}));
  EXPECT_EQ(names(file), std::vector<std::string>({"b.1"}));
  EXPECT_EQ(skipped(file), Entries({{"a", "m.C"}, {"b.0", "m.C"}, {"c", "class"}}));
}

TEST(StateDict, RefusesWrongArgumentsOfTensors) {
  refused(with_argument(0, none()), "storage", "a storage, got None");
  refused(with_argument(0, text("0")), "storage", "a storage");
  for (const std::string& offset : {none(), text("0"), integer(-1), boolean(true),
                                    "G\0\0\0\0\0\0\0\0"s, "\x8a\x09" + std::string(9, '\x7f')}) {
    refused(with_argument(1, offset), "storage offset", "an int of 0 or more");
  }
  for (std::size_t argument : {2, 3}) {
    const std::string place = argument == 2 ? "sizes" : "strides";
    refused(with_argument(argument, none()), place, "a tuple, got None");
    refused(with_argument(argument, integer(6)), place, "a tuple, got 6");
    refused(with_argument(argument, integers({2, -3})), place, "an int of 0 or more, got -3");
    refused(with_argument(argument, tuple({text("2"), text("3")})), place, "an int of 0 or more");
    refused(with_argument(argument, integers(std::vector<std::int64_t>(65, 1))), place,
            "at most 64 dimensions");
    refused(with_argument(argument, integers({6})), "tensor \"\"", "as many strides as sizes");
  }
  refused(with_argument(4, none()), "requires_grad", "a bool");
  refused(with_argument(5, integer(1)), "backward hooks", "a dict");
  refused(call(global("torch._utils", "_rebuild_tensor_v2"), {float_storage("0", 6)}),
          "_rebuild_tensor_v2", "6 to 7 arguments, got 1");
  refused(call(global("torch._utils", "_rebuild_parameter"), {none(), none(), none()}),
          "_rebuild_parameter", "a tensor, got None");
}

TEST(StateDict, RefusesConjugateAndNegativeViews) {
  const auto with_metadata = [](const std::string& key, bool value) {
    return call(global("torch._utils", "_rebuild_tensor_v2"),
                {float_storage("0", 6), integer(0), integers({6}), integers({1}), boolean(false),
                 ordered_dict(), dict({{text(key), boolean(value)}})});
  };
  EXPECT_EQ(read_value(with_metadata("conj", false)).tensors.size(), 1u);
  refused(with_metadata("conj", true), "metadata", "\"conj\"");
  refused(with_metadata("neg", true), "metadata", "\"neg\"");
}

TEST(StateDict, RefusesMetadataThatIsNoSmallDict) {
  const auto with_metadata = [](const std::string& metadata) {
    return call(global("torch._utils", "_rebuild_tensor_v2"),
                {float_storage("0", 6), integer(0), integers({6}), integers({1}), boolean(false),
                 ordered_dict(), metadata});
  };
  // Many tensors may share one, each of which would look through all of it.
  Entries many;
  for (int i = 0; i < 1000; ++i) many.emplace_back(integer(i), boolean(false));
  refused(with_metadata(dict(many)), "metadata", "a few values");
  const std::string pairs = list({tuple({text("conj"), boolean(true)})});
  refused(with_metadata(call(global("collections", "OrderedDict"), {pairs})), "metadata", "a dict");
}

TEST(StateDict, RefusesTensorsThatAreChangedAfterTheyWereMade) {
  // PyTorch moves the tensor to another storage by the one, and writes into it by the other.
  const std::string state =
      tuple({float_storage("0", 6), integer(3), integers({3}), integers({1})});
  const std::string item = integer(0) + "G\x3f\xf8\0\0\0\0\0\0"s;
  for (const std::string& change : {state + "b", item + "s"}) {
    refused(dict({{text("w"), plain_tensor() + change}}), "tensor \"w\"", "as it was made");
    refused(call(global("torch._utils", "_rebuild_parameter"),
                 {plain_tensor() + change, boolean(false), ordered_dict()}),
            "call", "as it was made");
  }
}

TEST(StateDict, RefusesTensorsOutsideTheirStorage) {
  const auto placed = [](std::int64_t offset, const std::vector<std::int64_t>& sizes,
                         const std::vector<std::int64_t>& strides) {
    return dict({{text("w"), tensor(float_storage("0", 6), offset, sizes, strides)}});
  };
  refused(placed(0, {7}, {1}), "tensor \"w\"", "inside the 24 bytes");
  refused(placed(1, {2, 3}, {3, 1}), "tensor \"w\"", "inside the 24 bytes");
  refused(placed(0, {2}, {INT64_MAX}), "tensor \"w\"", "below 2^63");
  refused(placed(INT64_MAX, {1}, {1}), "tensor \"w\"", "");
  refused(placed(0, {INT64_MAX, INT64_MAX}, {0, 0}), "tensor \"w\"", "below 2^63");
  EXPECT_EQ(read_value(placed(5, {1000}, {0})).tensors.size(), 1u) << "expanded, as PyTorch saves";
  EXPECT_EQ(read_value(placed(0, {0, 9}, {9, 1})).tensors.size(), 1u);
}

TEST(StateDict, ChecksPersistentIds) {
  refused(with_id(0, text("module")), "persistent id, kind", "\"storage\", got \"module\"");
  refused(with_id(0, integer(1)), "persistent id, kind", "a string");
  refused(with_id(1, text("FloatStorage")), "storage \"0\"", "a class of dense storages");
  refused(with_id(1, global("torch", "float32")), "storage \"0\"", "a class of dense storages");
  refused(with_id(2, integer(0)), "persistent id, key", "a string, got 0");
  refused(with_id(3, none()), "storage \"0\", location", "a string, got None");
  refused(with_id(4, integer(-6)), "storage \"0\", number of elements", "an int of 0 or more");
  refused(with_id(4, text("6")), "storage \"0\", number of elements", "an int of 0 or more");
  refused(with_id(4, integer(7)), "storage \"0\"", "28 bytes in its record, got 24");
  refused(with_id(4, long_integer(INT64_MAX)), "storage \"0\"", "less than 2^63 bytes");
  refused(with_id(2, text("7")), "storage \"7\"", "a record \"data/7\", got none");
  refused(with_id(2, text("../data.pkl")), "storage", "a record");
  refused(storage_id({text("storage")}), "persistent id", "5 to 6 arguments");
  refused(text("x") + "Q", "persistent id", "a tuple");
}

TEST(StateDict, RefusesANameTwice) {
  refused(dict({{text("a.b"), plain_tensor()}, {text("a"), dict({{text("b"), plain_tensor()}})}}),
          "tensor \"a.b\"", "one of this name, got two");
}

TEST(StateDict, RefusesNamesThatAreNoText) {
  refused(dict({{text("\xed\xa0\x80"), plain_tensor()}}), "entry", "a name in UTF-8");
}

TEST(StateDict, RefusesContainersThatHoldThemselves) {
  refused("]q\1h\1a", "entry", "at most 100 levels");
  refused("}q\1" + text("a") + "h\1s", "entry \"a.a.a", "at most 100 levels");
}

TEST(StateDict, RefusesDictsThatElementsWereAppendedTo) {
  // As a fuzzer found: one key would have had no value.
  const std::string appended = ordered_dict() + "(" + text("w") + "e";
  refused(appended, "OrderedDict", "expected keys with values, got elements of a list");
  refused(dict({{text("nested"), appended}}), "OrderedDict", "expected keys with values");
}

TEST(StateDict, BoundsDeepNesting) {
  std::string value = plain_tensor();
  for (std::size_t i = 0; i < kMaxDepth; ++i) value = "]" + value + "a";
  EXPECT_EQ(read_value(value).tensors.size(), 1u);
  const std::string deep = std::string(10'000, ']') + plain_tensor() + std::string(10'000, 'a');
  refused(deep, "entry", "at most 100 levels");
}

TEST(StateDict, BoundsContainersSharedAgainAndAgain) {
  // Each level holds the one below twice: 2^60 leaves in 600 bytes.
  for (const std::string& leaf : {plain_tensor(), std::string("}"), std::string("]}a")}) {
    std::string value = leaf + "q\1";
    for (std::size_t i = 0; i < 60; ++i) {
      value += "0}(" + text("a") + "h\1" + text("b") + "h\1uq\1";
    }
    refused(value, "checkpoint", "shared a few times");
  }
}

TEST(StateDict, BoundsNamesMadeOfOneLongKey) {
  // A key of 1 MB, at each of 90 levels, before a thousand leaves.
  std::string value = list(Values(1000, "]}a")) + "q\1";
  value += text(std::string(1'000'000, 'k')) + "q\2";
  value += "00h\1q\1";
  for (std::size_t i = 0; i < 90; ++i) value += "0}h\2h\1sq\1";
  refused(value, "checkpoint", "bytes of names");
}

TEST(StateDict, BoundsSizesThatManyTensorsShare) {
  // A tensor of six bytes would take a kilobyte.
  const std::vector<std::int64_t> ones(kMaxDimensions, 1);
  std::string value = plain_tensor() + "0" + global("torch._utils", "_rebuild_tensor_v2") + "q\1" +
                      tuple({float_storage("0", 6), integer(0), integers(ones), integers(ones),
                             boolean(false), ordered_dict()}) +
                      "q\2";
  Entries tensors;
  for (int i = 0; i < 1000; ++i) tensors.emplace_back(integer(i), "h\1h\2R");
  refused(value + dict(tensors), "checkpoint", "shared a few times");
}

TEST(StateDict, RefusesLongKeysOfStorages) {
  // Each tensor would look the whole key up.
  const std::string key(kMaxStorageKey + 1, 'k');
  const std::string value = tensor(float_storage(key, 6), 0, {6}, {1});
  expect_refused(
      [&] {
        read(archive(value, {{"data/" + key, std::string(24, 'x')}}));
      },
      "persistent id, key", "at most 512 bytes");
}

TEST(StateDict, RefusesArchivesOfOtherKinds) {
  using attn::testing::zip_bytes;
  using attn::testing::zip_part;
  expect_refused([] { read(zip_bytes({zip_part("w.npy", "x", 0)})); }, "archive", "in one folder");
  expect_refused([] { read(zip_bytes({zip_part("a/b", "x", 0)})); }, "archive", "\"a/data.pkl\"");
}

/// A checkpoint with one of nearly everything.
std::string small_checkpoint() {
  return archive(dict({{text("w"), plain_tensor()},
                       {text("n"), global("argparse", "Namespace") + ")\x81" +
                                       dict({{text("l"), integer(3)}}) + "b"},
                       {text("o"), ordered_dict() + text("p") +
                                       call(global("torch._utils", "_rebuild_parameter"),
                                            {plain_tensor(), boolean(true), ordered_dict()}) +
                                       "s"},
                       {integer(7), list({global("torch", "float16"), none()})}}),
                 record());
}

TEST(StateDict, SurvivesEveryChangedByteOfThePickle) {
  const std::string file = small_checkpoint();
  ASSERT_EQ(read(file).tensors.size(), 2u);
  const std::size_t end = file.find("data/0");
  std::size_t survived = 0;
  for (std::size_t i = 0; i < end; ++i) {
    for (int value : {0, 1, 0x28, 0x30, 0x52, 0x62, 0x68, 0x7f, 0x80, 0xff, file[i] ^ 1}) {
      std::string changed = file;
      changed[i] = static_cast<char>(value);
      try {
        read(changed, {.opaque = value % 2 == 0});
      } catch (const FormatError&) {
      }
      ++survived;
    }
  }
  EXPECT_EQ(survived, 11 * end);
}

}  // namespace
}  // namespace attn::formats
