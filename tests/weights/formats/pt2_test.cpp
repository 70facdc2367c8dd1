#include "weights/formats/pt2.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/pickle_bytes.h"
#include "support/refusal.h"
#include "support/zip_bytes.h"
#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using attn::testing::zip_bytes;
using attn::testing::zip_part;
using attn::testing::ZipPart;
using attn::testing::pickled::archive;
using attn::testing::pickled::dict;
using attn::testing::pickled::float_storage;
using attn::testing::pickled::tensor;
using attn::testing::pickled::text;
using attn::testing::pickled::whole;
using Records = std::vector<std::pair<std::string, std::string>>;
using Sizes = std::vector<std::uint64_t>;

/// The fields of a weight, each as JSON.
struct Weight {
  std::string name = "w", path = "\"weight_0\"", pickled = "false", dtype = "7",
              sizes = R"([{"as_int": 2}, {"as_int": 3}])",
              strides = R"([{"as_int": 3}, {"as_int": 1}])", offset = R"({"as_int": 0})",
              layout = "7";

  std::string json() const {
    return '"' + name + R"(": {"path_name": )" + path + R"(, "is_param": true, "use_pickle": )" +
           pickled + R"(, "tensor_meta": {"dtype": )" + dtype + R"(, "sizes": )" + sizes +
           R"(, "requires_grad": true, "device": {"type": "cpu", "index": null}, "strides": )" +
           strides + R"(, "storage_offset": )" + offset + R"(, "layout": )" + layout + "}}";
  }
};

std::string config(const std::vector<Weight>& weights) {
  std::string text = R"({"config": {)";
  for (const Weight& weight : weights) {
    text += &weight == weights.data() ? "" : ", ";
    text += weight.json();
  }
  return text + "}}";
}

std::string pt2(const Records& records) {
  std::vector<ZipPart> parts;
  for (const auto& [name, bytes] : records) parts.push_back(zip_part("m/" + name, bytes, 0));
  parts.push_back(zip_part("m/archive_format", "pt2", 0));
  return zip_bytes(parts);
}

std::string pt2_of(const std::string& json) {
  return pt2({{"data/weights/model_weights_config.json", json},
              {"data/weights/weight_0", std::string(24, 'x')}});
}

StoredFile read(const std::string& file) { return read_pt2(file, ZipArchive(file)); }

void refused(const Weight& weight, std::string_view place, std::string_view rule) {
  expect_refused([&] { read(pt2_of(config({weight}))); }, place, rule);
}

void refused_json(const std::string& json, std::string_view place, std::string_view rule) {
  expect_refused([&] { read(pt2_of(json)); }, place, rule);
}

TEST(Pt2, ReadsWeightsInTheOrderOfTheirList) {
  const std::string file =
      pt2_of(config({Weight{.name = "z"}, Weight{.name = "a.b",
                                                 .dtype = "6",
                                                 .sizes = R"([{"as_int": 5}])",
                                                 .strides = R"([{"as_int": 2}])",
                                                 .offset = R"({"as_int": 3})"}}));
  EXPECT_TRUE(is_pt2(ZipArchive(file)));
  const StoredFile result = read(file);
  ASSERT_EQ(result.tensors.size(), 2u);
  EXPECT_EQ(result.tensors[0].name, "z");
  EXPECT_EQ(result.tensors[0].type, ElementType::kFloat32);
  EXPECT_EQ(result.tensors[0].sizes, Sizes({2, 3}));
  EXPECT_EQ(result.tensors[1].name, "a.b");
  EXPECT_EQ(result.tensors[1].type, ElementType::kFloat16);
  EXPECT_EQ(result.tensors[1].offset, 3u);
  EXPECT_EQ(result.tensors[1].strides, Sizes({2}));
  ASSERT_EQ(result.storages.size(), 1u) << "shared, as the paths say";
  EXPECT_EQ(file.substr(result.storages[0].begin, 24), std::string(24, 'x'));
}

TEST(Pt2, SkipsConstants) {
  const StoredFile file =
      read(pt2({{"data/weights/model_weights_config.json", config({})},
                {"data/constants/model_constants_config.json", config({Weight{.name = "c"}})}}));
  EXPECT_EQ(file.tensors.size(), 0u);
  ASSERT_EQ(file.skipped.size(), 1u);
  EXPECT_EQ(file.skipped[0].name, "c");
}

/// A file of torch.save with one tensor under the name; without a name the tensor itself.
std::string saved(const std::string& name) {
  const std::string value = tensor(float_storage("0", 6), 0, {6}, {1});
  return archive(name.empty() ? value : dict({{text(name), value}}),
                 {{"data/0", std::string(24, 'y')}});
}

TEST(Pt2, ReadsFilesOfTorchSaveInside) {
  const std::string oldest = zip_bytes({zip_part("serialized_exported_program.json", "{}", 0),
                                        zip_part("serialized_state_dict.pt", saved("w"), 0)});
  const std::string old = pt2({{"data/weights/model.pt", saved("w")}});
  const std::string pickled =
      pt2({{"data/weights/model_weights_config.json", config({Weight{.pickled = "true"}})},
           {"data/weights/weight_0", saved("")}});
  for (const std::string& file : {oldest, old, pickled}) {
    EXPECT_TRUE(is_pt2(ZipArchive(file)));
    const StoredFile result = read(file);
    ASSERT_EQ(result.tensors.size(), 1u);
    EXPECT_EQ(result.tensors[0].name, "w");
    const Storage& storage = result.storages.at(result.tensors[0].storage);
    EXPECT_EQ(file.substr(storage.begin, storage.size), std::string(24, 'y'));
  }
}

TEST(Pt2, PutsTheNamesOfSeveralModelsBeforeTheirWeights) {
  const StoredFile file = read(pt2({{"data/weights/b_weights_config.json", config({Weight{}})},
                                    {"data/weights/a_weights_config.json", config({Weight{}})},
                                    {"data/weights/weight_0", std::string(24, 'x')}}));
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].name, "a.w");
  EXPECT_EQ(file.tensors[1].name, "b.w");
}

TEST(Pt2, RefusesWrongFields) {
  refused({.path = "\"weight_1\""}, "tensor \"w\"", "a record \"weight_1\", got none");
  refused({.path = "3"}, "tensor \"w\"", "a record with its bytes");
  refused({.pickled = "true"}, "record \"m/data/weights/weight_0\"", "");
  for (const std::string dtype : {"0", "14", "99", "-7", "7.0", "\"7\"", "null", "true"}) {
    refused({.dtype = dtype}, "tensor \"w\"", "dtype");
  }
  refused({.dtype = "[7]"}, "tensor \"w\"", "as dtype");
  for (const std::string sizes :
       {R"([{"as_int": -2}, {"as_int": 3}])", R"([{"as_expr": "s0"}, {"as_int": 3}])",
        R"([{"as_int": 2.5}, {"as_int": 3}])", "[2, 3]", "\"23\"", "null"}) {
    refused({.sizes = sizes}, "tensor \"w\"", "");
    refused({.strides = sizes}, "tensor \"w\"", "");
  }
  refused({.offset = R"({"as_int": -1})"}, "tensor \"w\"", "a number of 0 or more");
  refused({.offset = R"({"as_int": 1})"}, "tensor \"w\"", "inside the 24 bytes");
  refused({.offset = R"({"as_int": 18446744073709551615})"}, "tensor \"w\"", "");
  refused({.sizes = R"([{"as_int": 3}, {"as_int": 3}])"}, "tensor \"w\"", "inside the 24 bytes");
  refused({.sizes = "[]"}, "tensor \"w\"", "as many strides as sizes");
  refused({.layout = "1"}, "tensor \"w\"", "a strided tensor");
}

TEST(Pt2, RefusesListsThatAreNotTorchExports) {
  refused_json("", "list of weights", "JSON in UTF-8");
  refused_json("{", "list of weights", "JSON in UTF-8");
  refused_json(std::string("{}\0", 3), "list of weights", "a zero byte");
  refused_json(config({Weight{}, Weight{}}), "tensor \"w\"", "one of this name, got two");
  refused_json(R"({"config": {"w": {}}})", "tensor \"w\"", "a record with its bytes");
  refused_json(std::string(kMaxDepth + 1, '['), "list of weights", "100 levels");
  refused_json(R"({"config": {"w": )" + std::string(1'000'000, '['), "list of weights", "levels");
}

TEST(Pt2, RefusesOtherArchives) {
  expect_refused([] { read(zip_bytes({zip_part("m/archive_format", "pt3", 0)})); },
                 "record archive_format", "pt2");
  expect_refused([] { read(pt2({})); }, "archive", "an exported program with its weights");
  expect_refused([] { read(zip_bytes({zip_part("serialized_exported_program.json", "{}", 0)})); },
                 "archive", "serialized_state_dict.pt");
}

TEST(Pt2, ReadsAPickledRecordOnce) {
  // Each tensor would cost the reading of the whole record.
  const Weight a{.name = "a", .pickled = "true"}, b{.name = "b", .pickled = "true"};
  expect_refused(
      [&] {
        read(pt2({{"data/weights/model_weights_config.json", config({a, b})},
                  {"data/weights/weight_0", saved("")}}));
      },
      "tensor \"b\"", "a pickled tensor of its own");
}

TEST(Pt2, RefusesDeflatedRecordsInside) {
  // Many archives inside may not each inflate to what one may.
  const std::string pickle = whole(tensor(float_storage("0", 6), 0, {6}, {1}));
  ZipPart storage = zip_part("archive/data/0", "\x4b\x24\x0d\x00", 0);
  storage.both([](auto& fields) { fields.method = 8, fields.size = 24; });
  const std::string inside = zip_bytes({zip_part("archive/data.pkl", pickle, 0), storage});
  expect_refused(
      [&] {
        read(pt2({{"data/weights/model.pt", inside}}));
      },
      "record \"m/data/weights/model.pt\"", "bytes as they are, got deflated ones");
}

TEST(Pt2, BoundsNamesMadeOfOneLongModel) {
  const std::string model(60'000, 'm');
  std::vector<Weight> weights;
  for (int i = 0; i < 2000; ++i) weights.push_back({.name = std::to_string(i)});
  expect_refused(
      [&] {
        read(pt2({{"data/weights/" + model + "_weights_config.json", config(weights)},
                  {"data/weights/a_weights_config.json", config({})},
                  {"data/weights/weight_0", std::string(24, 'x')}}));
      },
      "archive", "bytes of names");
}

TEST(Pt2, SurvivesEveryChangedByteOfTheList) {
  const std::string json = config({Weight{}});
  std::size_t survived = 0;
  for (std::size_t i = 0; i < json.size(); ++i) {
    for (char value : {'\0', '"', '{', '[', ']', '}', ',', '-', '9', '\\', '\xff'}) {
      std::string changed = json;
      changed[i] = value;
      try {
        read(pt2_of(changed));
      } catch (const FormatError&) {
      }
      ++survived;
    }
  }
  EXPECT_EQ(survived, 11 * json.size());
}

}  // namespace
}  // namespace attn::formats
