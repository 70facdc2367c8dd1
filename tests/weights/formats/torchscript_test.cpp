#include "weights/formats/torchscript.h"

#include <gtest/gtest.h>

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
using attn::testing::pickled::none;
using attn::testing::pickled::storage_id;
using attn::testing::pickled::tensor;
using attn::testing::pickled::text;
using attn::testing::pickled::whole;
using Entries = std::vector<std::pair<std::string, std::string>>;

std::string one(std::string_view key = "0") { return tensor(float_storage(key, 1), 0, {1}, {1}); }

/// An object of a class of the archive.
std::string object(std::string_view module, std::string_view name, const Entries& attributes) {
  Entries items;
  for (const auto& [attribute, value] : attributes) items.emplace_back(text(attribute), value);
  return global(module, name) + ")\x81" + dict(items) + "b";
}

constexpr std::string_view kLinear =
    "class Linear(Module):\n"
    "  __parameters__ = [\"weight\", \"bias\", ]\n"
    "  __buffers__ = [\"mean\", ]\n"
    "  weight : Tensor\n"
    "  def forward(self: __torch__.nn.Linear) -> Tensor:\n"
    "    return self.weight\n";

std::string linear(const Entries& attributes) {
  return object("__torch__.nn", "Linear", attributes);
}

std::string module_file(const std::string& root, Entries records = {}) {
  records.insert(records.end(), {{"constants.pkl", whole(")")},
                                 {"data/0", "abcd"},
                                 {"code/__torch__/nn.py", std::string(kLinear)},
                                 {"code/__torch__.py",
                                  "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n"
                                  "class Plain:\n  x : Tensor\n"}});
  return archive(root, records);
}

StoredFile read(const std::string& file) { return read_torchscript(file, ZipArchive(file)); }

std::vector<std::string> names(const StoredFile& file) {
  std::vector<std::string> result;
  for (const StoredTensor& tensor : file.tensors) result.push_back(tensor.name);
  return result;
}

void refused(const std::string& file, std::string_view place, std::string_view rule) {
  expect_refused([&] { read(file); }, place, rule);
}

TEST(TorchScript, ReadsStoragesThatPythonHasNoClassOf) {
  for (const auto& [name, type] : {std::pair{"UInt16Storage", ElementType::kUInt16},
                                   std::pair{"Float8_e8m0fnuStorage", ElementType::kFloat8E8M0},
                                   std::pair{"ComplexHalfStorage", ElementType::kComplex32}}) {
    const std::string storage =
        storage_id({text("storage"), global("torch", name), text("0"), text("cpu"), integer(1)});
    const StoredFile file = read(module_file(linear({{"weight", tensor(storage, 0, {1}, {1})}})));
    EXPECT_EQ(file.tensors[0].type, type) << name;
  }
}

TEST(TorchScript, ListsModuleByModuleParametersBeforeBuffers) {
  const std::string inner =
      linear({{"mean", one()}, {"weight", one()}, {"training", boolean(true)}, {"bias", none()}});
  const std::string file = module_file(
      object("__torch__", "M", {{"0", inner}, {"training", boolean(true)}, {"b", inner}}));
  EXPECT_TRUE(is_torchscript(ZipArchive(file)));
  EXPECT_EQ(names(read(file)),
            std::vector<std::string>({"0.weight", "0.mean", "b.weight", "b.mean"}));
}

TEST(TorchScript, SkipsTensorsThatAreNeitherParametersNorBuffers) {
  const StoredFile file =
      read(module_file(object("__torch__", "M", {{"t", one()}, {"training", boolean(true)}})));
  EXPECT_EQ(names(file), std::vector<std::string>());
  ASSERT_EQ(file.skipped.size(), 1u);
  EXPECT_EQ(file.skipped[0].name, "t");
}

TEST(TorchScript, TakesEveryOtherTensorForABufferWhereNoneAreDeclared) {
  const std::string old = "class Old(Module):\n  __parameters__ = [\"w\", ]\n";
  const std::string file =
      module_file(object("__torch__.old", "Old",
                         {{"b", one()}, {"w", one()}, {"n", none()}, {"training", boolean(true)}}),
                  {{"code/__torch__/old.py", old}});
  EXPECT_EQ(names(read(file)), std::vector<std::string>({"w", "b"}));
}

TEST(TorchScript, FindsMangledClasses) {
  const std::string file =
      module_file(object("__torch__.nn.___torch_mangle_0", "Linear", {{"weight", one()}}),
                  {{"code/__torch__/nn/___torch_mangle_0.py", std::string(kLinear)}});
  EXPECT_EQ(names(read(file)), std::vector<std::string>({"weight"}));
}

TEST(TorchScript, FindsClassesWithoutAModule) {
  // An archive of C++: `torch::jit::Module("m")`. The pickle has an empty line for the module.
  const std::string file =
      module_file(global("", "m") + ")\x81" + dict({{text("w"), one()}}) + "b",
                  {{"code/.py", "class m(Module):\n  __parameters__ = [\"w\", ]\n"}});
  EXPECT_EQ(names(read(file)), std::vector<std::string>({"w"}));
}

TEST(TorchScript, LeavesOtherObjectsAlone) {
  const std::string typed = call(global("torch.jit._pickle", "restore_type_tag"),
                                 {dict({{text("a"), one()}}), text("Dict[str, Tensor]")});
  const std::string file = module_file(linear({{"weight", one()},
                                               {"d", typed},
                                               {"p", object("__torch__", "Plain", {{"x", one()}})},
                                               {"q", object("__torch__.classes", "Q", {})}}));
  EXPECT_EQ(names(read(file)), std::vector<std::string>({"weight"}));
}

TEST(TorchScript, ReadsEscapedNames) {
  const std::string code =
      "class C(Module):\n  __parameters__ = [\"a\\\"]\\303\\244\", 'b', ]\n  __buffers__ = []\n";
  const std::string file =
      module_file(object("__torch__.c", "C", {{"a\"]\xc3\xa4", one()}, {"b", one()}}),
                  {{"code/__torch__/c.py", code}});
  EXPECT_EQ(names(read(file)), std::vector<std::string>({"a\"]\xc3\xa4", "b"}));
}

TEST(TorchScript, RefusesFrozenModulesButNotEmptyOnes) {
  refused(module_file(object("__torch__", "M", {})), "archive", "frozen");
  const std::string empty = module_file(object("__torch__", "M", {{"training", boolean(true)}}));
  EXPECT_EQ(read(empty).tensors.size(), 0u);
}

TEST(TorchScript, RefusesClassesThatAreNotTheArchives) {
  const std::string system = call(global("os", "system"), {text("true")});
  refused(module_file(linear({{"x", system}})), "\"os.system\"", "not known");
  refused(module_file(linear({{"x", global("torch._utils", "_rebuild_qtensor")}})),
          "_rebuild_qtensor", "a quantized tensor");
}

TEST(TorchScript, RefusesClassesAmongTheConstantsThatAreNotPyTorchs) {
  const auto with_constants = [](const std::string& value) {
    return archive(linear({{"weight", one()}}), {{"constants.pkl", whole(value)},
                                                 {"data/0", "abcd"},
                                                 {"code/__torch__/nn.py", std::string(kLinear)}});
  };
  const std::string tensors = call(global("torch._utils", "_rebuild_qtensor"), {none()});
  EXPECT_EQ(read(with_constants(tensors)).tensors.size(), 1u) << "they are not used";
  refused(with_constants(call(global("os", "system"), {text("true")})), "class \"os.system\"",
          "not known");
}

TEST(TorchScript, RefusesWhatIsNoModule) {
  refused(module_file(integer(3)), "archive", "a module, got int");
  refused(module_file(object("__torch__", "Plain", {{"x", one()}})), "archive", "a module");
  refused(module_file(object("__torch__", "Missing", {{"x", one()}})), "archive", "a module");
  refused(module_file(linear({{"weight", integer(1)}})), "tensor \"weight\"", "a dense tensor");
  refused(archive(integer(3), {{"model.json", "{}"}}), "archive", "model.json");
}

TEST(TorchScript, RefusesDeclarationsThatAreNotPyTorchs) {
  for (const std::string list :
       {"x", "[", "[\"a\"", "[\"a\" \"b\"]", "[a, ]", "[\"a\\q\", ]", "[\"a, ]", "[\"a\\"}) {
    const std::string code = "class C(Module):\n  __parameters__ = " + list + "\n";
    refused(
        module_file(object("__torch__.c", "C", {{"a", one()}}), {{"code/__torch__/c.py", code}}),
        "code of \"__torch__.c\"", "a list of names");
  }
}

TEST(TorchScript, BoundsModulesThatHoldThemselvesOrOthersManyTimes) {
  const std::string start = global("__torch__.nn", "Linear") + ")\x81q\1";
  refused(module_file(start + dict({{text("m"), "h\1"}}) + "b"), "module \"m.m.m", "100 levels");
  std::string value = linear({{"training", none()}}) + "q\1";
  for (std::size_t i = 0; i < 60; ++i) {
    value += "0" + linear({{"a", "h\1"}, {"b", "h\1"}}) + "q\1";
  }
  refused(module_file(value), "checkpoint", "shared a few times");
}

TEST(TorchScript, BoundsLongNamesThatManyAttributesShare) {
  // Each would be compared with the declared names.
  const std::string name(1'000'000, 'n');
  std::string attributes = "}(" + text(name) + "q\1N";
  for (int i = 0; i < 200; ++i) attributes += "h\1N";
  refused(module_file(global("__torch__.c", "C") + ")\x81" + attributes + "ub",
                      {{"code/__torch__/c.py",
                        "class C(Module):\n  __parameters__ = [\"" + name + "\", ]\n"}}),
          "checkpoint", "bytes of names");
}

TEST(TorchScript, BoundsWhatTheCodeDeclares) {
  std::string classes, names = "class C(Module):\n  __parameters__ = [";
  for (std::size_t i = 0; i <= kMaxClasses; ++i) classes += "class c" + std::to_string(i) + ":\n";
  for (std::size_t i = 0; i <= kMaxTensors; ++i) names += '"' + std::to_string(i) + "\", ";
  const std::string root = object("__torch__.c", "C", {{"training", boolean(true)}});
  refused(module_file(root, {{"code/__torch__/c.py", classes}}), "code of \"__torch__.c\"",
          "at most 100000 classes");
  refused(module_file(root, {{"code/__torch__/c.py", names + "]\n"}}), "code of \"__torch__.c\"",
          "at most 1000000 names");
}

TEST(TorchScript, SurvivesEveryChangedByte) {
  const std::string file = module_file(
      object("__torch__", "M", {{"0", linear({{"weight", one()}, {"training", none()}})}}));
  ASSERT_EQ(read(file).tensors.size(), 1u);
  std::size_t survived = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (int value : {0, 0x22, 0x30, 0x5c, 0x68, 0xff, file[i] ^ 1}) {
      std::string changed = file;
      changed[i] = static_cast<char>(value);
      try {
        read(changed);
      } catch (const FormatError&) {
      }
      ++survived;
    }
  }
  EXPECT_EQ(survived, 7 * file.size());
}

}  // namespace
}  // namespace attn::formats
